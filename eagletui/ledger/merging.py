"""Lay the rows of several ledgers into one: what was bought on different machines becomes one run.

The target is a ledger that nobody works with yet. Its triggers are set aside while rows arrive in their final states;
afterwards the counters and the queue of the extractor are computed from the rows, by the same expressions that the
triggers use.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

from eagletui.core.errors import LedgerError, RunError
from eagletui.ledger.connection import connect_writer, mapped_errors
from eagletui.ledger.triggers import COUNTERS, TRAINABLE, count_statement, trigger_statements

_NUMBERED: Final = ("prompts", "samples", "attempts", "shards")
"""Tables whose rows others point to by number."""

KEPT: Final = ("prices", "adjustments", "verdicts", "events", "commands")
"""Tables in the order of time, which nothing points to."""

OF_SAMPLE: Final = ("turns", "opinions")
"""Tables with a row for some samples, which point to nothing else."""

MADE_ANEW: Final = ("run", "counters", "to_extract", "moves", "heartbeats")
"""Tables that the joined ledger has of its own."""

_TIME: Final = {"prices": "fetched_at"}

_NAMED_AT_MOST: Final = 3


class Source(NamedTuple):
    """A ledger to take rows from."""

    name: str
    """The run's, for messages."""
    path: Path
    """Of the ledger."""
    shard_paths: dict[str, str]
    """New path of each of its shards, by the old one."""


@dataclass(frozen=True, slots=True)
class Laid:
    """What arrived."""

    samples: int
    attempts: int
    shards: int


def lay_together(target: Path, sources: Sequence[Source], *, same_numbers: bool) -> Laid:
    """Copy every row of the sources into the target.

    Args:
        target: a ledger made by `create_ledger`, without samples.
        sources: none of them in use by a writer.
        same_numbers: prompts and samples keep their numbers, because the sources are parts of one run; else those of
            later sources follow on.

    Raises:
        RunError: two sources hold the same sample, prompt or generation.
        LedgerError: a ledger cannot be read, or the disk is full.
    """
    with closing(connect_writer(target)) as connection, mapped_errors(target):
        connection.execute("PRAGMA foreign_keys = OFF")
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f'DROP TRIGGER "{name}"')
        for table in KEPT:
            connection.execute(f"CREATE TEMP TABLE arrived_{table} AS SELECT * FROM {table} WHERE 0")
        connection.execute("CREATE TEMP TABLE arrived_findings AS SELECT '' AS source, * FROM findings WHERE 0")
        connection.execute("CREATE TEMP TABLE arrived_ticks AS SELECT 0 AS source, * FROM ticks WHERE 0")
        names: list[str] = []
        for number, source in enumerate(sources):
            connection.execute("ATTACH DATABASE ? AS source", (str(source.path),))
            try:
                connection.execute("BEGIN")
                _refuse_overlap(connection, source.name, names, same_numbers=same_numbers)
                _copy(connection, source, number, same_numbers=same_numbers)
                connection.execute("COMMIT")
            except BaseException:  # an interrupt too: a ledger cannot be detached inside a transaction
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            finally:
                connection.execute("DETACH DATABASE source")
            names.append(source.name)
        connection.execute("BEGIN IMMEDIATE")
        _settle_history(connection, len(sources))
        _count(connection)
        _finish_run(connection)
        for statement in trigger_statements():
            connection.execute(statement)
        connection.execute("COMMIT")
        broken = connection.execute("PRAGMA foreign_key_check").fetchone()
        if broken is not None:
            raise LedgerError(f"{target}: a row of {broken[0]} points to a row of {broken[2]} that is not there.")
        return Laid(
            *(
                connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
                for table in ("samples", "attempts", "shards")
            )
        )


def _refuse_overlap(connection: sqlite3.Connection, name: str, earlier: Sequence[str], *, same_numbers: bool) -> None:
    """Refuse what would be counted or paid twice."""
    before = " or ".join(earlier)
    for table, column, noun, consequence in (
        ("samples", "sample_key", "sample", "be trained on twice"),
        ("prompts", "prompt_key", "prompt", "be asked twice"),
        ("attempts", "generation_id", "generation", "be paid for twice"),
    ):
        shared = f"FROM source.{table} AS new JOIN main.{table} AS old USING ({column}) WHERE new.{column} IS NOT NULL"
        (number,) = connection.execute(f"SELECT count(*) {shared}").fetchone()
        if number:
            rows = connection.execute(f"SELECT {column} {shared} ORDER BY new.id LIMIT {_NAMED_AT_MOST}")
            examples = ", ".join(repr(row[0]) for row in rows)
            raise RunError(
                f"{name} and {before} overlap: {number:,} {noun}{'s' if number > 1 else ''} stand in both, the first "
                f"{examples}. Joined, they would {consequence}. Give each run once; nothing was merged."
            )
    if same_numbers and _numbers_clash(connection):
        raise RunError(
            f"{name} and {before} say that they are parts of one run, and use the same numbers for different samples. "
            "Were their prompt files the same, in the same order? Nothing was merged."
        )


