"""The workers of a run: start them, and see from outside which live."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from eagletui.core.errors import LedgerError, RunError
from eagletui.core.lifecycle import WorkerRole
from eagletui.files.locked import is_locked
from eagletui.ledger.locks import Holder, read_holder
from eagletui.ledger.reader import LedgerReader
from eagletui.runs.folder import RunFolder

SpawnRole = Literal["engine", "extractor", "provider", "watcher"]

MODULES: Final[dict[SpawnRole, str]] = {
    "engine": "eagletui.engine",
    "extractor": "eagletui.extract",
    "provider": "eagletui.embedded",
    "watcher": "eagletui.notify",
}
"""What `python -m` starts for a role."""

_POLL_S: Final = 0.02
_LOG_TAIL_LINES: Final = 15


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A worker of a run, seen from outside."""

    role: WorkerRole
    pid: int
    alive: bool
    """Its lock is held."""
    heartbeat_age_s: float | None
    """None for a worker without heartbeats (the embedded provider)."""


def spawn(folder: RunFolder, role: SpawnRole, *extra_args: str, keeps: Sequence[int] = ()) -> int:
    """Start a worker that outlives this process, and return its pid; `wait_ready` tells when it works.

    The worker gets its own session, no stdin, and its log file for stdout and stderr.

    Args:
        folder: the run.
        role: which worker.
        extra_args: passed on after the folder.
        keeps: descriptors that stay open in it.
    """
    log = folder.log_path(role)
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    log_start, spawned_at = os.fstat(descriptor).st_size, time.time()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", MODULES[role], str(folder.path.resolve()), *extra_args],
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
            pass_fds=keeps,
        )
    finally:
        os.close(descriptor)
    _children[process.pid] = _Child(process, spawned_at, log_start)
    return process.pid


@dataclass(frozen=True, slots=True)
class _Child:
    """A worker started here: kept so that a dead one is reaped and its exit code known."""

    process: "subprocess.Popen[bytes]"
    spawned_at: float
    """Unix seconds; an older heartbeat of the same pid is another process's."""
    log_start: int
    """Where its part of the log begins, in bytes."""


_children: Final[dict[int, _Child]] = {}
"""By pid."""


def wait_ready(
    folder: RunFolder,
    role: SpawnRole,
    timeout_s: float = 30.0,
    *,
    pid: int | None = None,
    give_up: Callable[[], bool] = lambda: False,
) -> None:
    """Wait until a worker has said that it can work.

    Args:
        folder: the run.
        role: which worker.
        timeout_s: how long to wait.
        pid: the worker's, from `spawn`; None for whichever holds the role.
        give_up: asked again and again; True ends the wait without an error.

    Raises:
        RunError: it died, or was not ready in time; the message quotes the end of its log.
    """
    deadline = time.monotonic() + timeout_s
    is_ready: Callable[[], bool] = _provider_ready(folder, pid) if role == "provider" else _beats(folder, role, pid)
    while not is_ready():
        if give_up():
            return
        if pid is not None and not _is_running(pid):
            # It may have become ready and ended between the two looks.
            if is_ready():
                return
            raise RunError(f"The {role} of {folder.name} ended while starting.{_log_tail(folder, role, pid)}")
        if time.monotonic() >= deadline:
            raise RunError(
                f"The {role} of {folder.name} was not ready within {timeout_s:g} s.{_log_tail(folder, role, pid)}"
            )
        time.sleep(_POLL_S)  # the worker is a process of its own, and may be one that nobody here started


def workers(folder: RunFolder) -> list[WorkerStatus]:
    """List the workers that live or left a trace, engine first."""
    _reap()
    found: dict[WorkerRole, WorkerStatus] = {}
    receivers: list[WorkerStatus] = []
    try:
        with LedgerReader(folder.ledger_path) as reader:
            for figures in reader.workers():
                status = WorkerStatus(figures.role, figures.pid, figures.alive, figures.heartbeat_age_s)
                if figures.role == "receiver":
                    receivers.append(status)
                else:
                    found[figures.role] = status
    except LedgerError:
        # A folder without a readable ledger can still have workers that hold locks.
        found.clear()
    roles: tuple[WorkerRole, ...] = ("engine", "extractor", "provider", "watcher")
    for role in roles:
        if is_locked(folder.lock_path(role)) and (role not in found or not found[role].alive):
            holder = read_holder(folder.lock_path(role))
            if holder is not None and not holder.job:
                found[role] = WorkerStatus(role, holder.pid, True, None)
    others = [found[role] for role in roles if role in found]
    engines = [worker for worker in others if worker.role == "engine"]
    return [*engines, *receivers, *others[len(engines) :]]


def job_at_work(folder: RunFolder) -> str | None:
    """Name the command that has the engine's place, such as a rebuild, as a sentence; None without one."""
    path = folder.lock_path("engine")
    holder = read_holder(path)
    if holder is None or not holder.job or not is_locked(path):
        return None
    return f"`{holder.job}` is at work on it (pid {holder.pid}): wait until it ends, or stop it."


def is_alive(folder: RunFolder, role: WorkerRole) -> WorkerStatus | None:
    """Return a worker's status if it lives, else None."""
    return next((worker for worker in workers(folder) if worker.role == role and worker.alive), None)


def _reap() -> None:
    """Take the exit codes of workers that were started here and have ended, so that none stays a zombie."""
    for child in _children.values():
        child.process.poll()


def _beats(folder: RunFolder, role: SpawnRole, pid: int | None) -> Callable[[], bool]:
    def is_ready() -> bool:
        try:
            with LedgerReader(folder.ledger_path) as reader:
                beat = next((beat for beat in reader.heartbeats() if beat.role == role and beat.slot == 0), None)
        except LedgerError:
            return False
        if beat is None or beat.ready_at is None:
            return False
        if pid is None:
            return beat.stopped_at is None and _holds(folder, beat.pid, role)
        child = _children.get(pid)
        return beat.pid == pid and (child is None or beat.ready_at >= child.spawned_at)

    return is_ready


def _holds(folder: RunFolder, pid: int, role: WorkerRole) -> bool:
    holder: Holder | None = read_holder(folder.lock_path(role))
    return is_locked(folder.lock_path(role)) and holder is not None and holder.pid == pid


def _provider_ready(folder: RunFolder, pid: int | None) -> Callable[[], bool]:
    address = folder.provider_dir / "address.json"

    def is_ready() -> bool:
        try:
            found = int(json.loads(address.read_text(encoding="utf-8"))["pid"])
        except (OSError, ValueError, KeyError, TypeError):
            return False
        return found == pid if pid is not None else _is_running(found)

    return is_ready


def _is_running(pid: int) -> bool:
    child = _children.get(pid)
    if child is not None:
        return child.process.poll() is None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _log_tail(folder: RunFolder, role: WorkerRole, pid: int | None) -> str:
    child = None if pid is None else _children.get(pid)
    try:
        written = folder.log_path(role).read_bytes()[0 if child is None else child.log_start :]
    except FileNotFoundError:
        written = b""
    lines = written.decode("utf-8", "replace").splitlines()[-_LOG_TAIL_LINES:]
    if not lines:
        return f" Its log {folder.log_path(role)} is empty."
    return f" The end of {folder.log_path(role)}:\n" + "\n".join(f"  {line}" for line in lines)
