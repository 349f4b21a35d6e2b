"""Open a ledger for looking, never for writing."""

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from eagletui.ledger.connection import Transactions, connect_reader, mapped_errors


class Reader:
    """One read-only connection. One thread at a time; `interrupt` may be called from any."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        """Open the ledger.

        Args:
            path: the ledger file.
            clock: Unix seconds, for ages and rates.

        Raises:
            LedgerError: absent, damaged or of another version.
        """
        self.path = path
        self._clock = clock
        self._transactions = Transactions(connect_reader(path), path)

    def data_version(self) -> int:
        """Return a number that changes whenever another connection has committed a change."""
        with mapped_errors(self.path):
            (version,) = self._transactions.connection.execute("PRAGMA data_version").fetchone()
        return int(version)

    def interrupt(self) -> None:
        """Stop the query that is running in another thread; it raises LedgerError there."""
        with contextlib.suppress(sqlite3.ProgrammingError):
            self._transactions.connection.interrupt()

    def close(self) -> None:
        """Close the connection. May be called twice."""
        self._transactions.close()

    def __enter__(self) -> Self:
        """Return the reader."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    @contextlib.contextmanager
    def moment(self) -> Iterator[None]:
        """Let every query of the block see the same state of the ledger."""
        with self._transactions.reading():
            yield
