"""Open ledger files, map SQLite's errors, and run transactions."""

import contextlib
import os
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from eagletui.core.errors import DiskFullError, LedgerBusyError, LedgerError
from eagletui.ledger import migrate
from eagletui.ledger.disk import refuse_network_disk

BUSY_TIMEOUT_MS: Final = 10_000
"""How long a writer waits for another's short transaction."""
FULL_BYTES: Final = 64 * 1024
"""Less than this is no room for a page and what SQLite keeps beside it."""


@contextlib.contextmanager
def mapped_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into LedgerError with the file and what to do."""
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        if _is_disk_full(path, name):
            raise DiskFullError(f"{path}: the disk is full. Free space there, then resume the run.") from error
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            seconds = BUSY_TIMEOUT_MS // 1000
            raise LedgerBusyError(f"{path}: another process has been writing for {seconds} s. Try again.") from error
        raise LedgerError(_explain(path, name, error)) from error


def _is_disk_full(path: Path, name: str) -> bool:
    """SQLite says FULL for the file itself, and an I/O error where its shared memory or a flush finds no room."""
    if name == "SQLITE_FULL":
        return True
    with contextlib.suppress(OSError):
        return name.startswith("SQLITE_IOERR") and shutil.disk_usage(path.parent).free < FULL_BYTES
    return False


def _explain(path: Path, name: str, error: sqlite3.Error) -> str:
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return f"{path} is not a ledger or is damaged ({error})."
    if name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM")):
        return f"{path} cannot be opened ({error}). Check that it exists and that its folder can be written."
    if name == "SQLITE_CONSTRAINT_TRIGGER":
        return f"{path} refused a change: {error}."
    return f"{path}: {error}."


def connect_writer(path: Path) -> sqlite3.Connection:
    """Open an existing ledger for writing and bring it to the current version.

    The connection may be handed to another thread (`check_same_thread` is off); `Transactions` lets one thread in at
    a time.

    Raises:
        LedgerError: absent, damaged, of a newer version, or on a network disk.
    """
    if not path.is_file():
        raise LedgerError(f"{path} does not exist.")
    refuse_network_disk(path)
    with mapped_errors(path):
        connection = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, timeout=BUSY_TIMEOUT_MS / 1000, cached_statements=256
        )
        try:
            migrate.migrate(connection, path)
            prepare_writer(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


def prepare_writer(connection: sqlite3.Connection, path: Path) -> None:
    """Set what every writing connection needs.

    Raises:
        LedgerError: the file system refuses WAL.
    """
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise LedgerError(f"{path}: this file system does not carry SQLite's WAL (mode {mode}). Use a local disk.")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA journal_size_limit = 67108864")


def connect_reader(path: Path) -> sqlite3.Connection:
    """Open a ledger read-only; it may be in use by writers.

    Raises:
        LedgerError: absent, damaged or of another version.
    """
    if not path.is_file():
        raise LedgerError(f"{path} does not exist.")
    with mapped_errors(path):
        # Without a -wal file and without the right to make one, the file cannot change under us: read it as it is.
        sealed = not path.with_name(path.name + "-wal").exists() and not os.access(path.parent, os.W_OK)
        mode = "immutable=1" if sealed else "mode=ro"
        connection = sqlite3.connect(
            f"{path.resolve().as_uri()}?{mode}",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            timeout=BUSY_TIMEOUT_MS / 1000,
            cached_statements=256,
        )
        try:
            connection.execute("PRAGMA query_only = ON")
            migrate.check_readable(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


class Transactions:
    """Run short transactions on one writing connection.

    One thread at a time: a second thread waits for the first one's transaction to end. A nested `with` block becomes
    part of the outer transaction; if it raises, its own writes are undone and the outer ones stay.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        """Take over a connection made by `connect_writer`."""
        self.connection = connection
        self.path = path
        self._lock = threading.RLock()
        self._depth = 0
        self._durable = False

    @contextlib.contextmanager
    def begin(self, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        """Run the block as one IMMEDIATE transaction; an exception rolls all of it back.

        Args:
            durable: flush to the disk before returning (`synchronous=FULL`), so that a power cut cannot undo it.
        """
        with self._lock:
            if self._depth:
                # Joining: an inner durable block relies on the outer one having asked for it.
                if durable and not self._durable:
                    raise LedgerError("a durable write cannot join a transaction that is not durable")
                with mapped_errors(self.path):
                    self.connection.execute("SAVEPOINT inner")
                    try:
                        yield self.connection
                    except BaseException:
                        self.connection.execute("ROLLBACK TO inner")
                        raise
                    finally:
                        self.connection.execute("RELEASE inner")
                return
            with mapped_errors(self.path):
                if durable != self._durable:
                    self.connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
                    self._durable = durable
                self.connection.execute("BEGIN IMMEDIATE")
                self._depth = 1
                try:
                    yield self.connection
                    self.connection.execute("COMMIT")
                except BaseException:
                    if self.connection.in_transaction:
                        self.connection.execute("ROLLBACK")
                    raise
                finally:
                    self._depth = 0

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Run the block on one consistent state of the ledger, the open transaction's if there is one."""
        with self._lock, mapped_errors(self.path):
            if self._depth or self.connection.in_transaction:
                yield self.connection
                return
            self.connection.execute("BEGIN")
            try:
                yield self.connection
            finally:
                self.connection.execute("ROLLBACK")

    def close(self) -> None:
        """Close the connection; later writes raise LedgerError."""
        with self._lock:
            self.connection.close()
