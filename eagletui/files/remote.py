"""A place below a URL of any file system that fsspec knows (s3, gs, file): files arrive there whole or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from eagletui.core.errors import InputError, RunError
from eagletui.core.text import clean_line

_PACKAGES: Final = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs"}
"""What a protocol needs beside fsspec."""


class Remote:
    """Files below a URL; names are relative to it."""

    def __init__(self, url: str, what: str) -> None:
        """Open the file system.

        Args:
            url: without credentials; those are the business of the file system's own client.
            what: the option or key that named it, for messages.

        Raises:
            InputError: the protocol is unknown, or its package is not installed.
        """
        self.url = url.rstrip("/")
        protocol = url.partition(":")[0]
        try:
            import fsspec

            self.fs, root = fsspec.core.url_to_fs(self.url)
        except ImportError as error:
            package = _PACKAGES.get(protocol, "fsspec")
            raise InputError(f"{what} {clean_line(url, 120)}: needs {package} (pip install {package}).") from error
        except ValueError as error:
            raise InputError(
                f"{what} {clean_line(url, 120)}: found no file system for it, expected s3://, gs:// or file://."
            ) from error
        self.root = str(root).rstrip("/")
        self.is_local = "file" in _protocols(self.fs)
        self._refusals: tuple[type[Exception], ...] = (OSError, *_client_errors(protocol))

    def key(self, name: str) -> str:
        """Where a file lies, as its file system calls it."""
        return f"{self.root}/{name}"

    def put(self, file: Path, name: str) -> None:
        """Bring a file. An object store takes it as one object; a disk gets it under a temporary name first.

        Raises:
            RunError: the place refused it.
        """
        key = self.key(name)
        with self.mapped(f"written ({name})"):
            if self.is_local:
                self.fs.makedirs(key.rpartition("/")[0], exist_ok=True)
                self.fs.put_file(str(file), f"{key}.tmp")
                self.fs.mv(f"{key}.tmp", key)
            else:
                self.fs.put_file(str(file), key)

    @contextmanager
    def mapped(self, what: str) -> Iterator[None]:
        """Turn what the file system says into an error that names the place."""
        try:
            yield
        except FileNotFoundError as error:
            raise RunError(f"{self.url} cannot be {what}: it is not there ({clean_line(str(error), 200)}).") from error
        except self._refusals as error:
            raise RunError(f"{self.url} cannot be {what}: {clean_line(str(error), 300)}.") from error


def _protocols(fs: Any) -> tuple[str, ...]:
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)


def _client_errors(protocol: str) -> tuple[type[Exception], ...]:
    """The errors that s3fs lets through from its client library."""
    if protocol not in ("s3", "s3a"):
        return ()
    errors = import_module("botocore.exceptions")
    return (errors.BotoCoreError, errors.ClientError)
