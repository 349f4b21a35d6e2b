"""Write files of an export: whole and on the disk, or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


class Replacement:
    """A file that takes its name once it is whole and on the disk; an exception leaves what was there."""

    def __init__(self, path: Path) -> None:
        """Take the final name; nothing is written yet."""
        self._path = path
        self._temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        self._stream: IO[bytes] | None = None

    def __enter__(self) -> IO[bytes]:
        """Open the temporary file."""
        self._stream = os.fdopen(os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")
        return self._stream

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        """Give it its name, or remove it after an exception."""
        assert self._stream is not None
        try:
            if kind is None:
                self._stream.flush()
                os.fsync(self._stream.fileno())
            self._stream.close()
            if kind is None:
                os.replace(self._temporary, self._path)
                flush_folder(self._path.parent)
        finally:
            with suppress(FileNotFoundError):
                self._temporary.unlink()


@contextmanager
def made(folder: Path) -> Iterator[None]:
    """Make a folder to write into; what was made for it goes again where nothing came to lie in it.

    Raises:
        OSError: it cannot be made.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        yield
    finally:
        for path in missing:
            with suppress(OSError):  # something lies in it
                path.rmdir()


def flush_folder(folder: Path) -> None:
    """Wait until a folder's names are on the disk."""
    flush_file(folder)


def flush_file(path: Path) -> None:
    """Wait until a file's content is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
