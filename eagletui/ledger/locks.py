"""One writer per role: an OS lock on a file that names its holder."""

import contextlib
import fcntl
import json
import os
import socket
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from eagletui.core.errors import LockedError, RunError
from eagletui.core.lifecycle import WorkerRole

_PROBE_S: Final = 0.25
"""A viewer that asks whether a role is alive holds the lock for microseconds; a starting worker outlasts that."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a role, as written in the lock file."""

    pid: int
    """Process id on `host`."""
    host: str
    """Host name."""
    started_at: float
    """Unix seconds."""
    job: str = ""
    """The command that does the role's writing in its place; empty for the worker itself."""


def lock_file(folder: str | os.PathLike[str], role: WorkerRole, slot: int = 0) -> Path:
    """Return the path of a role's lock in a run folder; slots above 0 tell receivers apart."""
    return Path(folder) / "locks" / (f"{role}.lock" if slot == 0 else f"{role}-{slot}.lock")


class RoleLock:
    """Hold a role of a run for as long as the `with` block, or the process, lives.

    The kernel drops the lock when the process dies, however it dies. The descriptor is closed on exec; a forked child
    that does not exec keeps it, so workers start theirs with spawn.
    """

    def __init__(self, folder: str | os.PathLike[str], role: WorkerRole, slot: int = 0, *, job: str = "") -> None:
        """Name the role to lock.

        Args:
            folder: the run folder.
            role: engine, extractor, provider or receiver.
            slot: which of several receivers.
            job: the command that takes the worker's place; empty for the worker itself.
        """
        self._job = job
        self.path = lock_file(folder, role, slot)
        self.role = role
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            LockedError: another process holds it; the message names it.
            RunError: the folder is not there or cannot be written.
        """
        try:
            self._acquire()
        except OSError as error:
            raise RunError(f"{self.path} cannot be written: {error.strerror}.") from error

    def _acquire(self) -> None:
        deadline = time.monotonic() + _PROBE_S
        self.path.parent.mkdir(mode=0o700, exist_ok=True)
        descriptor = self._lock(deadline)
        while not lies_at(descriptor, self.path):  # the run was replaced or moved while its lock was waited for
            os.close(descriptor)
            descriptor = self._lock(deadline)
        holder = Holder(os.getpid(), socket.gethostname(), time.time(), self._job)
        content = json.dumps(asdict(holder))
        try:
            os.pwrite(descriptor, content.encode(), 0)
            os.ftruncate(descriptor, len(content))
        except OSError:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def _lock(self, deadline: float) -> int:
        """Open the file that lies at the path now, lock it, and return its descriptor."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return descriptor
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    os.close(descriptor)
                    raise LockedError(self._refusal()) from None
                time.sleep(0.005)

    def release(self) -> None:
        """Give the lock back; the file stays, because removing it would let two processes hold two files."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None

    def is_in_place(self) -> bool:
        """Tell whether the lock is held on the file that lies at its path, and not on one that was moved or removed."""
        return self._descriptor is not None and lies_at(self._descriptor, self.path)

    def __enter__(self) -> Self:
        """Take the lock."""
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give it back."""
        self.release()

    def _refusal(self) -> str:
        found = read_holder(self.path)
        if found is None:
            who = "another process"
        else:
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(found.started_at))
            who = f"pid {found.pid} on {found.host} since {since}"
            if found.job:
                return f"`{found.job}` is at work: {who}. Wait until it ends, or stop it and call it again later."
        return f"The {self.role} of {self.path.parent.parent.name} is already running: {who}. Attach to it or stop it."


def lies_at(descriptor: int, path: Path) -> bool:
    """Tell whether an open file is the one that lies at a path now."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False


def read_holder(path: Path) -> Holder | None:
    """Read who last wrote the lock file; None when nobody did or it is being written."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        found = json.loads(path.read_text(encoding="utf-8"))
        return Holder(int(found["pid"]), str(found["host"]), float(found["started_at"]), str(found.get("job", "")))
    return None