def _numbers_clash(connection: sqlite3.Connection) -> bool:
    return any(
        connection.execute(f"SELECT 1 FROM source.{table} JOIN main.{table} USING (id) LIMIT 1").fetchone()
        for table in ("prompts", "samples")
    )


def _copy(connection: sqlite3.Connection, source: Source, number: int, *, same_numbers: bool) -> None:
    shift = {table: _highest(connection, table) for table in _NUMBERED}
    if same_numbers:
        shift["prompts"] = shift["samples"] = 0
    connection.execute("DROP TABLE IF EXISTS temp.source_of")
    connection.execute(
        """INSERT INTO main.sources (path, sha256, samples, added_at)
        SELECT path, sha256, samples, added_at FROM source.sources ORDER BY id
        ON CONFLICT (sha256) DO UPDATE SET samples = samples + excluded.samples"""
    )
    connection.execute(
        """CREATE TEMP TABLE source_of AS
        SELECT old.id AS old_id, new.id AS new_id FROM source.sources AS old JOIN main.sources AS new USING (sha256)"""
    )
    _insert(
        connection,
        "prompts",
        {
            "id": f"id + {shift['prompts']}",
            "source_id": "(SELECT new_id FROM temp.source_of WHERE old_id = source_id)",
        },
    )
    _insert(
        connection,
        "samples",
        {
            "id": f"id + {shift['samples']}",
            "prompt_id": f"prompt_id + {shift['prompts']}",
            "answered_attempt_id": f"answered_attempt_id + {shift['attempts']}",
        },
    )
    of_sample = {"sample_id": f"sample_id + {shift['samples']}"}
    of_attempt = {"attempt_id": f"attempt_id + {shift['attempts']}"}
    _insert(connection, "attempts", of_sample | {"id": f"id + {shift['attempts']}"})
    _insert(connection, "replies", of_attempt)
    _insert(connection, "tokens", of_sample | of_attempt)
    for table in OF_SAMPLE:
        _insert(connection, table, of_sample)
    connection.execute("DROP TABLE IF EXISTS temp.path_of")
    connection.execute("CREATE TEMP TABLE path_of (old_path TEXT PRIMARY KEY, new_path TEXT NOT NULL)")
    connection.executemany("INSERT INTO temp.path_of VALUES (?, ?)", source.shard_paths.items())
    new_path = "(SELECT new_path FROM temp.path_of WHERE old_path = path)"
    _insert(connection, "shards", {"id": f"id + {shift['shards']}", "path": new_path})
    _insert(connection, "features", of_sample | {"shard_id": f"shard_id + {shift['shards']}"})
    _join_endpoints(connection)
    for table in KEPT:
        where = " WHERE applied_at IS NOT NULL" if table == "commands" else ""
        connection.execute(f"INSERT INTO temp.arrived_{table} SELECT * FROM source.{table}{where}")
    connection.execute("INSERT INTO temp.arrived_findings SELECT ?, * FROM source.findings", (source.name,))
    connection.execute("INSERT INTO temp.arrived_ticks SELECT ?, * FROM source.ticks", (number,))
    _take_times(connection)


def _highest(connection: sqlite3.Connection, table: str) -> int:
    (highest,) = connection.execute(f"SELECT coalesce(max(id), 0) FROM main.{table}").fetchone()
    return int(highest)


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in connection.execute(f"PRAGMA main.table_info({table})")]


def _insert(connection: sqlite3.Connection, table: str, changed: dict[str, str]) -> None:
    """Copy a table's rows, with other expressions for some columns."""
    columns = _columns(connection, table)
    values = ", ".join(changed.get(column, column) for column in columns)
    connection.execute(f"INSERT INTO main.{table} ({', '.join(columns)}) SELECT {values} FROM source.{table}")


