"""Run folders and their workers: found by name, started, seen alive, seen dead."""

import errno
import importlib.util
import os
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eagletui import runs
from eagletui.core.errors import RunError
from eagletui.ledger.create import create_ledger
from eagletui.ledger.locks import RoleLock
from eagletui.ledger.writer import LedgerWriter
from eagletui.runs import RunFolder, SpawnRole


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EAGLETUI_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


Spawn = Callable[..., int]


@pytest.fixture
def spawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spawn]:
    """Start test workers in place of the real ones, and end those that are left."""
    pids: list[int] = []

    def start(folder: RunFolder, role: SpawnRole, what: str) -> int:
        pids.append(runs.spawn(folder, role, what))
        return pids[-1]

    for role in ("engine", "provider"):
        monkeypatch.setitem(runs.MODULES, role, "tests.run_worker")
    yield start
    for pid in pids:
        child = runs._children[pid].process
        child.kill()
        child.wait()


def _make(name: str) -> RunFolder:
    folder = runs.create_folder(name)
    create_ledger(
        folder.ledger_path,
        name=name,
        config_json="{}",
        model_id="m",
        format="smollm2",
        stop_at_pico=1,
        cap_pico=1,
        max_in_flight=1,
    )
    return folder


def test_a_new_folder_is_private_and_holds_the_places_of_a_run(root: Path) -> None:
    folder = runs.create_folder("b3-magicoder")
    assert folder.path == root / "b3-magicoder"
    for place in (folder.path, folder.log_path("engine").parent, folder.features_dir, folder.provider_dir):
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert runs.create_folder("b3-magicoder") == folder


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../a", "/etc", "-rf", "a\nb", "a\x1b[31m"])
def test_a_name_that_is_no_plain_folder_name_is_refused(root: Path, name: str) -> None:
    with pytest.raises(RunError, match="cannot name a run"):
        runs.create_folder(name)
    assert not root.exists()


def test_a_place_that_cannot_be_written_is_named(root: Path) -> None:
    root.write_text("a file where the folder should be")
    with pytest.raises(RunError, match=r"runs/a cannot be made: "):
        runs.create_folder("a")


def test_a_run_is_found_by_name_folder_and_ledger_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = _make("demo")
    monkeypatch.chdir(tmp_path)
    for given in ("demo", str(folder.path), "runs/demo", "runs/demo/", str(folder.ledger_path)):
        assert runs.find(given).path.resolve() == folder.path.resolve()
        assert runs.find(given).name == "demo"
    monkeypatch.chdir(folder.path)
    for given in (".", "ledger.sqlite"):
        assert runs.find(given).name == "demo"


def test_a_name_inside_the_runs_wins_over_a_folder_of_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _make("demo")
    (tmp_path / "demo").mkdir()
    monkeypatch.chdir(tmp_path)
    assert runs.find("demo") == folder


def test_a_path_is_the_folder_it_leads_to_and_not_one_below_the_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _make("demo")
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "demo").mkdir(parents=True)
    (elsewhere / "demo" / "ledger.sqlite").touch()
    monkeypatch.chdir(elsewhere)
    assert runs.find("./demo").path == (elsewhere / "demo").resolve()


def test_whoever_comes_second_to_make_a_run_neither_makes_nor_removes_it(root: Path) -> None:
    final = runs.RunFolder(root / "a")
    with runs.staged("a") as stage:
        with pytest.raises(runs.BeingMadeError, match="is being made by another process"), runs.staged("a"):
            pass
        stage.ledger_path.touch()
        runs.publish(stage, final)
        with pytest.raises(runs.BeingMadeError, match="which has ended"), runs.staged("a"):
            pass
    assert [path.name for path in root.iterdir()] == ["a"]
    assert runs.await_made("a") == final


def test_a_disk_that_fills_while_a_run_is_made_is_named_and_nothing_of_the_run_stays(root: Path) -> None:
    full = r"Run a cannot be made: .*/key\.mark: No space left on device\."
    with pytest.raises(RunError, match=full), runs.staged("a") as stage:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(stage.path / "key.mark"))
    assert list(root.iterdir()) == []


def _keep(_old: RunFolder) -> None:
    raise RunError("It was used.")


def test_a_run_stays_if_it_was_used_while_the_one_for_its_place_was_made(root: Path) -> None:
    final = _make("a")
    with runs.staged("a", replaces=True) as stage:
        stage.ledger_path.touch()
        with pytest.raises(RunError, match=r"It was used\."):
            runs.replace(stage, final, _keep)
    assert [path.name for path in root.iterdir()] == ["a"]
    assert final.ledger_path.stat().st_size > 0


def test_a_run_gets_its_name_back_if_the_one_for_its_place_cannot_have_it(root: Path) -> None:
    final = _make("a")
    with pytest.raises(RunError, match=r"runs/a cannot be made: No such file or directory\."):
        runs.replace(RunFolder(root / "gone"), final, lambda _: None)
    assert [path.name for path in root.iterdir()] == ["a"]
    assert final.ledger_path.is_file()


def test_a_run_whose_replacing_was_cut_short_is_put_back_unless_it_still_goes_on(root: Path) -> None:
    final = _make("a")
    final.path.rename(root / ".a.old")
    with RoleLock(root / ".a.old", "engine"):
        runs.restore("a")
        assert not final.path.exists()
    assert runs.find("a") == final
    assert [path.name for path in root.iterdir()] == ["a"]


