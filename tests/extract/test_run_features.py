import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from eagletui.core.errors import LockedError, ModelError, RunError
from eagletui.extract.choices import Choices, Done
from eagletui.extract.gather import Progress
from eagletui.extract.manifest import read_manifest, read_shard_list
from eagletui.extract.run_features import RunExtractor
from eagletui.extract.shards import ShardReader, hash_file, shard_files
from eagletui.extract.space import DiskSpace
from eagletui.ledger.locks import RoleLock
from eagletui.ledger.orders import TokensResult
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.writer import LedgerWriter
from eagletui.ledger.writer_extract import ExtractorWriter
from eagletui.runs.folder import RunFolder
from eagletui.runs.workers import wait_ready
from tests.extract.small_run import Ids, answer_samples, create_run, finish_run
from tests.tiny_models import Kind, random_samples, streams_of_transformers

DEADLINE_S = 60.0


def _ids(*lengths: int) -> list[Ids]:
    return [(ids[: max(1, len(ids) // 3)], ids[max(1, len(ids) // 3) :]) for ids in random_samples(lengths)]


def _run_here(folder: RunFolder, choices: Choices | None = None, stop: threading.Event | None = None) -> Done:
    with (
        RoleLock(folder, "extractor"),
        LedgerReader(folder.ledger_path) as reader,
        ExtractorWriter(folder.ledger_path) as writer,
    ):
        return RunExtractor(folder, reader, writer, choices or Choices(follow=False), stop or threading.Event()).run()


def _stored(folder: RunFolder) -> dict[str, torch.Tensor]:
    """Read every current record through the ledger's own rows, checking what it says about the files."""
    found: dict[str, torch.Tensor] = {}
    with LedgerReader(folder.ledger_path) as reader:
        for shard in reader.shards():
            file = folder.features_dir / shard.path
            assert (file.stat().st_size, hash_file(file)) == (shard.bytes, shard.xxh3)
            with ShardReader(file) as shard_reader:
                assert (len(shard_reader.keys), shard_reader.rows) == (shard.samples, shard.rows)
                for position, key in enumerate(shard_reader.keys):
                    assert key not in found, f"{key} lies in two shards"
                    found[key] = shard_reader.record(position).hidden_states.clone()
        assert set(shard_files(folder.features_dir)) == {shard.path for shard in reader.shards()}
        listed = {(shard.path, shard.xxh3) for shard in read_shard_list(folder.features_dir)}
        assert listed == {(shard.path, shard.xxh3) for shard in reader.shards()}
        assert reader.snapshot().extract.samples == len(found)
    return found


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.01)


def _events(folder: RunFolder) -> list[tuple[str, str]]:
    with LedgerReader(folder.ledger_path) as reader:
        return [(event.kind, event.message) for event in reader.events()]


Start = Callable[[RunFolder], "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start extractor processes; those that still live at the end of the test are killed."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(folder: RunFolder) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "eagletui.extract", str(folder.path)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait(DEADLINE_S)


def test_features_of_a_run_equal_a_plain_forward_over_prompt_and_output(
    tmp_path: Path, tiny_models: dict[Kind, Path]
) -> None:
    folder = create_run(tmp_path / "run", tiny_models["llama"])
    answer_samples(folder, _ids(40, 7, 150))
    done = _run_here(folder)
    assert (done.progress.samples, done.progress.rows) == (3, 197)
    stored = _stored(folder)
    for key, ids in zip(("s0", "s1", "s2"), random_samples((40, 7, 150)), strict=True):
        assert torch.equal(stored[key][:, :3], streams_of_transformers(tiny_models["llama"], ids)[0])
    manifest = read_manifest(folder.features_dir)
    assert (manifest.source, manifest.served_model, manifest.tokenizer_hash) == ("run run", "tiny/random", "00ff")
    with LedgerReader(folder.ledger_path) as reader:
        assert reader.to_extract(10) == []


def test_only_trainable_samples_with_prompt_ids_are_extracted(tmp_path: Path, tiny_models: dict[Kind, Path]) -> None:
    folder = create_run(tmp_path / "run", tiny_models["llama"])
    answer_samples(folder, _ids(10, 11))
    answer_samples(folder, _ids(12), first=2, usability="text_suspect")
    answer_samples(folder, _ids(13), first=3, usability="resegmented")
    answer_samples(folder, [(None, (1, 2, 3))], first=4)
    done = _run_here(folder)
    assert set(_stored(folder)) == {"s0", "s1", "s3"}
    assert done.without_prompt == 1
    assert ("no_prompt_ids", "1 samples have no prompt ids and get no features.") in _events(folder)


def test_ids_changed_by_a_rebuild_are_extracted_again_and_the_others_are_not(
    tmp_path: Path, tiny_models: dict[Kind, Path]
) -> None:
    folder = create_run(tmp_path / "run", tiny_models["llama"])
    answer_samples(folder, _ids(10, 11))
    assert _run_here(folder).progress.samples == 2
    with LedgerReader(folder.ledger_path) as reader, LedgerWriter(folder.ledger_path) as writer:
        detail = reader.sample("s0")
        assert detail is not None
        assert writer.store_tokens(detail.row.id, TokensResult((5, 6, 7), "new", "served", "usable", prompt_ids=(1, 2)))
    assert _run_here(folder).progress.samples == 1
    with LedgerReader(folder.ledger_path) as reader:
        assert [(shard.samples, shard.rows) for shard in reader.shards()] == [(2, 21), (1, 5)]
        assert reader.snapshot().extract.samples == 2
        assert reader.to_extract(10) == []


def test_files_that_a_crash_left_are_removed_and_lost_shards_computed_again(
    tmp_path: Path, tiny_models: dict[Kind, Path]
) -> None:
    folder = create_run(tmp_path / "run", tiny_models["llama"])
    answer_samples(folder, _ids(*(300,) * 8))
    _run_here(folder)
    before = _stored(folder)
    shards = folder.features_dir / "shards"
    names = sorted(file.name for file in shards.iterdir())
    assert names == [f"00000{number}.safetensors" for number in range(3)]
    (shards / "000000.safetensors").unlink()
    cut = (shards / "000002.safetensors").read_bytes()[:-1]
    (shards / "000002.safetensors").write_bytes(cut)
    (shards / "000007.safetensors").write_bytes(b"renamed but never committed")
    (shards / "000008.safetensors.tmp").write_bytes(b"half")
    assert _run_here(folder).progress.samples == 5
    after = _stored(folder)
    assert {key: value.tolist() for key, value in after.items()} == {k: v.tolist() for k, v in before.items()}
    kinds = [kind for kind, _ in _events(folder)]
    assert (kinds.count("shard_lost"), kinds.count("orphans_removed")) == (2, 1)


@pytest.mark.slow
def test_the_process_follows_the_engine_and_seals_the_open_shard_on_sigterm_but_not_on_sighup(
    tmp_path: Path, tiny_models: dict[Kind, Path], start: Start
) -> None:
    folder = create_run(tmp_path / "run", tiny_models["llama"])
    answer_samples(folder, _ids(30, 40))
    process = start(folder)
    wait_ready(folder, "extractor", DEADLINE_S, pid=process.pid)
    process.send_signal(signal.SIGHUP)
    _until(lambda: _beat_rows(folder) == 70)
    answer_samples(folder, _ids(50), first=2)
    _until(lambda: _beat_rows(folder) == 120)
    assert shard_files(folder.features_dir) == {}
    process.terminate()
    assert process.wait(DEADLINE_S) == 0
    assert set(_stored(folder)) == {"s0", "s1", "s2"}
    with LedgerReader(folder.ledger_path) as reader:
        (beat,) = reader.heartbeats()
    assert (beat.role, beat.pid, beat.stopped_at is not None) == ("extractor", process.pid, True)
    assert ("extractor_stopped", "Extraction stopped: 3 samples, 120 tokens, 0 without features.") in _events(folder)


def _beat_rows(folder: RunFolder) -> int:
    with LedgerReader(folder.ledger_path) as reader:
        return sum(json.loads(beat.detail_json).get("rows", 0) for beat in reader.heartbeats())


@pytest.mark.slow
def test_kill_9_loses_at_most_the_open_shard_and_doubles_nothing(
    tmp_path: Path, tiny_models: dict[Kind, Path], start: Start
) -> None:
    _kill_and_restart(tmp_path, tiny_models["llama"], start, shards_before_kills=(2,))


@pytest.mark.slow
def test_kill_9_at_several_moments_loses_at_most_the_open_shard_and_doubles_nothing(
    tmp_path: Path, tiny_models: dict[Kind, Path], start: Start
) -> None:
    _kill_and_restart(tmp_path, tiny_models["llama"], start, shards_before_kills=(0, 1, 3, 6, 10))


def _kill_and_restart(tmp_path: Path, model: Path, start: Start, *, shards_before_kills: tuple[int, ...]) -> None:
    folder = create_run(tmp_path / "run", model)
    lengths = tuple(300 + number % 50 for number in range(60))
    answer_samples(folder, _ids(*lengths))
    finish_run(folder)
    for wanted in shards_before_kills:
        process = start(folder)
        wait_ready(folder, "extractor", DEADLINE_S, pid=process.pid)
        _until(partial(_has_shards, folder, wanted))
        process.kill()
        process.wait(DEADLINE_S)
        assert _has_shards(folder, wanted)
    process = start(folder)
    assert process.wait(DEADLINE_S) == 0
    stored = _stored(folder)
    assert set(stored) == {f"s{number}" for number in range(60)}
    for number in (0, 29, 59):
        aux, _ = streams_of_transformers(model, random_samples(lengths)[number])
        assert torch.equal(stored[f"s{number}"][:, :3], aux)
    with LedgerReader(folder.ledger_path) as reader:
        assert reader.snapshot().extract.rows == sum(lengths)
    assert any(kind == "extractor_done" for kind, _ in _events(folder))


def _has_shards(folder: RunFolder, wanted: int) -> bool:
    return _shards(folder) >= wanted


def _shards(folder: RunFolder) -> int:
    with LedgerReader(folder.ledger_path) as reader:
        return len(reader.shards())


def test_a_second_extractor_refuses_and_names_the_first(tmp_path: Path, tiny_models: dict[Kind, Path]) -> None:
    folder = create_run(tmp_path / "run", tiny_models["llama"])
    with RoleLock(folder, "extractor"):
        with pytest.raises(LockedError):
            _run_here(folder)
        done = subprocess.run(
            [sys.executable, "-m", "eagletui.extract", str(folder.path)], capture_output=True, text=True, check=False
        )
    assert done.returncode == 1
    assert f"The extractor of run is already running: pid {os.getpid()}" in done.stderr


@pytest.mark.slow
def test_a_model_of_another_vocabulary_ends_the_process_with_an_event(
    tmp_path: Path, tiny_models: dict[Kind, Path], start: Start
) -> None:
    folder = create_run(tmp_path / "run", tiny_models["llama"])
    answer_samples(folder, [((1, 2), (3, 100_000))])
    finish_run(folder)
    process = start(folder)
    assert process.wait(DEADLINE_S) == 2
    (message,) = [message for kind, message in _events(folder) if kind == "extractor_failed"]
    assert "Sample s0 holds id 100000" in message
    assert "vocabulary of 512" in message
    assert "100000" in folder.log_path("extractor").read_text()


def test_ids_of_another_vocabulary_are_refused_by_name(tmp_path: Path, tiny_models: dict[Kind, Path]) -> None:
    folder = create_run(tmp_path / "run", tiny_models["llama"])
    answer_samples(folder, [((1, 2), (3, 100_000))])
    with pytest.raises(ModelError, match=r"Sample s0 holds id 100000, .*vocabulary of 512"):
        _run_here(folder)


def test_a_run_without_a_target_model_says_what_to_set(tmp_path: Path) -> None:
    folder = create_run(tmp_path / "run", None)
    answer_samples(folder, _ids(10))
    with pytest.raises(ModelError, match=r"set model\.weights"):
        _run_here(folder)


def test_features_of_another_model_are_not_added_to(tmp_path: Path, tiny_models: dict[Kind, Path]) -> None:
    folder = create_run(tmp_path / "run", tiny_models["llama"])
    answer_samples(folder, _ids(10))
    _run_here(folder)
    answer_samples(folder, _ids(11), first=1)
    with pytest.raises(RunError, match="model_xxh3"):
        _run_here(folder, Choices(follow=False, model=tiny_models["qwen3"]))


def test_a_shard_that_does_not_fill_is_sealed_after_a_while(tmp_path: Path, tiny_models: dict[Kind, Path]) -> None:
    folder = create_run(tmp_path / "run", tiny_models["llama"])
    answer_samples(folder, _ids(10, 20))
    stop = threading.Event()
    thread = threading.Thread(target=_run_here, args=(folder, Choices(follow=True, seal_after_s=0.0), stop))
    thread.start()
    try:
        _until(lambda: _shards(folder) == 1)
    finally:
        stop.set()
        thread.join(DEADLINE_S)
    assert set(_stored(folder)) == {"s0", "s1"}


def test_a_full_disk_pauses_the_run_s_extraction_with_an_event_and_freed_space_resumes_it(
    tmp_path: Path, tiny_models: dict[Kind, Path]
) -> None:
    folder = create_run(tmp_path / "run", tiny_models["llama"])
    answer_samples(folder, _ids(10, 20))
    free = SimpleNamespace(f_bavail=0, f_frsize=1)
    space = DiskSpace(tmp_path, 0, lambda _: free)  # type: ignore[arg-type, return-value]
    stop = threading.Event()
    choices = Choices(follow=True, space=space, seal_after_s=0.0)
    thread = threading.Thread(target=_run_here, args=(folder, choices, stop))
    thread.start()
    try:
        _until(lambda: any(kind == "disk_low" for kind, _ in _events(folder)))
        assert _shards(folder) == 0
        free.f_bavail = 10**9
        _until(lambda: _shards(folder) == 1)
        _until(lambda: any(kind == "disk_freed" for kind, _ in _events(folder)))
    finally:
        stop.set()
        thread.join(DEADLINE_S)
    assert set(_stored(folder)) == {"s0", "s1"}


def test_an_extractor_that_must_end_while_the_disk_is_full_leaves_its_samples_waiting(
    tmp_path: Path, tiny_models: dict[Kind, Path]
) -> None:
    folder = create_run(tmp_path / "run", tiny_models["llama"])
    answer_samples(folder, _ids(10, 20))
    full = SimpleNamespace(f_bavail=0, f_frsize=1)
    space = DiskSpace(tmp_path, 0, lambda _: full)  # type: ignore[arg-type, return-value]
    stop = threading.Event()
    thread = threading.Thread(target=_run_here, args=(folder, Choices(follow=True, space=space), stop))
    thread.start()
    try:
        _until(lambda: _beat_rows(folder) == 30)
    finally:
        stop.set()
        thread.join(DEADLINE_S)
    assert not thread.is_alive()
    assert ("shard_given_up", "2 samples must be computed again.") in _events(folder)
    assert _run_here(folder).progress.samples == 2
    assert set(_stored(folder)) == {"s0", "s1"}


def test_an_extractor_whose_run_was_removed_ends_and_says_so(tmp_path: Path, tiny_models: dict[Kind, Path]) -> None:
    folder = create_run(tmp_path / "run", tiny_models["llama"])
    answer_samples(folder, _ids(12))

    def remove(_progress: Progress) -> None:
        folder.ledger_path.rename(tmp_path / "moved.sqlite")

    with pytest.raises(RunError, match=r"ledger.sqlite is gone, so there is nothing left to extract"):
        _run_here(folder, Choices(follow=True, step=remove))
