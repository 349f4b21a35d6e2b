"""One worker per role, by an OS lock that names its holder."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Barrier, Thread

import pytest

from eagletui.core.errors import LockedError, RunError
from eagletui.files.locked import is_locked
from eagletui.ledger.locks import RoleLock, lock_file, read_holder

HOLD = """
import sys
from eagletui.ledger.locks import RoleLock
with RoleLock(sys.argv[1], "engine"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_second_worker_is_refused_and_told_who_the_first_is(tmp_path: Path, holder: "subprocess.Popen[str]") -> None:
    with pytest.raises(LockedError, match=rf"engine of {tmp_path.name} is already running: pid {holder.pid} on "):
        RoleLock(tmp_path, "engine").acquire()


def test_other_roles_and_other_runs_are_free(tmp_path: Path, holder: "subprocess.Popen[str]") -> None:
    (tmp_path / "other").mkdir()
    with RoleLock(tmp_path, "extractor"), RoleLock(tmp_path / "other", "engine"), RoleLock(tmp_path, "receiver", 2):
        assert is_locked(lock_file(tmp_path, "extractor"))
        assert is_locked(lock_file(tmp_path, "receiver", 2))
        assert not is_locked(lock_file(tmp_path, "receiver", 1))


def test_a_killed_worker_gives_its_role_back(tmp_path: Path, holder: "subprocess.Popen[str]") -> None:
    assert is_locked(lock_file(tmp_path, "engine"))
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert not is_locked(lock_file(tmp_path, "engine"))
    with RoleLock(tmp_path, "engine"):
        found = read_holder(lock_file(tmp_path, "engine"))
        assert found is not None
        assert found.pid == os.getpid()
    assert not is_locked(lock_file(tmp_path, "engine"))
    assert read_holder(lock_file(tmp_path, "engine")) is None


def test_a_lock_file_is_private(tmp_path: Path) -> None:
    with RoleLock(tmp_path, "engine"):
        assert lock_file(tmp_path, "engine").stat().st_mode & 0o777 == 0o600
        assert lock_file(tmp_path, "engine").parent.stat().st_mode & 0o777 == 0o700


def test_looking_whether_a_role_is_alive_never_keeps_a_worker_from_starting(tmp_path: Path) -> None:
    lock = RoleLock(tmp_path, "engine")
    lock.acquire()
    lock.release()
    rounds, start = 300, Barrier(2)

    def look() -> None:
        start.wait()
        for _ in range(rounds * 20):
            is_locked(lock.path)

    viewer = Thread(target=look)
    viewer.start()
    start.wait()
    for _ in range(rounds):
        with lock:
            pass
    viewer.join()


def test_a_role_that_nobody_ever_held_is_not_locked(tmp_path: Path) -> None:
    assert not is_locked(lock_file(tmp_path, "engine"))
    assert read_holder(lock_file(tmp_path, "engine")) is None


def test_a_lock_whose_folder_was_moved_while_it_was_waited_for_is_not_in_place(tmp_path: Path) -> None:
    (tmp_path / "stage").mkdir()
    lock = RoleLock(tmp_path / "stage", "engine")
    assert not lock.is_in_place()
    with lock:
        assert lock.is_in_place()
        (tmp_path / "stage").rename(tmp_path / "run")
        assert not lock.is_in_place()
        (tmp_path / "stage" / "locks").mkdir(parents=True)
        lock.path.touch()
        assert not lock.is_in_place(), "another file lies there"


def test_whoever_waited_for_the_lock_of_a_run_that_was_replaced_holds_the_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    for path in (run, tmp_path / "new"):
        path.mkdir()
        with RoleLock(path, "engine"):
            pass
    flock, replaced = fcntl.flock, False

    def granted_late(descriptor: int, operation: int) -> None:
        nonlocal replaced
        if not replaced:
            replaced = True
            shutil.rmtree(run)
            (tmp_path / "new").rename(run)
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", granted_late)
    with RoleLock(run, "engine") as lock:
        assert lock.is_in_place()
        assert is_locked(lock_file(run, "engine"))
        with pytest.raises(LockedError):
            RoleLock(run, "engine").acquire()


def test_a_lock_never_makes_the_folder_of_a_run_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"run/locks/engine\.lock cannot be written: No such file or directory\."):
        RoleLock(tmp_path / "run", "engine").acquire()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "run").touch()
    with pytest.raises(RunError, match=r"run/locks/engine\.lock cannot be written: Not a directory\."):
        RoleLock(tmp_path / "run", "engine").acquire()
