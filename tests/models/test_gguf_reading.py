import threading
from pathlib import Path

import gguf
import pytest

from eagletui.core.errors import ModelError
from eagletui.models.identity import stored_positions, stored_vocabulary
from eagletui.models.load import _reading_gguf_once, load_target


def _write(path: Path) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_context_length(2048)
    writer.add_token_list(["a", "b", "c"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_header_and_a_table_of_names_are_read_once_within_a_load_and_anew_afterwards(tmp_path: Path) -> None:
    path = _write(tmp_path / "header.gguf")
    plain = gguf.GGUFReader, gguf.get_tensor_name_map
    with _reading_gguf_once():
        first = gguf.GGUFReader(path)
        assert gguf.GGUFReader(path) is first
        table = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2)
        assert gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2) is table
        assert gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 3) is not table
    assert (gguf.GGUFReader, gguf.get_tensor_name_map) == plain
    assert gguf.GGUFReader(path) is not first


def test_the_vocabulary_and_the_positions_are_read_from_the_header_alone(tmp_path: Path) -> None:
    path = _write(tmp_path / "header.gguf")
    assert (stored_vocabulary(path), stored_positions(path)) == (3, 2048)


def test_a_load_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    plain = gguf.GGUFReader, gguf.get_tensor_name_map
    (tmp_path / "broken.gguf").write_bytes(b"GGUF, but not really")
    with pytest.raises(ModelError, match=r"broken\.gguf"):
        load_target(tmp_path / "broken.gguf", device="cpu")
    assert (gguf.GGUFReader, gguf.get_tensor_name_map) == plain


def test_a_second_thread_waits_for_the_first_load(tmp_path: Path) -> None:
    plain = gguf.GGUFReader
    seen: list[bool] = []

    def load() -> None:
        with _reading_gguf_once():
            seen.append(gguf.GGUFReader is plain)

    with _reading_gguf_once():
        ours = gguf.GGUFReader
        other = threading.Thread(target=load)
        other.start()
        other.join(0.05)
        assert (other.is_alive(), gguf.GGUFReader) == (True, ours)
    other.join()
    assert seen == [False]
    assert gguf.GGUFReader is plain
