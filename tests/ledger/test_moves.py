"""The ledger refuses every move that the state tables do not list."""

import sqlite3
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest

from eagletui.core.errors import LedgerError
from eagletui.core.lifecycle import (
    ATTEMPT_MOVES,
    RUN_MOVES,
    SAMPLE_MOVES,
    AttemptState,
    RunState,
    SampleState,
    may_move,
)
from eagletui.ledger.writer import LedgerWriter
from tests.ledger.build import answered_sample, queue, send, sql

FIRST = {"sample": "queued", "attempt": "held", "run": "new"}


_GO_WITH = {
    "samples": "failure_kind = CASE WHEN :state IN ('failed', 'refused') THEN 'x' END,"
    " answered_attempt_id = CASE WHEN :state IN ('answered', 'tokenized', 'quarantined') THEN 1 END",
    "attempts": "cost_pico = CASE WHEN :state = 'settled' THEN 1 END",
    "run": "pause_reason = CASE WHEN :state = 'paused' THEN 'user' END",
}
"""What a state has to have beside it, by table."""


def _place(path: Path, table: str, state: str) -> sqlite3.Connection:
    """Put the first row of a table into a state without asking the triggers, which stay in the file."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    triggers = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?", (table,)
    ).fetchall()
    for name, _ in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute(f"UPDATE {table} SET state = :state, {_GO_WITH[table]} WHERE id = 1", {"state": state})
    for _, statement in triggers:
        connection.execute(statement)
    return connection


def _move(connection: sqlite3.Connection, table: str, state: str) -> None:
    connection.execute(f"UPDATE {table} SET state = :state, {_GO_WITH[table]} WHERE id = 1", {"state": state})


def test_a_sample_moves_only_as_the_table_says(writer: LedgerWriter, path: Path) -> None:
    queue(writer, "a")
    send(writer, 1)
    _walk(path, "samples", SAMPLE_MOVES, get_args(SampleState))


def test_an_attempt_moves_only_as_the_table_says(writer: LedgerWriter, path: Path) -> None:
    queue(writer, "a")
    send(writer, 1)
    _walk(path, "attempts", ATTEMPT_MOVES, get_args(AttemptState))


def test_a_run_moves_only_as_the_table_says(path: Path) -> None:
    _walk(path, "run", RUN_MOVES, get_args(RunState))


def _walk(path: Path, table: str, moves: Mapping[Any, tuple[Any, ...]], states: tuple[str, ...]) -> None:
    """Try every pair of states on the first row of a table."""
    for old, new in product(states, repeat=2):
        connection = _place(path, table, old)
        try:
            if may_move(moves, old, new):
                _move(connection, table, new)
                expected = new
            else:
                with pytest.raises(sqlite3.IntegrityError, match=r"illegal move|never changes"):
                    _move(connection, table, new)
                expected = old
            found = connection.execute(f"SELECT state FROM {table} WHERE id = 1").fetchone()
            assert found == (expected,), f"{table}: {old} to {new}"
        finally:
            connection.close()


@pytest.mark.parametrize("state", [*get_args(SampleState), "nonsense"])
def test_a_new_sample_is_queued_and_nothing_else(writer: LedgerWriter, path: Path, state: str) -> None:
    queue(writer, "a")
    connection = sqlite3.connect(path, isolation_level=None)
    statement = "INSERT INTO samples (sample_key, prompt_id, answer_index, dataset, state) VALUES ('b', 1, 1, 'p', ?)"
    try:
        if state == FIRST["sample"]:
            connection.execute(statement, (state,))
        else:
            with pytest.raises(sqlite3.IntegrityError):
                connection.execute(statement, (state,))
    finally:
        connection.close()


def test_the_writer_says_which_move_was_refused(writer: LedgerWriter, path: Path) -> None:
    with pytest.raises(LedgerError, match=r"ledger\.sqlite refused a change: illegal move of a run"):
        writer.set_run_state("done")
    assert writer.run().state == "new"


def test_the_moves_can_be_read_from_the_file(path: Path) -> None:
    assert sql(path, "SELECT new_state FROM moves WHERE machine = 'attempt' AND old_state = 'unsettled'") == [
        ("settled",)
    ]


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("UPDATE attempts SET hold_pico = hold_pico - 1", "a hold never changes"),
        ("UPDATE attempts SET cost_pico = cost_pico + 1", "a settled cost never changes"),
        ("UPDATE replies SET body_bytes = 0", "a reply is kept as received"),
        ("DELETE FROM replies", "a reply is kept as received"),
        ("DELETE FROM attempts", "never deleted"),
        ("DELETE FROM samples", "never deleted"),
    ],
)
def test_money_and_replies_cannot_be_rewritten(writer: LedgerWriter, path: Path, statement: str, reason: str) -> None:
    queue(writer, "a")
    answered_sample(writer, 1)
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        with pytest.raises(sqlite3.IntegrityError, match=reason):
            connection.execute(statement)
    finally:
        connection.close()


def test_a_booked_adjustment_cannot_be_rewritten(writer: LedgerWriter, path: Path) -> None:
    writer.adjust_unattributed(5, [], "found on the key")
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        for statement in ("UPDATE adjustments SET amount_pico = 0", "DELETE FROM adjustments"):
            with pytest.raises(sqlite3.IntegrityError, match="book another one"):
                connection.execute(statement)
    finally:
        connection.close()
