"""Read the snapshot from counters and small tables."""

import sqlite3
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, get_args

from eagletui.core.lifecycle import AttemptState, SampleState
from eagletui.core.money import Books
from eagletui.files.locked import is_locked
from eagletui.ledger.books import read_books
from eagletui.ledger.locks import lock_file
from eagletui.ledger.reader_base import Reader
from eagletui.ledger.rows import EndpointRow, FindingRow, HeartbeatRow, RunRow, TickRow, columns
from eagletui.ledger.snapshot import (
    DatasetFigures,
    DriftFigures,
    EndpointFigures,
    ExtractFigures,
    LatencyFigures,
    RateFigures,
    Snapshot,
    SpendFigures,
    ThrottleFigures,
    TokenFigures,
    WorkerFigures,
)

_RATE_WINDOW_S: Final = 60
_RATE_FRESH_S: Final = 10
_THROTTLE_WINDOW_S: Final = 60.0
_THROTTLE_ATTEMPTS: Final = 2_000
"""The newest ones; there is no index by time, and a rate needs no more."""
_LATENCY_SAMPLES: Final = 500
_FINDINGS: Final = 100
_DRIFTING_SAMPLES: Final = 20_000

_Figures = Mapping[tuple[str, str], int]
"""Values by kind and name."""


