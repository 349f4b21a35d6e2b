"""Keep a run in its place from when it is made, or taken up, until its engine works.

A run that never asked anything may be made anew from another config. A command that is about to start such a run holds
a claim on it, and so does the engine that it starts; others that start the same run share it. Whoever makes the run
anew asks for a claim of its own alone.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from eagletui.core.errors import LockedError, RunError
from eagletui.ledger.locks import lies_at
from eagletui.runs.folder import RunFolder
from eagletui.runs.setting_aside import restore, set_aside


class Claim:
    """A shared lock on a file of the run, which moves with its folder and ends with this process."""

    def __init__(self) -> None:
        """Hold nothing yet."""
        self._descriptor: int | None = None

    def take(self, folder: RunFolder) -> None:
        """Claim the run that lies at a path, in place of one claimed before; wait while it is being replaced.

        Raises:
            RunError: there is none, or its folder cannot be written.
        """
        self.release()
        path = _path(folder)
        while True:
            try:
                descriptor = _lock(path, fcntl.LOCK_SH)
            except FileNotFoundError as error:
                restore(folder)
                if not (set_aside(folder).ledger_path.is_file() or folder.path.exists()):
                    raise _unwritable(path, error) from error
            except OSError as error:
                raise _unwritable(path, error) from error
            else:
                if lies_at(descriptor, path):
                    break
                os.close(descriptor)
        self._descriptor = descriptor

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What a process that is started inherits to hold the claim, too, until it ends."""
        return () if self._descriptor is None else (self._descriptor,)

    def release(self) -> None:
        """Give it up. May be called twice."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give it up."""
        self.release()


@contextlib.contextmanager
def unclaimed(folder: RunFolder) -> Iterator[None]:
    """Let nobody claim the run during the block.

    Raises:
        LockedError: somebody has claimed it.
        RunError: its folder cannot be written.
    """
    path = _path(folder)
    try:
        descriptor = _lock(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise LockedError(
            f"Another command is just starting run {folder.name}. Go on once it has, or use --name for a new run."
        ) from None
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        yield
    finally:
        os.close(descriptor)


def _path(folder: RunFolder) -> Path:
    return folder.path / "locks" / "start.lock"


def _lock(path: Path, operation: int) -> int:
    """Open the file that lies at the path now, lock it, and return its descriptor.

    Raises:
        OSError: it cannot be opened or locked; nothing stays open.
    """
    path.parent.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, operation)
    except BaseException:  # an interrupt of the wait too must not leave the file open: nobody holds it yet
        os.close(descriptor)
        raise
    return descriptor


def _unwritable(path: Path, error: OSError) -> RunError:
    return RunError(f"{path} cannot be written: {error.strerror}.")
