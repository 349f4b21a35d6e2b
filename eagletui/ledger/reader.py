"""The viewers' side of the ledger: every read, in one object."""

from dataclasses import dataclass
from typing import Literal, TypeVar

from eagletui.ledger.books import read_open_attempts
from eagletui.ledger.orders import OpenAttempt
from eagletui.ledger.reader_opinions import OpinionsReader
from eagletui.ledger.reader_samples import SamplesReader
from eagletui.ledger.reader_search import SearchReader
from eagletui.ledger.reader_snapshot import SnapshotReader
from eagletui.ledger.rows import (
    AdjustmentRow,
    CommandRow,
    EndpointRow,
    EventRow,
    FindingRow,
    HeartbeatRow,
    Level,
    PriceRow,
    ShardRow,
    SourceRow,
    VerdictRow,
    columns,
)

RowT = TypeVar("RowT")


@dataclass(frozen=True, slots=True)
class Attention:
    """Something a person should look at."""

    kind: Literal["finding", "failed", "refused", "drift", "mismatch", "spend"]
    sample_key: str | None
    """The sample to open, if there is one."""
    text: str
    """One sentence; foreign text in it is cleaned where it is shown."""
    at: float | None
    action: str


class LedgerReader(SnapshotReader, SamplesReader, SearchReader, OpinionsReader):
    """A read-only view of a ledger, alive or finished; see `Reader` for threads."""

    def events(self, after_id: int = 0, limit: int = 200) -> list[EventRow]:
        """List events after an id, oldest first."""
        with self._transactions.reading() as connection:
            rows = connection.execute(
                f"SELECT {columns(EventRow)} FROM events WHERE id > ? ORDER BY id LIMIT ?", (after_id, limit)
            )
            return [EventRow(*row) for row in rows]

    def last_events(self, limit: int, levels: tuple[Level, ...] = (), before_id: int | None = None) -> list[EventRow]:
        """List the newest events, oldest first.

        Args:
            limit: at most this many.
            levels: only these; empty for all.
            before_id: only older ones than this.
        """
        terms, parameters = ["1"], list[str | int]()
        if levels:
            terms.append(f"level IN ({', '.join('?' * len(levels))})")
            parameters += levels
        if before_id is not None:
            terms.append("id < ?")
            parameters.append(before_id)
        with self._transactions.reading() as connection:
            rows = connection.execute(
                f"SELECT {columns(EventRow)} FROM events WHERE {' AND '.join(terms)} ORDER BY id DESC LIMIT ?",
                (*parameters, limit),
            ).fetchall()
        return [EventRow(*row) for row in reversed(rows)]

    def attention(self, limit: int = 50) -> list[Attention]:
        """List what needs a person: open findings, failed samples, drift, then tokenization mismatches."""
        found: list[Attention] = []
        with self._transactions.reading() as connection:
            for row in connection.execute(
                f"SELECT {columns(FindingRow)} FROM findings WHERE closed_at IS NULL ORDER BY last_at DESC LIMIT ?",
                (limit,),
            ):
                finding = FindingRow(*row)
                found.append(
                    Attention("finding", finding.example_key, finding.sentence, finding.last_at, finding.action)
                )
            for state in ("failed", "refused"):
                for key, kind, detail in connection.execute(
                    "SELECT sample_key, failure_kind, failure_detail FROM samples WHERE state = ?"
                    " ORDER BY id DESC LIMIT ?",
                    (state, limit),
                ):
                    text = f"{kind}: {detail}" if detail else str(kind)
                    found.append(Attention(state, key, text, None, "Retry it or open it."))
            for key, drift, at in connection.execute(
                "SELECT sample_key, drift_tokens, answered_at FROM samples"
                " WHERE drift_tokens IS NOT NULL AND abs(drift_tokens) > 0"
                " ORDER BY abs(drift_tokens) DESC, id DESC LIMIT ?",
                (limit,),
            ):
                found.append(Attention("drift", key, f"{drift:+,} tokens billed against counted", at, "Open it."))
            for key, spans, at in connection.execute(
                "SELECT sample_key, spans, answered_at FROM samples WHERE spans > 0"
                " ORDER BY spans DESC, id DESC LIMIT ?",
                (limit,),
            ):
                noun = "span" if spans == 1 else "spans"
                text = f"re-encoding differs in {spans:,} {noun}"
                found.append(Attention("mismatch", key, text, at, "Open it to see the tokens."))
        return found[:limit]

    def open_attempts(self) -> list[OpenAttempt]:
        """List attempts that ended without a known cost and are not covered by an adjustment, oldest first."""
        with self._transactions.reading() as connection:
            return read_open_attempts(connection)

    def commands_pending(self) -> list[CommandRow]:
        """List orders that no worker has applied yet, oldest first."""
        with self._transactions.reading() as connection:
            rows = connection.execute(
                f"SELECT {columns(CommandRow)} FROM commands WHERE applied_at IS NULL ORDER BY id"
            )
            return [CommandRow(*row) for row in rows]

    def command(self, command_id: int) -> CommandRow | None:
        """Read one order."""
        with self._transactions.reading() as connection:
            row = connection.execute(
                f"SELECT {columns(CommandRow)} FROM commands WHERE id = ?", (command_id,)
            ).fetchone()
        return None if row is None else CommandRow(*row)

    def heartbeats(self) -> list[HeartbeatRow]:
        """List the signs of life of every worker."""
        return self._all(HeartbeatRow, "heartbeats", "role, slot")

    def endpoints(self) -> list[EndpointRow]:
        """List the endpoints as configured; their figures are in the snapshot."""
        return self._all(EndpointRow, "endpoints", "tag")

    def prices(self) -> list[PriceRow]:
        """List every price that was seen, oldest first."""
        return self._all(PriceRow, "prices", "id")

    def adjustments(self) -> list[AdjustmentRow]:
        """List money booked without an attempt, oldest first."""
        return self._all(AdjustmentRow, "adjustments", "id")

    def findings(self) -> list[FindingRow]:
        """List findings, open and closed, oldest first."""
        return self._all(FindingRow, "findings", "first_at, id")

    def verdicts(self) -> list[VerdictRow]:
        """List signed verdicts, oldest first."""
        return self._all(VerdictRow, "verdicts", "id")

    def shards(self) -> list[ShardRow]:
        """List sealed shards, oldest first."""
        return self._all(ShardRow, "shards", "id")

    def sources(self) -> list[SourceRow]:
        """List ingested prompt files, oldest first."""
        return self._all(SourceRow, "sources", "id")

    def _all(self, row: type[RowT], table: str, by: str) -> list[RowT]:
        with self._transactions.reading() as connection:
            found = connection.execute(f"SELECT {columns(row)} FROM {table} ORDER BY {by}")
            return [row(*values) for values in found]
