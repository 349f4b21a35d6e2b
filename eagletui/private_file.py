"""A small file for its owner's eyes alone, replaced in one step: a kill leaves the old one or the new one."""

import contextlib
import os
from pathlib import Path


def replace_private(path: Path, text: str) -> None:
    """Write a 0600 file, flushed to the disk before it takes the old one's place.

    Raises:
        OSError: it cannot be written; the old one stays.
    """
    temporary = path.with_name(f".{path.name}.new")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):  # the fault that is raised says more than one in tidying up
            temporary.unlink(missing_ok=True)
        raise
