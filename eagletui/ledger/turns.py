"""Turns of one conversation, asked in order: what waits, what is released, what can never be asked."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from eagletui.core.chat import Message, Prompt
from eagletui.core.turns import with_answers
from eagletui.ledger.codecs import pack_bytes, unpack_bytes, unpack_prompt

WAITS: Final = 9e15
"""`not_before` of a queued turn while the turn before it has no answer: later than any clock."""

FAILURE: Final = "turn_before"
"""`failure_kind` of a turn that cannot be asked because of the one before it."""

_MESSAGE: Final = msgspec.json.Decoder(Message)

_SAME: Final = "other.prompt_id = this.prompt_id AND other.answer_index = this.answer_index"


def asked_prompt(connection: sqlite3.Connection, sample_id: int, body: bytes, turn: int) -> Prompt:
    """Return what is asked of the model: the conversation up to the turn, with the model's own earlier turns."""
    return with_answers(unpack_prompt(body), turn, _earlier(connection, sample_id) if turn else {})


def keep_turn(connection: sqlite3.Connection, sample_id: int, message: Message) -> None:
    """Keep an answer as a turn of its conversation, and release the turn that waits for it.

    One that was bought again takes the place of the first, unless a later turn was answered after that one.
    """
    connection.execute(
        f"""INSERT INTO turns (sample_id, message) VALUES (?, ?) ON CONFLICT (sample_id) DO UPDATE
        SET message = excluded.message WHERE NOT EXISTS (
            SELECT 1 FROM samples AS this JOIN samples AS other ON {_SAME} AND other.turn > this.turn
            WHERE this.id = turns.sample_id AND other.answered_attempt_id IS NOT NULL)""",
        (sample_id, pack_bytes(msgspec.json.encode(message))),
    )
    connection.execute(
        f"""UPDATE samples SET not_before = 0 WHERE state = 'queued' AND not_before = {WAITS} AND id = (
            SELECT other.id FROM samples AS this JOIN samples AS other ON {_SAME} AND other.turn > this.turn
            WHERE this.id = ? ORDER BY other.turn LIMIT 1)""",
        (sample_id,),
    )


def end_turns(connection: sqlite3.Connection, sample_id: int, why: str) -> None:
    """Give up the turns that wait for one that has no usable answer.

    Args:
        connection: inside a transaction.
        sample_id: of the turn that ended.
        why: completes "The answer before ...".
    """
    later = connection.execute(
        f"""SELECT other.id FROM samples AS this JOIN samples AS other ON {_SAME} AND other.turn > this.turn
        WHERE this.id = ? AND other.state = 'queued' AND other.not_before = {WAITS}""",
        (sample_id,),
    ).fetchall()
    connection.executemany("UPDATE samples SET state = 'in_flight', not_before = 0 WHERE id = ?", later)
    connection.executemany(
        "UPDATE samples SET state = 'failed', failure_kind = ?, failure_detail = ? WHERE id = ?",
        [(FAILURE, f"The answer before {why}.", row_id) for (row_id,) in later],
    )


def can_be_retried(row: str) -> str:
    """Return the condition that a failed sample could be asked: the turn before it has no answer, or a usable one."""
    return f"""NOT EXISTS (SELECT 1 FROM samples AS other WHERE other.prompt_id = {row}.prompt_id
        AND other.answer_index = {row}.answer_index AND other.turn < {row}.turn
        AND other.answered_attempt_id IS NOT NULL AND {row}.failure_kind = '{FAILURE}'
        AND NOT EXISTS (SELECT 1 FROM turns WHERE turns.sample_id = other.id))"""


def set_aside_later(connection: sqlite3.Connection, sample_ids: Sequence[int]) -> list[int]:
    """Before samples give up their answers: set aside the turns that were asked after those answers.

    One that is being asked right now stays: its answer belongs to the text that it was asked after.

    Args:
        connection: inside a transaction.
        sample_ids: quarantined ones.

    Returns:
        The later turns that are quarantined now, or were.
    """
    chosen = json.dumps(sample_ids)
    later = f"""SELECT other.id FROM json_each(:chosen) AS one JOIN samples AS this ON this.id = one.value
        JOIN samples AS other ON {_SAME} AND other.turn > this.turn"""
    connection.execute(
        f"""UPDATE samples SET state = 'quarantined', usability_before = usability, usability = 'model_suspect'
        WHERE state IN ('answered', 'tokenized') AND id IN ({later})""",
        {"chosen": chosen},
    )
    rows = connection.execute(
        f"SELECT id FROM samples WHERE state = 'quarantined' AND id IN ({later}) ORDER BY id", {"chosen": chosen}
    ).fetchall()
    found = [row_id for (row_id,) in rows]
    connection.execute(
        f"""DELETE FROM turns WHERE sample_id IN (SELECT value FROM json_each(:given_up)) AND NOT EXISTS (
            SELECT 1 FROM samples AS this JOIN samples AS other ON {_SAME} AND other.turn > this.turn
            WHERE this.id = turns.sample_id AND other.state = 'in_flight')""",
        {"given_up": json.dumps([*sample_ids, *found])},
    )
    return found


