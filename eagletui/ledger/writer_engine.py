"""Reserve money, send, and recover: the writes before an answer."""

import json
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from eagletui.core.money import Books, admit
from eagletui.ledger.books import read_books
from eagletui.ledger.codecs import unpack_prompt
from eagletui.ledger.migrate import finish_upgrade
from eagletui.ledger.orders import Admission, AdmitRequest, QueuedSample, Recovery, SpooledFor
from eagletui.ledger.turns import WAITS, asked_prompt, end_turns
from eagletui.ledger.writer_base import Writer

LONGEST_RETRY_S: Final = 3_660.0
"""An hour of `Retry-After`, and the jitter on it."""

Tags = tuple[str, ...]
"""Endpoints, sorted."""

_QUEUED: Final = """samples.id, samples.sample_key, samples.dataset, prompts.body, samples.attempts,
    samples.attempts_excused, samples.answer_index, samples.turn,
    EXISTS (SELECT 1 FROM samples AS later WHERE later.prompt_id = samples.prompt_id
            AND later.answer_index = samples.answer_index AND later.turn > samples.turn)"""
"""What `_queued` makes a sample of, over `samples` and `prompts`."""


class AttemptWriter(Writer):
    """Writes of the engine before and while a request is out."""

    def claim(self, limit: int) -> list[QueuedSample]:
        """List samples that may be sent now: due retries first, then untried ones in ingest order.

        Nothing changes: a sample leaves the queue when it is admitted.

        Args:
            limit: at most this many.
        """
        query = f"""SELECT {_QUEUED}
            FROM samples INDEXED BY samples_due JOIN prompts ON prompts.id = samples.prompt_id
            WHERE samples.state = 'queued' AND samples.parked_for IS NULL AND {{due}}
            ORDER BY not_before, samples.id LIMIT ?"""
        with self._transactions.reading() as connection:
            rows = connection.execute(
                query.format(due="not_before > 0 AND not_before <= ?"), (self._clock(), limit)
            ).fetchall()
            if len(rows) < limit:
                rows += connection.execute(query.format(due="not_before = 0"), (limit - len(rows),)).fetchall()
            return [_queued(connection, row) for row in rows]

    def next_due_at(self) -> float | None:
        """Return when the next queued sample may be sent (0: now), or None without one; parked ones are left out.

        A turn that waits for the one before it is queued for a time that no clock reaches (`WAITS`).
        """
        with self._transactions.reading() as connection:
            (due,) = connection.execute(
                "SELECT min(not_before) FROM samples INDEXED BY samples_due"
                " WHERE state = 'queued' AND parked_for IS NULL"
            ).fetchone()
        return None if due is None else float(due)

    def has_queued(self) -> bool:
        """Tell whether any sample is queued, whatever it waits for."""
        with self._transactions.reading() as connection:
            found = connection.execute(
                "SELECT 1 FROM samples INDEXED BY samples_by_state WHERE state = 'queued' LIMIT 1"
            ).fetchone()
        return found is not None

    def books(self) -> Books:
        """Return where the money stands."""
        with self._transactions.reading() as connection:
            return read_books(connection)

    def admit(self, requests: Sequence[AdmitRequest]) -> list[Admission]:
        """Reserve money for requests, in order, in one durable transaction.

        A request is admitted only if `core.money.admit` says so with everything admitted before it in the same call.
        After the first `stop_at` or `cap` the rest is still judged, because a smaller bound may fit.

        Args:
            requests: what to send. Send only what comes back admitted, and only after this returns.

        Returns:
            One admission per request, in order.
        """
        admissions = []
        with self._transactions.begin(durable=True) as connection:
            (state,) = connection.execute("SELECT state FROM run").fetchone()
            books = read_books(connection)
            now = self._clock()
            for request in requests:
                if state != "running":
                    admissions.append(Admission(request.sample_id, None, "not_running"))
                    continue
                verdict = admit(books, request.hold_pico)
                if verdict != "admit":
                    admissions.append(Admission(request.sample_id, None, verdict))
                    continue
                moved = connection.execute(
                    "UPDATE samples SET state = 'in_flight', attempts = attempts + 1, parked_for = NULL"
                    " WHERE id = ? AND state = 'queued' RETURNING attempts",
                    (request.sample_id,),
                ).fetchall()
                if not moved:
                    admissions.append(Admission(request.sample_id, None, "not_queued"))
                    continue
                cursor = connection.execute(
                    "INSERT INTO attempts (sample_id, number, endpoint, hold_pico, streamed, held_at)"
                    " VALUES (?, ?, ?, ?, ?, ?)",
                    (request.sample_id, moved[0][0], request.endpoint, request.hold_pico, request.streamed, now),
                )
                admissions.append(Admission(request.sample_id, cursor.lastrowid, "admit"))
                books = replace(books, held_pico=books.held_pico + request.hold_pico)
        return admissions

    def give_up_unasked(self, samples: Sequence[tuple[int, str]]) -> None:
        """Let queued samples fail that nobody can be asked for; a retry queues them again.

        Args:
            samples: id, and why in one sentence.
        """
        with self._transactions.begin() as connection:
            for sample_id, why in samples:
                moved = connection.execute(
                    "UPDATE samples SET state = 'in_flight' WHERE id = ? AND state = 'queued'", (sample_id,)
                ).rowcount
                if moved:
                    connection.execute(
                        "UPDATE samples SET state = 'failed', failure_kind = 'no_endpoint', failure_detail = ?"
                        " WHERE id = ?",
                        (why, sample_id),
                    )
                    end_turns(connection, sample_id, "was not given (no_endpoint)")

    def park(self, waiting: Mapping[Tags, Sequence[int]]) -> Counter[Tags]:
        """Let queued samples wait until `unpark`, and return how many wait now that did not.

        Args:
            waiting: rows of samples by the endpoints that they wait for, sorted.
        """
        parked: Counter[Tags] = Counter()
        with self._transactions.begin() as connection:
            for tags, sample_ids in waiting.items():
                parked[tags] = connection.execute(
                    "UPDATE samples SET parked_for = ?"
                    " WHERE id IN (SELECT value FROM json_each(?)) AND state = 'queued' AND parked_for IS NULL",
                    (json.dumps(tags), json.dumps(list(sample_ids))),
                ).rowcount
        return parked

    def unpark(self, tags: Tags | None, limit: int) -> int:
        """Let parked samples be claimed again, and return how many.

        Args:
            tags: those that wait for just these endpoints; None for all.
            limit: at most so many keep the transaction short.
        """
        which = "parked_for IS NOT NULL" if tags is None else "parked_for = :tags"
        with self._transactions.begin() as connection:
            return connection.execute(
                "UPDATE samples SET parked_for = NULL WHERE id IN (SELECT id FROM samples INDEXED BY samples_parked"
                f" WHERE {which} ORDER BY parked_for, id LIMIT :limit)",
                {"tags": json.dumps(tags), "limit": limit},
            ).rowcount

    def parked(self) -> Counter[Tags]:
        """Count the parked samples by the endpoints that they wait for."""
        with self._transactions.reading() as connection:
            rows = connection.execute(
                "SELECT parked_for, count(*) FROM samples INDEXED BY samples_parked WHERE parked_for IS NOT NULL"
                " GROUP BY parked_for"
            ).fetchall()
        return Counter({tuple(json.loads(tags)): samples for tags, samples in rows})

    def mark_sent(self, attempt_ids: Sequence[int]) -> None:
        """Record that the requests are about to be written to the socket; from here a crash keeps their holds."""
        now = self._clock()
        with self._transactions.begin(durable=True) as connection:
            connection.executemany(
                "UPDATE attempts SET state = 'sent', sent_at = ? WHERE id = ? AND state = 'held'",
                [(now, attempt_id) for attempt_id in attempt_ids],
            )

    def spooled_for(self, attempt_id: int) -> SpooledFor | None:
        """Return what a reply that was received and not filed belongs to; None where no such attempt was made."""
        with self._transactions.reading() as connection:
            row = connection.execute(
                f"""SELECT {_QUEUED}, attempts.endpoint, attempts.hold_pico,
                    EXISTS (SELECT 1 FROM replies WHERE replies.attempt_id = attempts.id)
                FROM attempts JOIN samples ON samples.id = attempts.sample_id
                    JOIN prompts ON prompts.id = samples.prompt_id
                WHERE attempts.id = ?""",
                (attempt_id,),
            ).fetchone()
            if row is None:
                return None
            *queued, endpoint, hold_pico, is_known = row
            return SpooledFor(_queued(connection, queued), endpoint, hold_pico, bool(is_known))

    def mark_headers(self, attempt_id: int, generation_id: str | None, http_status: int) -> None:
        """Keep the generation id before the body is read, so that a crash can still ask what it cost."""
        with self._transactions.begin(durable=True) as connection:
            connection.execute(
                "UPDATE attempts SET headers_at = ?, http_status = ?, generation_id = coalesce(?, generation_id)"
                " WHERE id = ?",
                (self._clock(), http_status, generation_id, attempt_id),
            )

    def bring_retries_forward(self, seconds: float) -> int:
        """Move retries that still wait, because the clock was set back by so much; return how many.

        Args:
            seconds: how far the clock fell back.
        """
        now = self._clock()
        with self._transactions.begin() as connection:
            return connection.execute(
                "UPDATE samples SET not_before = max(?, not_before - ?)"
                " WHERE state = 'queued' AND not_before > ? AND not_before < ?",
                (now, seconds, now, WAITS),
            ).rowcount

    def recover(self) -> Recovery:
        """Put right what a dead engine left: call once at start, holding the engine's lock.

        Held attempts were never sent and are voided. Sent ones may have been billed: they become unsettled and keep
        their holds. Their samples are queued again. No retry waits longer than a provider may ask for, however the
        clock was set meanwhile.
        """
        now = self._clock()
        with self._transactions.begin(durable=True) as connection:
            finish_upgrade(connection)
            voided = connection.execute(
                "UPDATE attempts SET state = 'void', ended_at = ?, error_kind = 'engine_died',"
                " error_detail = 'The engine ended before the request was sent.' WHERE state = 'held'",
                (now,),
            ).rowcount
            unsettled = connection.execute(
                "UPDATE attempts SET state = 'unsettled', ended_at = ?, error_kind = 'engine_died',"
                " error_detail = 'The engine ended while the request was out.' WHERE state = 'sent'",
                (now,),
            ).rowcount
            requeued = connection.execute(
                "UPDATE samples SET state = 'queued', attempts_excused = attempts_excused + 1 WHERE state = 'in_flight'"
            ).rowcount
            connection.execute(
                "UPDATE samples SET not_before = :latest"
                " WHERE state = 'queued' AND not_before > :latest AND not_before < :waits",
                {"latest": now + LONGEST_RETRY_S, "waits": WAITS},
            )
        return Recovery(voided, unsettled, requeued)


def _queued(connection: sqlite3.Connection, row: Sequence[Any]) -> QueuedSample:
    row_id, key, dataset, body, attempts, excused, answer_index, turn, is_followed = row
    return QueuedSample(
        id=row_id,
        key=key,
        dataset=dataset,
        prompt=asked_prompt(connection, row_id, body, turn),
        attempts=attempts,
        excused=excused,
        answer_index=answer_index,
        turn=turn,
        whole=unpack_prompt(body) if is_followed else None,
    )