class SnapshotReader(Reader):
    """Reads what the dashboard shows."""

    def run(self) -> RunRow:
        """Return the run's row."""
        with self._transactions.reading() as connection:
            return _run(connection, self.path)

    def books(self) -> Books:
        """Return where the money stands."""
        with self._transactions.reading() as connection:
            return read_books(connection)

    def ticks(self, since: float, every_s: int = 1) -> list[TickRow]:
        """List the ticks from a time on, oldest first.

        Args:
            since: Unix seconds.
            every_s: only one of so many seconds, for charts of long runs.
        """
        with self._transactions.reading() as connection:
            rows = connection.execute(
                f"SELECT {columns(TickRow)} FROM ticks WHERE at >= ? AND at % ? = 0 ORDER BY at", (int(since), every_s)
            )
            return [TickRow(*row) for row in rows]

    def tick_step(self, since: float, most: int) -> int:
        """Choose `every_s` so that about so many ticks come from a time on, however long nobody worked in between.

        Args:
            since: Unix seconds.
            most: ticks wanted.
        """
        with self._transactions.reading() as connection:
            (found,) = connection.execute("SELECT count(*) FROM ticks WHERE at >= ?", (int(since),)).fetchone()
        return max(1, -(-int(found) // most))

    def latencies(self, limit: int) -> list[float]:
        """List how long the last answers took, in seconds, the newest first."""
        with self._transactions.reading() as connection:
            rows = connection.execute(
                "SELECT latency_s FROM samples WHERE answered_at IS NOT NULL ORDER BY answered_at DESC LIMIT ?",
                (limit,),
            )
            return [latency_s for (latency_s,) in rows if latency_s is not None]

    def drift_counts(self, limit: int = _DRIFTING_SAMPLES) -> dict[str, dict[int, int]]:
        """Count samples by drift other than 0, for each endpoint.

        Args:
            limit: of the last samples that drift, so that a run in which all do costs no more.
        """
        found: dict[str, dict[int, int]] = defaultdict(dict)
        with self._transactions.reading() as connection:
            for endpoint, tokens, samples in connection.execute(
                """SELECT endpoint, drift_tokens, count(*) FROM (
                    SELECT endpoint, drift_tokens FROM samples WHERE drift_tokens <> 0 ORDER BY id DESC LIMIT ?
                ) WHERE endpoint IS NOT NULL GROUP BY endpoint, drift_tokens""",
                (limit,),
            ):
                found[endpoint][tokens] = samples
        return dict(found)

    def workers(self) -> tuple[WorkerFigures, ...]:
        """List the workers that ever wrote a heartbeat, and whether they live."""
        with self._transactions.reading() as connection:
            return _workers(connection, self.path, self._clock())

    def snapshot(self) -> Snapshot:
        """Read everything the dashboard and `status` show, as of one moment, without counting rows."""
        now = self._clock()
        with self._transactions.reading() as connection:
            by_scope: dict[str, dict[tuple[str, str], int]] = defaultdict(dict)
            totals: dict[tuple[str, str], int] = defaultdict(int)
            endpoint_scopes: dict[str, dict[tuple[str, str], int]] = defaultdict(dict)
            for kind, name, scope, value in connection.execute("SELECT kind, name, scope, value FROM counters"):
                if kind in ("endpoint", "endpoint_evidence"):
                    endpoint_scopes[scope][kind, name] = value
                else:
                    totals[kind, name] += value
                    if scope:
                        by_scope[scope][kind, name] = value
            run = _run(connection, self.path)
            books = read_books(connection)
            states = _by_name(totals, "state", get_args(SampleState))
            tokens = _tokens(totals)
            return Snapshot(
                at=now,
                run=run,
                states=states,
                extracted=totals["features", "samples"],
                tokens=tokens,
                spend=SpendFigures(
                    books=books,
                    wasted_pico=totals["money", "wasted"],
                    per_million_usable_pico=_per_million(books.spent_pico, tokens.trainable),
                ),
                drift=DriftFigures(
                    tokens=totals["tokens", "drift"],
                    percent=_percent(totals["tokens", "drift"], totals["tokens", "drift_billed"]),
                    samples=totals["samples", "drifting"],
                ),
                endpoints=_endpoints(connection, endpoint_scopes, now),
                evidence=_by_name(totals, "evidence"),
                usability=_by_name(totals, "usability"),
                finish_reasons=_by_name(totals, "finish_reason"),
                resegmented=totals["samples", "resegmented"],
                attempts=_by_name(totals, "attempts", get_args(AttemptState), only=True),
                retries=totals["attempts", "retries"],
                failures=totals["attempts", "failures"],
                rate=_rate(connection, now),
                latency=_latency(connection),
                in_flight=states["in_flight"],
                limited_by=run.limited_by,
                extract=ExtractFigures(
                    shards=totals["shards", "shards"],
                    rows=totals["shards", "rows"],
                    bytes=totals["shards", "bytes"],
                    samples=totals["features", "samples"],
                    pending=totals["extract", "pending"],
                ),
                workers=_workers(connection, self.path, now),
                findings=_findings(connection),
                datasets=tuple(_dataset(name, by_scope[name]) for name in sorted(by_scope)),
                last_event_id=connection.execute("SELECT coalesce(max(id), 0) FROM events").fetchone()[0],
            )


def _run(connection: sqlite3.Connection, path: Path) -> RunRow:
    """Read the run's row; its name is its folder's, by which commands find one that was renamed or copied."""
    row = RunRow(*connection.execute(f"SELECT {columns(RunRow)} FROM run").fetchone())
    return replace(row, name=path.resolve().parent.name)


def _by_name(figures: _Figures, kind: str, always: tuple[str, ...] = (), *, only: bool = False) -> dict[str, int]:
    named = dict.fromkeys(always, 0)
    for (found, name), value in figures.items():
        if found == kind and (name in named or (value and not only)):
            named[name] = value
    return named


def _tokens(figures: _Figures) -> TokenFigures:
    def value(name: str) -> int:
        return figures.get(("tokens", name), 0)

    return TokenFigures(
        prompt=value("prompt"),
        output=value("output"),
        billed_prompt=value("billed_prompt"),
        billed_output=value("billed_output"),
        trainable=value("trainable"),
    )


def _per_million(pico: int, tokens: int) -> int | None:
    return None if tokens == 0 else pico * 1_000_000 // tokens


def _percent(part: int, whole: int) -> float | None:
    return None if whole == 0 else 100.0 * part / whole


def _endpoints(
    connection: sqlite3.Connection, scopes: Mapping[str, Mapping[tuple[str, str], int]], now: float
) -> tuple[EndpointFigures, ...]:
    rows = {row[0]: EndpointRow(*row) for row in connection.execute(f"SELECT {columns(EndpointRow)} FROM endpoints")}
    in_flight = dict(
        connection.execute("SELECT endpoint, count(*) FROM attempts WHERE state IN ('held', 'sent') GROUP BY endpoint")
    )
    throttled = _throttled(connection, now)
    figures = []
    for tag in sorted(rows.keys() | scopes.keys() | in_flight.keys()):
        scope = scopes.get(tag, {})

        def value(name: str, scope: Mapping[tuple[str, str], int] = scope) -> int:
            return scope.get(("endpoint", name), 0)

        figures.append(
            EndpointFigures(
                tag=tag,
                row=rows.get(tag),
                samples=value("samples"),
                failures=value("failures"),
                truncated=value("truncated"),
                in_flight=in_flight.get(tag, 0),
                billed_output=value("billed_output"),
                output=value("output"),
                drift_tokens=value("drift"),
                drift_percent=_percent(value("drift"), value("drift_billed")),
                cost_pico=value("cost"),
                evidence=_by_name(scope, "endpoint_evidence"),
                throttled=throttled.get(tag),
            )
        )
    return tuple(figures)


def _throttled(connection: sqlite3.Connection, now: float) -> dict[str, ThrottleFigures]:
    """Count the last minute's refusals for too many requests, by endpoint; those without any are left out."""
    since = now - _THROTTLE_WINDOW_S
    (first,) = connection.execute("SELECT max(id) FROM attempts").fetchone()
    before = (first or 0) - _THROTTLE_ATTEMPTS
    found = connection.execute(
        """SELECT endpoint, count(*), sum(error_kind IS 'rate_limited'),
            max(CASE WHEN error_kind = 'rate_limited' THEN ended_at END)
        FROM attempts WHERE id > ? AND held_at > ? GROUP BY endpoint""",
        (before, since),
    ).fetchall()
    # Where even the first one that is left out belongs to the minute, what was looked at is a shorter time.
    left_out = connection.execute("SELECT held_at FROM attempts WHERE id = ?", (before,)).fetchone()
    window_s = _THROTTLE_WINDOW_S if left_out is None else max(1.0, now - max(since, left_out[0]))
    return {
        endpoint: ThrottleFigures(refused, requests, window_s, max(0.0, now - last))
        for endpoint, requests, refused, last in found
        if last is not None
    }


def _rate(connection: sqlite3.Connection, now: float) -> RateFigures | None:
    rows = connection.execute(
        f"SELECT {columns(TickRow)} FROM ticks WHERE at BETWEEN ? AND ? ORDER BY at", (int(now) - _RATE_WINDOW_S, now)
    ).fetchall()
    if len(rows) < 2:
        return None
    first, last = TickRow(*rows[0]), TickRow(*rows[-1])
    if last.at < now - _RATE_FRESH_S:
        return None
    seconds = last.at - first.at
    return RateFigures(
        samples_per_s=(last.answered - first.answered) / seconds,
        output_tokens_per_s=(last.output_tokens - first.output_tokens) / seconds,
        extracted_per_s=(last.extracted - first.extracted) / seconds,
        pico_per_s=(last.settled_pico - first.settled_pico) / seconds,
        window_s=seconds,
    )


def _latency(connection: sqlite3.Connection) -> LatencyFigures | None:
    found = sorted(
        latency_s
        for (latency_s,) in connection.execute(
            "SELECT latency_s FROM samples WHERE answered_at IS NOT NULL ORDER BY answered_at DESC LIMIT ?",
            (_LATENCY_SAMPLES,),
        )
        if latency_s is not None
    )
    if not found:
        return None
    # Nearest rank: the smallest value that at least p percent of the answers do not exceed.
    return LatencyFigures(
        p50_s=found[(len(found) * 50 + 99) // 100 - 1],
        p95_s=found[(len(found) * 95 + 99) // 100 - 1],
        samples=len(found),
    )


def _workers(connection: sqlite3.Connection, path: Path, now: float) -> tuple[WorkerFigures, ...]:
    workers = []
    for row in connection.execute(f"SELECT {columns(HeartbeatRow)} FROM heartbeats ORDER BY role, slot"):
        beat = HeartbeatRow(*row)
        workers.append(
            WorkerFigures(
                role=beat.role,
                slot=beat.slot,
                pid=beat.pid,
                host=beat.host,
                alive=beat.stopped_at is None and is_locked(lock_file(path.parent, beat.role, beat.slot)),
                ready=beat.ready_at is not None,
                stopped=beat.stopped_at is not None,
                heartbeat_age_s=max(0.0, now - beat.beat_at),
                started_at=beat.started_at,
                detail_json=beat.detail_json,
            )
        )
    return tuple(workers)


def _findings(connection: sqlite3.Connection) -> tuple[FindingRow, ...]:
    rows = connection.execute(
        f"SELECT {columns(FindingRow)} FROM findings WHERE closed_at IS NULL ORDER BY last_at DESC, id DESC LIMIT ?",
        (_FINDINGS,),
    )
    return tuple(FindingRow(*row) for row in rows)


def _dataset(name: str, figures: _Figures) -> DatasetFigures:
    return DatasetFigures(
        name=name,
        states=_by_name(figures, "state", get_args(SampleState)),
        evidence=_by_name(figures, "evidence"),
        usability=_by_name(figures, "usability"),
        finish_reasons=_by_name(figures, "finish_reason"),
        tokens=_tokens(figures),
        resegmented=figures.get(("samples", "resegmented"), 0),
        drifting=figures.get(("samples", "drifting"), 0),
        drift_tokens=figures.get(("tokens", "drift"), 0),
        extracted=figures.get(("features", "samples"), 0),
        cost_pico=figures.get(("cost", "answers"), 0),
    )
