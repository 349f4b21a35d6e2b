"""Grow files that are the truth about a folder: what is appended is there whole and on the disk, or not at all."""

import os
from contextlib import suppress
from pathlib import Path

from eagletui.files.flushing import flush_folder


def append_line(path: Path, line: str) -> None:
    """Append a line and wait until it is on the disk.

    Args:
        path: the list; made if needed.
        line: without its end.

    Raises:
        OSError: the disk is full or broken; the list is as before.
    """
    is_new = not path.exists()
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        append_whole(descriptor, f"{line}\n".encode(), os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)
    if is_new:
        flush_folder(path.parent)


def whole_lines(path: Path) -> list[bytes]:
    """Read the lines of such a list; a last one without an end was cut by a crash before it counted, and is left out.

    Returns:
        Nothing where there is no file.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    return content[: content.rfind(b"\n") + 1].splitlines()


def append_whole(descriptor: int, data: bytes, size_bytes: int) -> None:
    """Append to an open file and wait until it is on the disk.

    Args:
        descriptor: open for appending; nobody else writes the file.
        data: what to append.
        size_bytes: of the file.

    Raises:
        OSError: the disk is full or broken; the file is as before, so that nothing torn stands before later data.
    """
    left = memoryview(data)
    try:
        while left:  # a disk that fills up takes a part, and says so at the next one
            left = left[os.write(descriptor, left) :]
        os.fdatasync(descriptor)
    except OSError:
        with suppress(OSError):  # the fault that is raised says more
            os.ftruncate(descriptor, size_bytes)
        raise
