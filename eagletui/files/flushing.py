"""Wait until what was written is on the disk."""

import os
from pathlib import Path


def flush_file(path: Path) -> None:
    """Wait until a file's content is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_folder(folder: Path) -> None:
    """Wait until a folder's names are on the disk."""
    flush_file(folder)
