"""Write files for their owner's eyes alone: whole and on the disk, or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from eagletui.files.flushing import flush_folder


class Replacement:
    """A file that takes its name once it is whole and on the disk; an exception leaves what was there."""

    def __init__(self, path: Path, *, alone: bool = False) -> None:
        """Take the final name; nothing is written yet.

        Args:
            path: the final name.
            alone: no other process writes this file now, so the temporary one is called alike each time, and kills
                leave no more than one behind.
        """
        self._path = path
        self._temporary = path.with_name(f".{path.name}.new" if alone else f".{path.name}.{os.getpid()}.tmp")
        self._stream: IO[bytes] | None = None

    def __enter__(self) -> IO[bytes]:
        """Open the temporary file."""
        self._stream = os.fdopen(os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")
        return self._stream

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        """Give it its name, or remove it after an exception."""
        assert self._stream is not None
        try:
            with self._stream:
                if kind is None:
                    self._stream.flush()
                    os.fsync(self._stream.fileno())
            if kind is None:
                os.replace(self._temporary, self._path)
                flush_folder(self._path.parent)
        finally:
            with suppress(OSError):  # the fault that is raised says more than one in tidying up
                self._temporary.unlink(missing_ok=True)


def replace_text(path: Path, text: str) -> None:
    """Replace a small file that no other process writes now.

    Raises:
        OSError: it cannot be written; the old one stays.
    """
    with Replacement(path, alone=True) as stream:
        stream.write(text.encode())


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
