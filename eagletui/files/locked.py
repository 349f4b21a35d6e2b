"""Look at a lock that another process may hold, without disturbing it."""

import fcntl
import os
from pathlib import Path


def held(path: Path) -> bool | None:
    """Tell whether a living process holds the lock of a file; None where there is no such file."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def is_locked(path: Path) -> bool:
    """Tell whether a living process holds the lock of a file."""
    return bool(held(path))
