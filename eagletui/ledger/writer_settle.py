"""Keep answers and settle money: the writes after a request."""

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from eagletui.core.chat import Message
from eagletui.core.errors import LedgerError
from eagletui.ledger.books import OVERRUN, overrun_of, read_open_attempts
from eagletui.ledger.codecs import Packed, pack_bytes
from eagletui.ledger.orders import Answered, Failed, Finished, OpenAttempt, Overrun
from eagletui.ledger.turns import end_turns, keep_turn
from eagletui.ledger.writer_tokens import TokensWriter, put_tokens


class _Attempt(NamedTuple):
    id: int
    sample_id: int
    state: str
    released: int
    has_answer: int


class SettleWriter(TokensWriter):
    """Writes of the engine once a request has ended."""

    def finish(self, batch: Sequence[Finished]) -> list[Overrun]:
        """Record how attempts ended, in one durable transaction; what is recorded already is left as it is.

        Args:
            batch: at most 200 keeps the transaction short.

        Returns:
            Attempts that cost more than their hold; admission must stop and the row be named.
        """
        overruns: list[Overrun] = []
        with self._transactions.begin(durable=True) as connection:
            for finished in batch:
                attempt = _find(connection, finished.attempt_id)
                match finished.outcome:
                    case Answered() as answer:
                        self._keep_answer(connection, attempt, answer)
                    case Failed() as failure:
                        self._keep_failure(connection, attempt, failure)
                if attempt.state != "settled":
                    # Where the answer or the restart came first, only the cost is news.
                    if finished.outcome.cost_pico is not None and _state(connection, attempt.id) == "unsettled":
                        self.settle(attempt.id, finished.outcome.cost_pico)
                    overruns += _overrun(connection, attempt.id)
        return overruns

    def settle(
        self,
        attempt_id: int,
        cost_pico: int,
        *,
        billed_prompt_tokens: int | None = None,
        billed_output_tokens: int | None = None,
    ) -> list[Overrun]:
        """Replace an unsettled hold by its real cost, once known; a settled attempt is left as it is.

        If an adjustment had covered the hold, the adjustment is taken back by as much, so that the sum stays right.

        Args:
            attempt_id: an unsettled attempt, or one that is sent and will bring no answer.
            cost_pico: what the provider billed.
            billed_prompt_tokens: from the provider's record.
            billed_output_tokens: from the provider's record.

        Returns:
            The attempt if it cost more than its hold.
        """
        with self._transactions.begin(durable=True) as connection:
            attempt = _find(connection, attempt_id)
            if attempt.state == "settled":
                return []
            if attempt.released:
                self._take_back(connection, attempt_id, cost_pico)
            connection.execute(
                "UPDATE attempts SET state = 'settled', cost_pico = ?, released = 0, settled_at = ?,"
                " billed_prompt_tokens = coalesce(?, billed_prompt_tokens),"
                " billed_output_tokens = coalesce(?, billed_output_tokens) WHERE id = ?",
                (cost_pico, self._clock(), billed_prompt_tokens, billed_output_tokens, attempt_id),
            )
            connection.execute(
                "UPDATE samples SET cost_pico = ?, billed_prompt_tokens = coalesce(billed_prompt_tokens, ?),"
                " billed_output_tokens = coalesce(billed_output_tokens, ?) WHERE answered_attempt_id = ?",
                (cost_pico, billed_prompt_tokens, billed_output_tokens, attempt_id),
            )
            return _overrun(connection, attempt_id)

    def open_attempts(self) -> list[OpenAttempt]:
        """List attempts that ended without a known cost and are not covered by an adjustment, oldest first."""
        with self._transactions.reading() as connection:
            return read_open_attempts(connection)

    def covered_attempts(self) -> list[OpenAttempt]:
        """List attempts without a known cost whose holds were released, because an adjustment covers them."""
        with self._transactions.reading() as connection:
            return read_open_attempts(connection, covered=True)

    def void(self, attempt_id: int, error_kind: str = "not_sent", error_detail: str = "") -> None:
        """Release the hold of an attempt of which provably nothing was sent; its sample stays in flight."""
        with self._transactions.begin(durable=True) as connection:
            connection.execute(
                "UPDATE attempts SET state = 'void', ended_at = ?, error_kind = ?, error_detail = ?"
                " WHERE id = ? AND state <> 'void'",
                (self._clock(), error_kind, error_detail, attempt_id),
            )

    def adjust_unattributed(self, amount_pico: int, attempt_ids: Sequence[int], detail: str) -> int:
        """Book money that is gone and that no attempt explains, and release the holds it covers.

        The finding that these attempts have no known cost is closed, and the log says what was booked.

        Args:
            amount_pico: what the key shows beyond the settled, after quiescence; the bounds where no key can show it.
            attempt_ids: unsettled attempts whose cost lies in that sum; those released already are not counted again.
            detail: one sentence for the record and the log.

        Returns:
            How many holds were released.
        """
        with self._transactions.begin(durable=True) as connection:
            released = 0
            for attempt_id in attempt_ids:
                released += connection.execute(
                    "UPDATE attempts SET released = 1 WHERE id = ? AND state = 'unsettled' AND released = 0",
                    (attempt_id,),
                ).rowcount
            self._adjust(connection, amount_pico, detail, released)
            if released:
                connection.execute(
                    "UPDATE findings SET closed_at = ? WHERE kind = 'unsettled' AND closed_at IS NULL", (self._clock(),)
                )
            if amount_pico or released:
                self.event("warn", "engine", "unattributed", detail)
        return released

    def _adjust(self, connection: sqlite3.Connection, amount_pico: int, detail: str, released: int = 0) -> None:
        if amount_pico or released:
            connection.execute(
                "INSERT INTO adjustments (at, kind, amount_pico, attempts, detail) VALUES (?, 'unattributed', ?, ?, ?)",
                (self._clock(), amount_pico, released, detail),
            )

    def _take_back(self, connection: sqlite3.Connection, attempt_id: int, cost_pico: int) -> None:
        (unattributed,) = connection.execute("SELECT coalesce(sum(amount_pico), 0) FROM adjustments").fetchone()
        amount_pico = max(0, min(cost_pico, unattributed))
        self._adjust(connection, -amount_pico, f"Attempt {attempt_id} settled after all.")

    def _keep_answer(self, connection: sqlite3.Connection, attempt: _Attempt, answer: Answered) -> None:
        if attempt.has_answer or attempt.state == "void":
            return
        cost_pico = answer.cost_pico
        if attempt.state == "settled":
            # Its cost was learned first, as after a restart; an answer that is here all the same is not bought again.
            cost_pico = _cost_without_reply(connection, attempt.id)
            if cost_pico is None:
                return
        now = self._clock()
        if attempt.state == "held":
            connection.execute("UPDATE attempts SET state = 'sent', sent_at = ? WHERE id = ?", (now, attempt.id))
        if attempt.released and cost_pico is not None:
            self._take_back(connection, attempt.id, cost_pico)
        self._keep_reply(connection, attempt.id, answer.body, answer.encoding)
        is_first = _make_in_flight(connection, attempt.sample_id)
        connection.execute(
            "UPDATE attempts SET state = ?, cost_pico = ?, has_answer = ?, ended_at = ?,"
            " settled_at = coalesce(settled_at, ?), released = ?, first_event_at = ?,"
            " billed_prompt_tokens = ?, billed_output_tokens = ?,"
            " generation_id = coalesce(?, generation_id) WHERE id = ?",
            (
                "unsettled" if cost_pico is None else "settled",
                cost_pico,
                is_first,
                now,
                None if cost_pico is None else now,
                attempt.released if cost_pico is None else 0,
                answer.first_event_at,
                answer.billed_prompt_tokens,
                answer.billed_output_tokens,
                answer.generation_id,
                attempt.id,
            ),
        )
        if not is_first:
            return
        connection.execute(
            "UPDATE samples SET state = 'answered', answered_attempt_id = ?, endpoint = ?, finish_reason = ?,"
            " billed_prompt_tokens = ?, billed_output_tokens = ?, cost_pico = ?, latency_s = ?, answered_at = ?"
            " WHERE id = ?",
            (
                attempt.id,
                answer.endpoint,
                answer.finish_reason,
                answer.billed_prompt_tokens,
                answer.billed_output_tokens,
                cost_pico,
                answer.latency_s,
                now,
                attempt.sample_id,
            ),
        )
        if answer.tokens is not None:
            put_tokens(connection, attempt.sample_id, attempt.id, answer.tokens, now)
        # It was on its way when its endpoint was quarantined, and is as suspect as those before it.
        connection.execute(
            "UPDATE samples SET state = 'quarantined', usability_before = usability, usability = 'model_suspect'"
            " WHERE id = ? AND answered_at >= (SELECT quarantined_since FROM endpoints WHERE tag = samples.endpoint)",
            (attempt.sample_id,),
        )
        match answer.next_turn:
            case Message() as message:
                keep_turn(connection, attempt.sample_id, message)
            case str() as why:
                end_turns(connection, attempt.sample_id, why)

    def _keep_failure(self, connection: sqlite3.Connection, attempt: _Attempt, failure: Failed) -> None:
        if attempt.state not in ("held", "sent"):
            if failure.body is not None and attempt.state != "void":
                # A restart was sooner; what had arrived is kept all the same, with an id that its body alone names.
                self._keep_reply(connection, attempt.id, failure.body, failure.encoding)
                connection.execute(
                    "UPDATE attempts SET generation_id = ? WHERE id = ? AND generation_id IS NULL",
                    (failure.generation_id, attempt.id),
                )
            return
        now = self._clock()
        if attempt.state == "held" and failure.attempt_state != "void":
            connection.execute("UPDATE attempts SET state = 'sent', sent_at = ? WHERE id = ?", (now, attempt.id))
        if failure.body is not None:
            self._keep_reply(connection, attempt.id, failure.body, failure.encoding)
        connection.execute(
            "UPDATE attempts SET state = ?, cost_pico = ?, ended_at = ?, settled_at = ?, error_kind = ?,"
            " error_detail = ?, http_status = coalesce(?, http_status), generation_id = coalesce(?, generation_id)"
            " WHERE id = ?",
            (
                failure.attempt_state,
                failure.cost_pico,
                now,
                now if failure.attempt_state == "settled" else None,
                failure.error_kind,
                failure.error_detail,
                failure.http_status,
                failure.generation_id,
                attempt.id,
            ),
        )
        if failure.retry_at is not None:
            connection.execute(
                "UPDATE samples SET state = 'queued', not_before = ?, attempts_excused = attempts_excused + ?"
                " WHERE id = ? AND state = 'in_flight'",
                (failure.retry_at, failure.excused, attempt.sample_id),
            )
        else:
            connection.execute(
                "UPDATE samples SET state = ?, failure_kind = ?, failure_detail = ?"
                " WHERE id = ? AND state = 'in_flight'",
                (
                    "refused" if failure.refused else "failed",
                    failure.error_kind,
                    failure.error_detail,
                    attempt.sample_id,
                ),
            )
            end_turns(connection, attempt.sample_id, f"was not given ({failure.error_kind})")

    def _keep_reply(self, connection: sqlite3.Connection, attempt_id: int, body: bytes | Packed, encoding: str) -> None:
        packed = body if isinstance(body, Packed) else Packed(pack_bytes(body), len(body))
        connection.execute(
            "INSERT INTO replies (attempt_id, encoding, body, body_bytes, received_at) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (attempt_id) DO NOTHING",
            (attempt_id, encoding, packed.blob, packed.size_bytes, self._clock()),
        )


