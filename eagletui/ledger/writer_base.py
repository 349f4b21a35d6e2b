"""What every writing worker does: transactions, signs of life, events, ticks."""

import json
import os
import socket
import sqlite3
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Self

from eagletui.core.lifecycle import WorkerRole
from eagletui.ledger.connection import Transactions, connect_writer
from eagletui.ledger.rows import Level


class Writer:
    """One writing connection to a ledger.

    Synchronous. May be made in one thread and used from another; if two threads use it, the second waits until the
    first one's transaction ends. Every method is one short transaction unless it runs inside `transaction()`.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        """Open the ledger, upgrading an older version.

        Args:
            path: the ledger file.
            clock: Unix seconds.

        Raises:
            LedgerError: absent, damaged, newer, or on a network disk.
        """
        self.path = path
        self._clock = clock
        self._transactions = Transactions(connect_writer(path), path)

    def now(self) -> float:
        """Return the time on the writer's clock, Unix seconds."""
        return self._clock()

    def transaction(self, *, durable: bool = False) -> AbstractContextManager[sqlite3.Connection]:
        """Join the writes of the block into one transaction, which an exception rolls back.

        Args:
            durable: flush to disk before returning; needed when the block reserves or settles money.
        """
        return self._transactions.begin(durable=durable)

    def close(self) -> None:
        """Close the connection. May be called twice."""
        self._transactions.close()

    def __enter__(self) -> Self:
        """Return the writer."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def beat(
        self,
        role: WorkerRole,
        slot: int = 0,
        *,
        ready: bool = False,
        detail: dict[str, object] | None = None,
        pid: int | None = None,
    ) -> None:
        """Record that a process is alive.

        Args:
            role: what it does.
            slot: which of several receivers.
            ready: it can work now; kept once given.
            detail: figures for the screens, shown as they are; None keeps the last ones.
            pid: of a receiver, for which its engine speaks; None: this process.
        """
        now = self._clock()
        pid, host = pid or os.getpid(), socket.gethostname()
        with self._transactions.begin() as connection:
            connection.execute(
                """INSERT INTO heartbeats (role, slot, pid, host, started_at, ready_at, beat_at, detail_json)
                VALUES (:role, :slot, :pid, :host, :now, :ready, :now, coalesce(:detail, '{}'))
                ON CONFLICT (role, slot) DO UPDATE SET
                    started_at = CASE WHEN pid = :pid AND host = :host AND stopped_at IS NULL
                                      THEN started_at ELSE :now END,
                    ready_at = CASE WHEN pid = :pid AND host = :host AND stopped_at IS NULL
                                    THEN coalesce(ready_at, :ready) ELSE :ready END,
                    pid = :pid, host = :host, beat_at = :now, stopped_at = NULL,
                    detail_json = coalesce(:detail, detail_json)""",
                {
                    "role": role,
                    "slot": slot,
                    "pid": pid,
                    "host": host,
                    "now": now,
                    "ready": now if ready else None,
                    "detail": None if detail is None else json.dumps(detail),
                },
            )

    def stop_beat(self, role: WorkerRole, slot: int = 0, *, pid: int | None = None) -> None:
        """Record that this process, or a receiver of it, ends on purpose; does nothing if another one took over."""
        with self._transactions.begin() as connection:
            connection.execute(
                "UPDATE heartbeats SET stopped_at = ? WHERE role = ? AND slot = ? AND pid = ? AND stopped_at IS NULL",
                (self._clock(), role, slot, pid or os.getpid()),
            )

    def event(self, level: Level, source: str, kind: str, message: str, sample_key: str | None = None) -> int:
        """Add a line to the log and return its id.

        Args:
            level: debug, info, warn or error.
            source: engine, extractor, provider, app or ctl.
            kind: a short name to filter by.
            message: one sentence, without secrets; foreign text is cleaned where it is shown.
            sample_key: the sample it is about.
        """
        with self._transactions.begin() as connection:
            cursor = connection.execute(
                "INSERT INTO events (at, level, source, kind, sample_key, message) VALUES (?, ?, ?, ?, ?, ?)",
                (self._clock(), level, source, kind, sample_key, message),
            )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def tick(self) -> None:
        """Record the running totals for this second; a second call in the same second replaces the first."""
        with self._transactions.begin() as connection:
            connection.execute(
                """INSERT INTO ticks (at, answered, output_tokens, settled_pico, held_pico, in_flight, extracted)
                SELECT ?,
                    coalesce(sum(value) FILTER (WHERE kind = 'state'
                             AND name IN ('answered', 'tokenized', 'quarantined')), 0),
                    coalesce(sum(value) FILTER (WHERE kind = 'tokens' AND name = 'output'), 0),
                    coalesce(sum(value) FILTER (WHERE kind = 'money' AND name = 'settled'), 0),
                    coalesce(sum(value) FILTER (WHERE kind = 'money' AND name = 'held'), 0),
                    coalesce(sum(value) FILTER (WHERE kind = 'state' AND name = 'in_flight'), 0),
                    coalesce(sum(value) FILTER (WHERE kind = 'features' AND name = 'samples'), 0)
                FROM counters WHERE kind IN ('state', 'tokens', 'money', 'features')
                ON CONFLICT (at) DO UPDATE SET answered = excluded.answered, output_tokens = excluded.output_tokens,
                    settled_pico = excluded.settled_pico, held_pico = excluded.held_pico,
                    in_flight = excluded.in_flight, extracted = excluded.extracted""",
                (int(self._clock()),),
            )