def test_an_unknown_run_is_answered_with_near_names() -> None:
    with pytest.raises(RunError, match=r"No run named 'demo'\. There are no runs in .*EAGLETUI_RUNS"):
        runs.find("demo")
    _make("demo-2")
    _make("other")
    with pytest.raises(RunError, match=r"No run named 'dmo-2'\. Did you mean demo-2\?"):
        runs.find("dmo-2")
    with pytest.raises(RunError, match=r"There are: demo-2, other\."):
        runs.find("zzzzzz")
    with pytest.raises(RunError):
        runs.find("")


def test_runs_are_listed_by_name_and_folders_without_a_ledger_are_not(root: Path) -> None:
    assert runs.list_runs() == []
    for name in ("b", "a"):
        _make(name)
    runs.create_folder("half-made")
    (root / "notes.txt").write_text("not a run")
    assert [folder.name for folder in runs.list_runs()] == ["a", "b"]


def test_a_worker_outlives_its_starter_and_counts_as_started_once_it_says_so(spawn: Spawn) -> None:
    folder = _make("demo")
    assert runs.workers(folder) == []
    assert runs.is_alive(folder, "engine") is None
    pid = spawn(folder, "engine", "work")
    runs.wait_ready(folder, "engine", pid=pid)
    runs.wait_ready(folder, "engine")
    worker = runs.is_alive(folder, "engine")
    assert worker is not None
    assert (worker.pid, worker.alive) == (pid, True)
    assert worker.heartbeat_age_s is not None
    assert [found.pid for found in runs.workers(folder)] == [pid]
    assert folder.log_path("engine").read_text() == "started as work, stdin gives '', session leader True\n"
    assert stat.S_IMODE(folder.log_path("engine").stat().st_mode) == 0o600


def test_a_killed_worker_is_seen_dead_at_once_and_its_trace_stays(spawn: Spawn) -> None:
    folder = _make("demo")
    pid = spawn(folder, "engine", "work")
    runs.wait_ready(folder, "engine", pid=pid)
    os.kill(pid, signal.SIGKILL)
    runs._children[pid].process.wait()
    assert runs.is_alive(folder, "engine") is None
    (worker,) = runs.workers(folder)
    assert (worker.role, worker.pid, worker.alive) == ("engine", pid, False)


def test_a_worker_that_dies_while_starting_is_reported_with_the_end_of_its_own_log(spawn: Spawn) -> None:
    folder = _make("demo")
    folder.log_path("engine").write_text("an older run ended well\n")
    pid = spawn(folder, "engine", "die")
    with pytest.raises(RunError) as failed:
        runs.wait_ready(folder, "engine", pid=pid)
    assert "The engine of demo ended while starting." in str(failed.value)
    assert "the tokenizer folder is empty" in str(failed.value)
    assert "an older run" not in str(failed.value)


def test_a_second_worker_of_the_same_role_dies_naming_the_first(spawn: Spawn) -> None:
    folder = _make("demo")
    first = spawn(folder, "engine", "work")
    runs.wait_ready(folder, "engine", pid=first)
    second = spawn(folder, "engine", "work")
    with pytest.raises(RunError, match=f"already running: pid {first} on "):
        runs.wait_ready(folder, "engine", pid=second)
    alive = runs.is_alive(folder, "engine")
    assert alive is not None
    assert alive.pid == first


def test_a_worker_that_never_gets_ready_is_reported_when_the_time_is_up(spawn: Spawn) -> None:
    folder = _make("demo")
    pid = spawn(folder, "engine", "hang")
    with pytest.raises(RunError, match=r"The engine of demo was not ready within 0\.1 s\."):
        runs.wait_ready(folder, "engine", 0.1, pid=pid)


def test_the_heartbeat_of_an_earlier_process_with_the_same_pid_does_not_count(spawn: Spawn) -> None:
    folder = _make("demo")
    pid = spawn(folder, "engine", "hang")
    with LedgerWriter(folder.ledger_path, clock=lambda: 1_000.0) as writer:
        writer.beat("engine", ready=True)
        with writer.transaction() as connection:
            connection.execute("UPDATE heartbeats SET pid = ?", (pid,))
    with pytest.raises(RunError, match="not ready within"):
        runs.wait_ready(folder, "engine", 0.1, pid=pid)


def test_a_provider_is_ready_when_its_address_is_there_and_alive_by_its_lock(spawn: Spawn) -> None:
    folder = _make("demo")
    pid = spawn(folder, "provider", "provide")
    runs.wait_ready(folder, "provider", pid=pid)
    runs.wait_ready(folder, "provider")
    os.kill(pid, signal.SIGKILL)
    runs._children[pid].process.wait()
    with pytest.raises(RunError, match="was not ready"):
        runs.wait_ready(folder, "provider", 0.05)


def test_a_lock_without_a_heartbeat_still_shows_who_lives(spawn: Spawn) -> None:
    folder = _make("demo")
    pid = spawn(folder, "provider", "provide")
    runs.wait_ready(folder, "provider", pid=pid)
    child = runs._children[pid].process
    while (worker := runs.is_alive(folder, "provider")) is None:
        assert child.poll() is None
    assert (worker.pid, worker.heartbeat_age_s) == (pid, None)


@pytest.mark.parametrize("role", ["engine", "extractor", "provider"])
def test_every_role_names_a_module_that_python_can_start(role: SpawnRole) -> None:
    assert importlib.util.find_spec(f"{runs.MODULES[role]}.__main__") is not None
