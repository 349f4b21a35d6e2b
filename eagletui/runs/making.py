"""Make a run beside the others and give it its name at the end, also in the place of an older one."""

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Final

from eagletui.core.errors import LockedError, RunError
from eagletui.files.locked import is_locked
from eagletui.ledger.locks import RoleLock, lock_file
from eagletui.runs.claims import unclaimed
from eagletui.runs.folder import RunFolder, create_folder, runs_root
from eagletui.runs.setting_aside import publish, set_aside

_POLL_S: Final = 0.02


class BeingMadeError(RunError):
    """Another process is making the run, or has just made it."""


@contextlib.contextmanager
def staged(name: str, *, replaces: bool = False) -> Iterator[RunFolder]:
    """Give a folder beside the runs in which one is made; it is removed if it still stands at the end.

    Args:
        name: of the run.
        replaces: there is a run of that name, which the new one is to replace.

    Raises:
        BeingMadeError: another process is making that run, or has made it meanwhile.
        RunError: the place cannot be written.
    """
    stage = create_folder(f".{name}.new")
    lock = RoleLock(stage.path, "engine")
    try:
        lock.acquire()
    except LockedError as error:
        raise BeingMadeError(f"Run {name} is being made by another process. {error}") from error
    except RunError as error:
        if stage.path.exists():
            raise
        raise BeingMadeError(f"Run {name} was being made by another process, which has ended.") from error
    try:
        if not lock.is_in_place() or (RunFolder(runs_root() / name).ledger_path.is_file() and not replaces):
            raise BeingMadeError(f"Run {name} was being made by another process, which has ended.")
        for leftover in stage.path.iterdir():
            if leftover.is_dir() and leftover != lock.path.parent:
                shutil.rmtree(leftover)
            elif not leftover.is_dir():
                leftover.unlink()
        yield create_folder(stage.name)
    except OSError as error:
        place = error.filename2 or error.filename or stage.path
        raise RunError(f"Run {name} cannot be made: {place}: {error.strerror}.") from error
    finally:
        if lock.is_in_place():
            shutil.rmtree(stage.path, ignore_errors=True)
        lock.release()


def await_made(name: str) -> RunFolder | None:
    """Wait until no other process makes a run of that name; return the run if there is one then."""
    while is_locked(lock_file(runs_root() / f".{name}.new", "engine")):
        time.sleep(_POLL_S)  # a lock without holding it can only be looked at
    folder = RunFolder(runs_root() / name)
    return folder if folder.ledger_path.is_file() else None


def replace(stage: RunFolder, final: RunFolder, check: Callable[[RunFolder], None]) -> None:
    """Give a run that was made in a stage the name of one that is removed; on any error the old one stays.

    Args:
        stage: the new run.
        final: the old one, in whose place the new one comes.
        check: raises where the old one must stay; it is called while nobody can start it.

    Raises:
        LockedError: an engine works on the old one, or a command is just starting it.
        RunError: the place cannot be written.
    """
    old = set_aside(final)
    with RoleLock(final.path, "engine"), unclaimed(final):
        check(final)
        shutil.rmtree(old.path, ignore_errors=True)
        publish(final, old)
        try:
            publish(stage, final)
        finally:
            if not final.ledger_path.is_file():
                publish(old, final)
        shutil.rmtree(old.path, ignore_errors=True)
