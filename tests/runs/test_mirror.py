"""The copy of a run that is kept elsewhere."""

import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from eagletui.core.errors import InputError, RunError
from eagletui.embedded.server import ServeOptions
from eagletui.files.remote import Remote
from eagletui.ledger.backup import back_up
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.writer import LedgerWriter
from eagletui.runs.folder import RunFolder
from eagletui.runs.mirror import LedgerMirror, MirrorThread
from tests.engine.run_folder import EngineRun, make_run
from tests.provider_fixture import serve_in_thread

Said = list[tuple[str, str]]


def _hear(said: Said) -> Callable[[str, str, str], object]:
    return lambda level, _kind, message: said.append((level, message))


@pytest.fixture
def run(tmp_path: Path) -> EngineRun:
    made = make_run(tmp_path / "run", "http://127.0.0.1:9/api/v1", ["One?", "Two?"])
    made.folder.vocabulary_path.write_bytes(b"vocabulary")
    return made


def test_a_copy_is_one_moment_of_a_ledger_that_is_being_written(run: EngineRun, tmp_path: Path) -> None:
    copy = tmp_path / "copy.sqlite"
    with LedgerWriter(run.folder.ledger_path) as writer:
        writer.event("info", "ctl", "one", "committed")
        with writer.transaction():
            writer.event("info", "ctl", "two", "not committed yet")
            back_up(run.folder.ledger_path, copy)
        writer.event("info", "ctl", "three", "nothing waited")
    with LedgerReader(copy) as reader:
        assert [event.kind for event in reader.events()] == ["one"]
    assert copy.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir() if "tmp" in path.name] == []


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_a_run_goes_on_from_its_copy_as_if_nothing_had_happened(run: EngineRun, tmp_path: Path, prefix: str) -> None:
    mirror = LedgerMirror(run.folder, f"{prefix}{tmp_path}/far")
    assert mirror.copy()
    assert not mirror.copy(), "nothing was committed since"
    with LedgerWriter(run.folder.ledger_path) as writer:
        writer.set_cap(7)
    assert mirror.copy()
    mirror.close()
    shutil.rmtree(run.folder.path)
    back = RunFolder(tmp_path / "back")
    shutil.copytree(tmp_path / "far" / "run", back.path)
    with LedgerReader(back.ledger_path) as reader:
        assert (reader.run().cap_pico, reader.snapshot().states["queued"]) == (7, 2)
    assert back.vocabulary_path.read_bytes() == b"vocabulary"
    assert (back.tokenizer_dir / "tokenizer.json").is_file()
    assert not list((tmp_path / "far").rglob("*.tmp"))
    assert back.config_path.is_file()


def test_a_place_that_fails_is_told_once_and_its_return_too(run: EngineRun, tmp_path: Path) -> None:
    place = tmp_path / "far"
    place.write_text("in the way")
    mirror, said = LedgerMirror(run.folder, str(place)), Said()
    with pytest.raises(RunError, match="far/run/"):
        mirror.copy()
    ended = threading.Event()
    ended.set()
    mirror.keep(ended, _hear(said))
    mirror.keep(ended, _hear(said))
    place.unlink()
    mirror.keep(ended, _hear(said))
    mirror.close()
    assert [level for level, _ in said] == ["warn", "info"]
    assert "cannot be kept" in said[0][1]
    assert "is kept again" in said[1][1]


def test_only_the_worker_whose_turn_it_is_copies_and_the_end_is_copied_too(run: EngineRun, tmp_path: Path) -> None:
    said = Said()
    MirrorThread(run.folder, str(tmp_path / "not"), _hear(said), lambda: False).close()
    assert not (tmp_path / "not").exists()
    thread = MirrorThread(run.folder, str(tmp_path / "far"), _hear(said))
    with LedgerWriter(run.folder.ledger_path) as writer:
        writer.set_cap(9)
    thread.close()
    with closing(sqlite3.connect(tmp_path / "far" / "run" / "ledger.sqlite")) as copy:
        assert copy.execute("SELECT cap_pico FROM run").fetchone() == (9,)
    assert said == []


def test_a_url_without_a_file_system_is_refused_by_name(run: EngineRun) -> None:
    with pytest.raises(InputError, match=r"\[run\] mirror nowhere://x"):
        LedgerMirror(run.folder, "nowhere://x")


def test_an_engine_keeps_the_copy_to_its_end(tmp_path: Path) -> None:
    provider = serve_in_thread(ServeOptions(backend="replay", books=tmp_path / "books.jsonl", latency_s=0.0))
    run = make_run(tmp_path / "run", provider.api_url, ["One?", "Two?"], run={"mirror": str(tmp_path / "far")})
    run.folder.vocabulary_path.write_bytes(b"vocabulary")
    try:
        assert run.finish() == 0, run.log()
    finally:
        run.end()
        provider.stop()
    with LedgerReader(tmp_path / "far" / "run" / "ledger.sqlite") as copy, run.reader() as reader:
        assert copy.run().state == reader.run().state == "done"
        assert copy.books() == reader.books()
        assert copy.snapshot().answered == 2


def test_a_copy_on_a_disk_is_replaced_whole_or_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    far, file = Remote(f"file://{tmp_path}/far", "test"), tmp_path / "file"
    file.write_text("old")
    far.put(file, "a/b")
    file.write_text("new")

    def full(source: str, target: str) -> None:
        Path(target).write_text("ne")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(far.fs, "put_file", full)
    with pytest.raises(RunError, match=r"cannot be written \(a/b\): .*No space left"):
        far.put(file, "a/b")
    assert (tmp_path / "far" / "a" / "b").read_text() == "old"