def _join_endpoints(connection: sqlite3.Connection) -> None:
    """One row an endpoint: suspect where any part found it so; profile and offset only where all agree."""
    connection.execute(
        """INSERT INTO main.endpoints SELECT * FROM source.endpoints WHERE true
        ON CONFLICT (tag) DO UPDATE SET
            quantization = CASE WHEN quantization IS excluded.quantization THEN quantization END,
            state = CASE WHEN 'quarantined' IN (state, excluded.state) THEN 'quarantined' ELSE 'open' END,
            quarantined_since = min(coalesce(quarantined_since, excluded.quarantined_since),
                                    coalesce(excluded.quarantined_since, quarantined_since)),
            profile = CASE WHEN profile IS excluded.profile THEN profile END,
            offset_tokens = CASE WHEN offset_cause IS excluded.offset_cause THEN offset_tokens END,
            offset_cause = CASE WHEN offset_cause IS excluded.offset_cause THEN offset_cause END"""
    )


def _take_times(connection: sqlite3.Connection) -> None:
    connection.execute(
        """UPDATE main.run SET
            started_at = (SELECT min(at) FROM (SELECT run.started_at AS at UNION SELECT started_at FROM source.run)
                          WHERE at IS NOT NULL),
            finished_at = (SELECT max(at) FROM (SELECT run.finished_at AS at UNION SELECT finished_at FROM source.run)
                           WHERE at IS NOT NULL)"""
    )


def _settle_history(connection: sqlite3.Connection, sources: int) -> None:
    """Put what has a time in its order, and join findings and ticks."""
    # Every source fetched the same prices: a price is a row where it differs from the one before.
    connection.execute(
        """DELETE FROM temp.arrived_prices WHERE rowid IN (
            SELECT number FROM (
                SELECT number, now, lag(now) OVER (PARTITION BY endpoint ORDER BY fetched_at, number) AS before
                FROM (SELECT rowid AS number, endpoint, fetched_at,
                             json_array(prompt_usd, completion_usd, request_usd, max_completion_tokens) AS now
                      FROM temp.arrived_prices))
            WHERE now = before)"""
    )
    for table in KEPT:
        columns = ", ".join(_columns(connection, table)[1:])
        time = _TIME.get(table, "at")
        connection.execute(
            f"INSERT INTO {table} ({columns}) SELECT {columns} FROM temp.arrived_{table} ORDER BY {time}, rowid"
        )
    # A sentence has its figures inside, so those of several parts stand beside each other, each with its run's name.
    connection.execute(
        """INSERT INTO findings (kind, endpoint, sentence, affected, examined, example_key, action,
                                 first_at, last_at, closed_at)
        SELECT kind, endpoint,
               CASE WHEN count(*) = 1 THEN min(sentence) ELSE group_concat(source || ': ' || sentence, ' ') END,
               sum(affected), sum(examined), min(example_key), min(action), min(first_at), max(last_at),
               CASE WHEN count(closed_at) = count(*) THEN max(closed_at) END
        FROM (SELECT * FROM temp.arrived_findings ORDER BY rowid) GROUP BY kind, endpoint"""
    )
    rows = connection.execute("SELECT * FROM temp.arrived_ticks ORDER BY at, source").fetchall()
    connection.executemany("INSERT INTO ticks VALUES (?, ?, ?, ?, ?, ?, ?)", _joined_ticks(rows, sources))


def _joined_ticks(rows: Sequence[tuple[int, ...]], sources: int) -> Iterator[tuple[int, ...]]:
    """Add up, second by second, what each source last said; what is in flight counts only in the second it was told."""
    answered, tokens, settled, extracted = ([0] * sources for _ in range(4))
    for at, told in groupby(rows, key=lambda row: row[1]):
        held = in_flight = 0
        for source, _, *figures in told:
            answered[source], tokens[source], settled[source], held_here, in_flight_here, extracted[source] = figures
            held += held_here
            in_flight += in_flight_here
        yield at, sum(answered), sum(tokens), sum(settled), held, in_flight, sum(extracted)


def _count(connection: sqlite3.Connection) -> None:
    """Compute the counters and the extractor's queue from the rows."""
    connection.execute("DELETE FROM to_extract")
    connection.execute(
        f"""INSERT INTO to_extract (sample_id)
        SELECT samples.id FROM samples JOIN tokens ON tokens.sample_id = samples.id
        WHERE samples.state = 'tokenized' AND samples.usability IN {TRAINABLE} AND tokens.output_ids IS NOT NULL
          AND NOT EXISTS (SELECT 1 FROM features WHERE features.sample_id = samples.id
                          AND features.tokens_revision = tokens.revision)"""
    )
    connection.execute("DELETE FROM counters")
    for counter in COUNTERS:
        connection.execute(count_statement(counter))


def _finish_run(connection: sqlite3.Connection) -> None:
    """A run with samples left to ask goes on when it is started; one without is done."""
    connection.execute(
        """UPDATE run SET state = CASE WHEN EXISTS (SELECT 1 FROM samples WHERE state = 'queued')
                                       THEN 'stopped' ELSE 'done' END"""
    )
