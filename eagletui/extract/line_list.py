"""Lists that grow by a line at a time and are the truth about a folder: a line is there whole, or not at all."""

import os
from contextlib import suppress
from pathlib import Path

from eagletui.extract.shards import flush_folder


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
    with open(descriptor, "wb", buffering=0) as stream:
        size = os.fstat(stream.fileno()).st_size
        left = memoryview(f"{line}\n".encode())
        try:
            while left:  # a disk that fills up takes a part, and says so at the next one
                left = left[stream.write(left) :]
            os.fsync(stream.fileno())
        except OSError:
            with suppress(OSError):  # the fault that is raised says more
                stream.truncate(size)
            raise
    if is_new:
        flush_folder(path.parent)
