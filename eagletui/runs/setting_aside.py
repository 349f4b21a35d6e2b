"""Rename runs: a new one gets its name, an old one is set aside for it and gets its name back."""

from eagletui.core.errors import LockedError, RunError
from eagletui.ledger.locks import RoleLock
from eagletui.runs.folder import RunFolder


def publish(stage: RunFolder, final: RunFolder) -> None:
    """Give a run that was made in a stage its name.

    Raises:
        RunError: the place is taken or cannot be written.
    """
    try:
        stage.path.rename(final.path)
    except OSError as error:
        raise RunError(f"{final.path} cannot be made: {error.strerror}.") from error


def set_aside(final: RunFolder) -> RunFolder:
    """Return where a run lies while another one takes its place."""
    return RunFolder(final.path.with_name(f".{final.name}.old"))


def restore(final: RunFolder) -> None:
    """Give a run its name back if the process that was to replace it died before the new one had that name.

    Where that process still replaces it, it is given a quarter of a second.

    Raises:
        RunError: the place cannot be written.
    """
    old = set_aside(final)
    if final.path.exists() or not old.ledger_path.is_file():
        return
    try:
        with RoleLock(old.path, "engine"):
            if not final.path.exists():
                publish(old, final)
    except LockedError:
        return  # it is still being replaced, by a process that puts one of the two there
    except RunError:
        if not final.path.exists():
            raise