def queue_failed_later(connection: sqlite3.Connection, sample_ids: Sequence[int], retried_at: float) -> int:
    """After samples gave up their answers: queue the failed turns after them too, and return how many."""
    return connection.execute(
        f"""UPDATE samples SET state = 'queued', failure_kind = NULL, failure_detail = NULL, not_before = ?,
            attempts_excused = attempts, attempts_before = attempts
        WHERE state IN ('failed', 'refused') AND id IN (
            SELECT other.id FROM json_each(?) AS one JOIN samples AS this ON this.id = one.value
            JOIN samples AS other ON {_SAME} AND other.turn > this.turn)""",
        (retried_at, json.dumps(sample_ids)),
    ).rowcount


class LaterAnswers(NamedTuple):
    """Answered turns that follow others in their conversations."""

    samples: int
    prompt_tokens: int
    """As billed."""
    output_tokens: int


def count_later_answers(
    connection: sqlite3.Connection, sample_ids: Sequence[int], endpoint: str, since: float
) -> LaterAnswers:
    """Count the answers of others that follow an endpoint's quarantined ones.

    An answer that follows several is counted with the last of them, so that counts over parts add up.

    Args:
        connection: of the ledger.
        sample_ids: answers of the endpoint.
        endpoint: its tag.
        since: Unix seconds: what it answered from then on is, or will be, quarantined.
    """
    return LaterAnswers(
        *connection.execute(
            f"""SELECT count(*), coalesce(sum(coalesce(other.billed_prompt_tokens, other.prompt_tokens)), 0),
                coalesce(sum(coalesce(other.billed_output_tokens, other.output_tokens)), 0)
            FROM json_each(:ids) AS one
            JOIN samples AS this ON this.id = one.value AND this.state = 'quarantined' AND this.answered_at >= :since
            JOIN samples AS other ON {_SAME} AND other.turn > this.turn AND other.state IN ('answered', 'tokenized')
            WHERE NOT (other.endpoint = :endpoint AND other.answered_at >= :since) AND NOT EXISTS (
                SELECT 1 FROM samples AS nearer WHERE nearer.prompt_id = this.prompt_id
                AND nearer.answer_index = this.answer_index AND nearer.turn > this.turn AND nearer.turn < other.turn
                AND nearer.endpoint = :endpoint AND nearer.answered_at >= :since)""",
            {"ids": json.dumps(sample_ids), "endpoint": endpoint, "since": since},
        ).fetchone()
    )


def order_retried(connection: sqlite3.Connection, sample_ids: Sequence[int], retried_at: float) -> int:
    """After samples were queued again: queue failed turns before them too, and let each wait for the one before.

    Args:
        connection: inside the transaction that queued them.
        sample_ids: those that were to be queued.
        retried_at: the `not_before` that marks those that were, and the turns that followed them.

    Returns:
        How many turns were queued in addition.
    """
    added = connection.execute(
        """UPDATE samples SET state = 'queued', failure_kind = NULL, failure_detail = NULL, not_before = :at,
            attempts_excused = attempts, attempts_before = attempts
        WHERE state IN ('failed', 'refused') AND id IN (
            SELECT earlier.id FROM json_each(:ids) AS one JOIN samples AS this ON this.id = one.value
            JOIN samples AS earlier ON earlier.prompt_id = this.prompt_id
                AND earlier.answer_index = this.answer_index AND earlier.turn < this.turn
            WHERE this.state = 'queued' AND this.not_before = :at)""",
        {"ids": json.dumps(sample_ids), "at": retried_at},
    ).rowcount
    connection.execute(
        f"""UPDATE samples AS this SET not_before = {WAITS} WHERE state = 'queued' AND not_before = ? AND EXISTS (
            SELECT 1 FROM samples AS other WHERE {_SAME} AND other.turn < this.turn
            AND other.answered_attempt_id IS NULL)""",
        (retried_at,),
    )
    return added


def _earlier(connection: sqlite3.Connection, sample_id: int) -> Mapping[int, Message]:
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'turns'").fetchone() is None:
        return {}  # a ledger of an earlier version, which a viewer reads as it is
    rows = connection.execute(
        f"""SELECT other.turn, turns.message FROM samples AS this
        JOIN samples AS other ON {_SAME} AND other.turn < this.turn
        JOIN turns ON turns.sample_id = other.id WHERE this.id = ?""",
        (sample_id,),
    )
    return {turn: _MESSAGE.decode(unpack_bytes(message)) for turn, message in rows}
