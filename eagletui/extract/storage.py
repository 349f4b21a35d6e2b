"""Where shards lie: the features folder, or below a URL of any file system that fsspec knows (s3, gs, file).

An object store has no rename, so a shard is published under a key that no other attempt uses, and counts only once a
ledger row names that key. What no row names is removed.
"""

import secrets
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Final, Protocol

import xxhash

from eagletui.core.features import shard_number
from eagletui.extract.host_folders import HostFolders
from eagletui.extract.shards import hash_file, remove_orphans, shard_files
from eagletui.files.remote import Remote

UNSENT: Final = "unsent"
"""In a features folder: shards for a storage elsewhere, until they are sent."""

_CHUNK_BYTES: Final = 16 * 1024 * 1024


class Storage(Protocol):
    """Holds the shards of one features folder; paths are relative to it, such as `shards/000007-1f.safetensors`."""

    @property
    def url(self) -> str | None:
        """As the manifest states it; None for the features folder itself."""

    @property
    def seals_into(self) -> Path | None:
        """The folder in which a sealed shard is published already; None where it has to be sent."""

    def publish(self, file: Path, path: str) -> None:
        """Send a sealed shard to its place; it is there whole or not at all.

        Raises:
            RunError: the storage refused it.
        """

    def size(self, path: str) -> int | None:
        """Bytes of a shard; None if it is not there."""

    def digest(self, path: str) -> str:
        """Read a shard back and return its xxh3_128, hex."""

    def paths(self) -> set[str]:
        """Every shard that is there, listed anywhere or not."""

    def remove_orphans(self, known: Iterable[str]) -> tuple[str, ...]:
        """Remove what no ledger row names, and return its paths."""

    @contextmanager
    def fetched(self, path: str) -> Iterator[Path]:
        """Give a shard as a file on a local disk for the time of the block."""


def open_storage(features: Path, url: str | None) -> Storage:
    """Open the storage of a features folder.

    Args:
        features: the folder with the manifest.
        url: from the manifest or the config; None for the folder itself.

    Raises:
        InputError: the URL names a protocol that is unknown or not installed.
        RunError: the place cannot be reached.
    """
    return FolderStorage(features) if url is None else UrlStorage(url)


@contextmanager
def growing_in(storage: Storage, features: Path) -> Iterator[Path]:
    """Give the folder in which shards for a storage grow; one that is not the storage's own is empty and is removed.

    Args:
        storage: where they go.
        features: the features folder, whose extractor lock the caller holds.
    """
    if storage.seals_into is not None:
        yield storage.seals_into
        return
    unsent = features / UNSENT
    shutil.rmtree(unsent, ignore_errors=True)  # a process that was killed left it
    unsent.mkdir(mode=0o700, parents=True)
    try:
        yield unsent
    finally:
        shutil.rmtree(unsent, ignore_errors=True)


def growing_on_host(storage: Storage, host: HostFolders) -> AbstractContextManager[Path]:
    """Give the folder in which one shard grows on a machine that may not be the run's; see `growing_in`.

    Args:
        storage: where it goes.
        host: the run's folders on this machine.
    """
    return host.new() if storage.seals_into is None else nullcontext(storage.seals_into)


def new_attempt(storage: Storage) -> str | None:
    """Name an attempt at a shard where several may meet; None: in a folder there is one."""
    return None if storage.seals_into is not None else secrets.token_hex(6)


def publish_sealed(storage: Storage, folder: Path, path: str) -> None:
    """Bring a sealed shard where it belongs; it is there whole or not at all.

    Args:
        storage: takes it.
        folder: where it grew, see `growing_in` and `growing_on_host`.
        path: of the shard, relative to both.

    Raises:
        RunError: the storage refused it.
    """
    if storage.seals_into is None:
        storage.publish(folder / path, path)
        (folder / path).unlink()


class FolderStorage:
    """Shards below the features folder."""

    url = None

    def __init__(self, features: Path) -> None:
        """Take the folder."""
        self._features = features
        self.seals_into: Path | None = features

    def publish(self, file: Path, path: str) -> None:
        """Do nothing: a shard is sealed in its place."""

    def size(self, path: str) -> int | None:
        """Bytes of the file."""
        file = self._features / path
        return file.stat().st_size if file.is_file() else None

    def digest(self, path: str) -> str:
        """Hash the file."""
        return hash_file(self._features / path)

    def paths(self) -> set[str]:
        """List the files."""
        return set(shard_files(self._features))

    def remove_orphans(self, known: Iterable[str]) -> tuple[str, ...]:
        """Remove files, temporary ones too."""
        return remove_orphans(self._features, known)

    @contextmanager
    def fetched(self, path: str) -> Iterator[Path]:
        """Give the file itself."""
        yield self._features / path


class UrlStorage:
    """Shards below a URL."""

    seals_into = None

    def __init__(self, url: str) -> None:
        """Open the file system and see that the place can be reached."""
        self._remote = Remote(url, "storage")
        self._fs = self._remote.fs
        self.url: str | None = self._remote.url
        root = self._remote.root
        with self._remote.mapped("reached"):
            # Of an object store only the bucket exists before the first object.
            if self._remote.is_local:
                self._fs.makedirs(f"{root}/shards", exist_ok=True)
            top = root if self._remote.is_local else root.partition("/")[0]
            if not self._fs.exists(top):
                raise FileNotFoundError(top)

    def publish(self, file: Path, path: str) -> None:
        """Send the file."""
        self._remote.put(file, path)

    def size(self, path: str) -> int | None:
        """Ask for the object's size."""
        with self._remote.mapped(f"read ({path})"):
            try:
                self._fs.invalidate_cache()
                return int(self._fs.info(self._remote.key(path))["size"])
            except FileNotFoundError:
                return None

    def digest(self, path: str) -> str:
        """Read the object through."""
        digest = xxhash.xxh3_128()
        with self._remote.mapped(f"read ({path})"), self._fs.open(self._remote.key(path), "rb") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                digest.update(chunk)
        return digest.hexdigest()

    def paths(self) -> set[str]:
        """List the objects that are shards by their names."""
        return {path for path in self._everything() if shard_number(path) is not None}

    def remove_orphans(self, known: Iterable[str]) -> tuple[str, ...]:
        """Remove objects, and temporary files of a local file system."""
        keep = set(known)
        orphans = sorted(
            path
            for path in self._everything()
            if path not in keep and shard_number(path.removesuffix(".tmp")) is not None
        )
        with self._remote.mapped("tidied"):
            for path in orphans:
                self._fs.rm_file(self._remote.key(path))
        return tuple(orphans)

    @contextmanager
    def fetched(self, path: str) -> Iterator[Path]:
        """Copy the object into a temporary folder."""
        with tempfile.TemporaryDirectory(prefix="eagletui-shard-") as folder:
            file = Path(folder) / Path(path).name
            with self._remote.mapped(f"read ({path})"):
                self._fs.get_file(self._remote.key(path), str(file))
            yield file

    def _everything(self) -> list[str]:
        with self._remote.mapped("listed"):
            try:
                self._fs.invalidate_cache()
                found = self._fs.ls(self._remote.key("shards"), detail=False)
            except FileNotFoundError:
                return []
        return [f"shards/{str(name).rstrip('/').rpartition('/')[2]}" for name in found]
