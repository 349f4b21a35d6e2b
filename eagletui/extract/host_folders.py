"""Folders of this machine in which workers of a cluster let shards grow that belong elsewhere.

A worker that is killed leaves its folder behind, up to two shards in size. So each is locked by its owner for as long
as that lives, and the next worker of the same run on this machine removes those that nobody holds.
"""

import errno
import fcntl
import hashlib
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from eagletui.extract.space import DiskSpace, size_text

_PREFIX: Final = "eagletui-seal-"


@dataclass(frozen=True, slots=True)
class HostFolders:
    """The folders of one run in this machine's place for temporary files."""

    prefix: str
    """Of their names."""

    @classmethod
    def of(cls, features: Path, storage: str | None) -> "HostFolders":
        """Name the run by where its features go, which is the same on every machine.

        Args:
            features: the run's features folder.
            storage: URL below which its shards go.
        """
        name = hashlib.sha256(f"{features}\0{storage}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return cls(f"{_PREFIX}{name}-")

    def sweep(self) -> int:
        """Remove the folders whose owners are gone, and return how many there were."""
        removed = 0
        for path in sorted(Path(tempfile.gettempdir()).glob(f"{self.prefix}*")):
            with suppress(OSError):  # it belongs to another user, or somebody else removes it
                descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path)
                    removed += 1
                finally:
                    os.close(descriptor)
        return removed

    def require_room(self, needed_bytes: int) -> None:
        """Look for room before anything is computed that would need it.

        Raises:
            OSError: this machine's place for temporary files has less than `needed_bytes` free.
        """
        place = Path(tempfile.gettempdir())
        free = DiskSpace(place, low_water_bytes=0).free_bytes()
        if free < needed_bytes:
            what = f"the next shard needs {size_text(needed_bytes)} and {size_text(free)} are free"
            raise OSError(errno.ENOSPC, f"{socket.gethostname()}: {what}", str(place))

    @contextmanager
    def new(self) -> Iterator[Path]:
        """Make a folder that is removed at the end of the block, or by `sweep` once this process is gone.

        Raises:
            OSError: the disk is full or broken.
        """
        path, descriptor = self._locked()
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)
            os.close(descriptor)

    def _locked(self) -> tuple[Path, int]:
        while True:
            path = Path(tempfile.mkdtemp(prefix=self.prefix))
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            except FileNotFoundError:  # swept before it was locked
                continue
            with suppress(OSError):  # a file system without locks: then nobody can sweep there either
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if path.exists():
                return path, descriptor
            os.close(descriptor)