def _overrun(connection: sqlite3.Connection, attempt_id: int) -> list[Overrun]:
    rows = connection.execute(
        f"SELECT {OVERRUN} FROM attempts"
        " JOIN samples ON samples.id = attempts.sample_id WHERE attempts.id = ? AND attempts.cost_pico > hold_pico",
        (attempt_id,),
    )
    return [overrun_of(row) for row in rows]


def _find(connection: sqlite3.Connection, attempt_id: int) -> _Attempt:
    found = connection.execute(
        "SELECT id, sample_id, state, released, has_answer FROM attempts WHERE id = ?", (attempt_id,)
    ).fetchone()
    if found is None:
        raise LedgerError(f"attempt {attempt_id} is not in the ledger")
    return _Attempt(*found)


def _cost_without_reply(connection: sqlite3.Connection, attempt_id: int) -> int | None:
    """Return what a settled attempt cost, if no reply of it is kept."""
    found = connection.execute(
        "SELECT cost_pico FROM attempts WHERE id = :id AND NOT EXISTS (SELECT 1 FROM replies WHERE attempt_id = :id)",
        {"id": attempt_id},
    ).fetchone()
    return None if found is None else int(found[0])


def _state(connection: sqlite3.Connection, attempt_id: int) -> str:
    (state,) = connection.execute("SELECT state FROM attempts WHERE id = ?", (attempt_id,)).fetchone()
    return str(state)


def _make_in_flight(connection: sqlite3.Connection, sample_id: int) -> bool:
    """Bring a sample back to in_flight if an answer arrives late; tell whether it still waits for one."""
    (state,) = connection.execute("SELECT state FROM samples WHERE id = ?", (sample_id,)).fetchone()
    if state in ("failed", "refused"):
        connection.execute(
            "UPDATE samples SET state = 'queued', failure_kind = NULL, failure_detail = NULL WHERE id = ?", (sample_id,)
        )
        state = "queued"
    if state == "queued":
        connection.execute("UPDATE samples SET state = 'in_flight' WHERE id = ?", (sample_id,))
        state = "in_flight"
    return bool(state == "in_flight")
