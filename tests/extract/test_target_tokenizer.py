import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from eagletui.core.checks import Check
from eagletui.core.vocabulary import Vocabulary, pack_vocabulary
from eagletui.extract.target_tokenizer import compare_tokenizer
from eagletui.extract.verify import verify
from tests.extract.small_run import answer_samples, create_run
from tests.extract.test_run_features import _events, _ids, _run_here
from tests.tiny_models import save_tiny_model

PIECES = ["a", "b", "Ġa", "Ġb", "é"]
"""The last but two are ` a` and ` b`, the last one the byte 0xE9."""
SPECIAL = "<|end|>"
END = len(PIECES)


def _document(pieces: list[str], special: str = SPECIAL) -> dict[str, Any]:
    return {
        "version": "1.0",
        "added_tokens": [
            {
                "id": END,
                "content": special,
                "special": True,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
            }
        ],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": {piece: number for number, piece in enumerate(pieces)}, "merges": []},
    }


def _folder(path: Path, pieces: list[str], special: str = SPECIAL, indent: int | None = None) -> Path:
    path.mkdir()
    (path / "tokenizer.json").write_text(json.dumps(_document(pieces, special), indent=indent))
    return path


def _gguf(path: Path, pieces: list[str]) -> Path:
    """Write a header with the pieces behind another list, as the format's page says."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value.encode())) + value.encode()

    def texts(key: str, values: list[str]) -> bytes:
        return text(key) + struct.pack("<IIQ", 9, 8, len(values)) + b"".join(map(text, values))

    values = [texts("general.tags", ["x"]), texts("tokenizer.ggml.tokens", pieces)]
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(values)) + b"".join(values))
    return path


@pytest.fixture
def run(tmp_path: Path) -> tuple[str, Path]:
    """Give the hash of the run's tokenizer, and its packed vocabulary."""
    vocabulary = Vocabulary.from_byte_level({piece: number for number, piece in enumerate(PIECES)}, {SPECIAL: END})
    (tmp_path / "vocabulary.msgpack").write_bytes(pack_vocabulary(vocabulary))
    text = json.dumps(_document(PIECES))
    return hashlib.sha256(text.encode()).hexdigest(), tmp_path / "vocabulary.msgpack"


def _found(model: Path, run: tuple[str, Path]) -> Check:
    check = compare_tokenizer(model, *run)
    assert check is not None
    return check


def test_the_same_file_and_the_same_table_in_another_file_are_the_run_s(tmp_path: Path, run: tuple[str, Path]) -> None:
    same = _found(_folder(tmp_path / "same", PIECES), run)
    assert (same.ok, same.detail) == (True, f"{tmp_path / 'same' / 'tokenizer.json'} is the run's")
    again = _found(_folder(tmp_path / "again", PIECES, indent=2), run)
    assert again.ok
    assert again.detail.startswith("6 ids of the run stand for the same bytes in ")
    assert _found(_gguf(tmp_path / "a.gguf", [*PIECES, SPECIAL, "[PAD6]"]), run).ok


def test_ids_that_stand_for_other_bytes_are_a_fault(tmp_path: Path, run: tuple[str, Path]) -> None:
    other = ["b", "a", *PIECES[2:]]
    for model in (_folder(tmp_path / "other", other), _gguf(tmp_path / "other.gguf", [*other, SPECIAL])):
        check = _found(model, run)
        assert (check.ok, check.level) == (False, "error")
        assert check.detail.startswith("2 of 6 ids do not stand for the same bytes in ")
        assert check.detail.endswith("the first is 0, 'a' in the run")
    short = _found(_gguf(tmp_path / "short.gguf", PIECES[:2]), run)
    assert (short.ok, short.level) == (False, "error")


def test_a_special_token_of_another_name_asks_for_a_look(tmp_path: Path, run: tuple[str, Path]) -> None:
    check = _found(_folder(tmp_path / "other", PIECES, "<|pad|>"), run)
    assert (check.ok, check.level) == (False, "warn")
    assert check.detail.endswith("the first special is 5, '<|end|>' in the run")


def test_what_cannot_be_compared_is_said(tmp_path: Path, run: tuple[str, Path]) -> None:
    model = _folder(tmp_path / "other", PIECES, indent=2)
    assert compare_tokenizer(model, None, run[1]) is None
    gone = _found(model, (run[0], tmp_path / "gone"))
    assert (gone.ok, gone.level) == (False, "warn")
    assert gone.detail.endswith(f"is another file than the run's, and {tmp_path / 'gone'} is gone")
    (model / "tokenizer.json").write_text("{}")
    assert _found(model, run).detail.startswith("not compared: ")
    (model / "tokenizer.json").unlink()
    none = _found(model, run)
    assert (none.ok, none.detail) == (True, f"not compared: {model} holds no tokenizer")
    assert _found(_gguf(tmp_path / "none.gguf", []), run).ok


def test_extraction_warns_of_another_tokenizer_and_verify_condemns_it(tmp_path: Path, run: tuple[str, Path]) -> None:
    model = save_tiny_model(tmp_path / "model", "llama")
    (model / "tokenizer.json").write_text(json.dumps(_document(["b", "a", *PIECES[2:]])))
    folder = create_run(tmp_path / "run", model)
    folder.vocabulary_path.write_bytes(run[1].read_bytes())
    answer_samples(folder, _ids(15))
    _run_here(folder)
    (said,) = [message for kind, message in _events(folder) if kind == "tokenizer_differs"]
    assert said.startswith("The target's tokenizer: 2 of 6 ids do not stand for the same bytes in ")
    verdict = verify(folder.features_dir, model, device="cpu")
    assert [check.name for check in verdict.checks if not check.ok and check.level == "error"] == ["tokenizer"]
