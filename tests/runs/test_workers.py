"""Workers of runs: started, seen alive, seen dead."""

import importlib.util
import os
import signal
import stat
from collections.abc import Callable, Iterator, Sequence

import pytest

from eagletui.core.errors import LockedError, RunError
from eagletui.ledger.writer import LedgerWriter
from eagletui.runs import workers
from eagletui.runs.claims import Claim, unclaimed
from eagletui.runs.folder import RunFolder
from eagletui.runs.workers import SpawnRole
from tests.runs.bare_run import bare_run

Spawn = Callable[..., int]


@pytest.fixture
def spawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spawn]:
    """Start test workers in place of the real ones, and end those that are left."""
    pids: list[int] = []

    def start(folder: RunFolder, role: SpawnRole, what: str, keeps: Sequence[int] = ()) -> int:
        pids.append(workers.spawn(folder, role, what, keeps=keeps))
        return pids[-1]

    for role in ("engine", "provider"):
        monkeypatch.setitem(workers.MODULES, role, "tests.run_worker")
    yield start
    for pid in pids:
        child = workers._children[pid].process
        child.kill()
        child.wait()


def test_a_worker_outlives_its_starter_and_counts_as_started_once_it_says_so(spawn: Spawn) -> None:
    folder = bare_run("demo")
    assert workers.workers(folder) == []
    assert workers.is_alive(folder, "engine") is None
    pid = spawn(folder, "engine", "work")
    workers.wait_ready(folder, "engine", pid=pid)
    workers.wait_ready(folder, "engine")
    worker = workers.is_alive(folder, "engine")
    assert worker is not None
    assert (worker.pid, worker.alive) == (pid, True)
    assert worker.heartbeat_age_s is not None
    assert [found.pid for found in workers.workers(folder)] == [pid]
    assert folder.log_path("engine").read_text() == "started as work, stdin gives '', session leader True\n"
    assert stat.S_IMODE(folder.log_path("engine").stat().st_mode) == 0o600


def test_a_worker_holds_the_claim_of_a_starter_that_dies_before_it_has_its_lock(spawn: Spawn) -> None:
    folder = bare_run("demo")
    with Claim() as claim:
        claim.take(folder)
        pid = spawn(folder, "engine", "hang", claim.descriptors)
    with pytest.raises(LockedError, match="is just starting run demo"), unclaimed(folder):
        pass
    os.kill(pid, signal.SIGKILL)
    workers._children[pid].process.wait()
    with unclaimed(folder):
        pass


def test_a_killed_worker_is_seen_dead_at_once_and_its_trace_stays(spawn: Spawn) -> None:
    folder = bare_run("demo")
    pid = spawn(folder, "engine", "work")
    workers.wait_ready(folder, "engine", pid=pid)
    os.kill(pid, signal.SIGKILL)
    workers._children[pid].process.wait()
    assert workers.is_alive(folder, "engine") is None
    (worker,) = workers.workers(folder)
    assert (worker.role, worker.pid, worker.alive) == ("engine", pid, False)


def test_a_worker_that_dies_while_starting_is_reported_with_the_end_of_its_own_log(spawn: Spawn) -> None:
    folder = bare_run("demo")
    folder.log_path("engine").write_text("an older run ended well\n")
    pid = spawn(folder, "engine", "die")
    with pytest.raises(RunError) as failed:
        workers.wait_ready(folder, "engine", pid=pid)
    assert "The engine of demo ended while starting." in str(failed.value)
    assert "the tokenizer folder is empty" in str(failed.value)
    assert "an older run" not in str(failed.value)


def test_a_second_worker_of_the_same_role_dies_naming_the_first(spawn: Spawn) -> None:
    folder = bare_run("demo")
    first = spawn(folder, "engine", "work")
    workers.wait_ready(folder, "engine", pid=first)
    second = spawn(folder, "engine", "work")
    with pytest.raises(RunError, match=f"already running: pid {first} on "):
        workers.wait_ready(folder, "engine", pid=second)
    alive = workers.is_alive(folder, "engine")
    assert alive is not None
    assert alive.pid == first


def test_a_worker_that_never_gets_ready_is_reported_when_the_time_is_up(spawn: Spawn) -> None:
    folder = bare_run("demo")
    pid = spawn(folder, "engine", "hang")
    with pytest.raises(RunError, match=r"The engine of demo was not ready within 0\.1 s\."):
        workers.wait_ready(folder, "engine", 0.1, pid=pid)


def test_the_heartbeat_of_an_earlier_process_with_the_same_pid_does_not_count(spawn: Spawn) -> None:
    folder = bare_run("demo")
    pid = spawn(folder, "engine", "hang")
    with LedgerWriter(folder.ledger_path, clock=lambda: 1_000.0) as writer:
        writer.beat("engine", ready=True)
        with writer.transaction() as connection:
            connection.execute("UPDATE heartbeats SET pid = ?", (pid,))
    with pytest.raises(RunError, match="not ready within"):
        workers.wait_ready(folder, "engine", 0.1, pid=pid)


def test_a_provider_is_ready_when_its_address_is_there_and_alive_by_its_lock(spawn: Spawn) -> None:
    folder = bare_run("demo")
    pid = spawn(folder, "provider", "provide")
    workers.wait_ready(folder, "provider", pid=pid)
    workers.wait_ready(folder, "provider")
    os.kill(pid, signal.SIGKILL)
    workers._children[pid].process.wait()
    with pytest.raises(RunError, match="was not ready"):
        workers.wait_ready(folder, "provider", 0.05)


def test_a_lock_without_a_heartbeat_still_shows_who_lives(spawn: Spawn) -> None:
    folder = bare_run("demo")
    pid = spawn(folder, "provider", "provide")
    workers.wait_ready(folder, "provider", pid=pid)
    child = workers._children[pid].process
    while (worker := workers.is_alive(folder, "provider")) is None:
        assert child.poll() is None
    assert (worker.pid, worker.heartbeat_age_s) == (pid, None)


@pytest.mark.parametrize("role", ["engine", "extractor", "provider"])
def test_every_role_names_a_module_that_python_can_start(role: SpawnRole) -> None:
    assert importlib.util.find_spec(f"{workers.MODULES[role]}.__main__") is not None
