"""Take in answers that no request of this run bought."""

from eagletui.core.errors import LedgerError
from eagletui.ledger.orders import QueuedSample, TokensResult
from eagletui.ledger.turns import asked_prompt
from eagletui.ledger.writer_tokens import TokensWriter, put_tokens


class ImportWriter(TokensWriter):
    """Writes of an import; hold the engine's lock."""

    def waiting_sample(self, sample_key: str) -> QueuedSample | None:
        """Return a sample that waits for its answer, or None."""
        with self._transactions.reading() as connection:
            row = connection.execute(
                """SELECT samples.id, sample_key, samples.dataset, prompts.body, attempts, answer_index, turn
                FROM samples JOIN prompts ON prompts.id = samples.prompt_id
                WHERE sample_key = ? AND samples.state = 'queued'""",
                (sample_key,),
            ).fetchone()
            if row is None:
                return None
            row_id, key, dataset, body, attempts, answer_index, turn = row
            prompt = asked_prompt(connection, row_id, body, turn)
        return QueuedSample(row_id, key, dataset, prompt, attempts, answer_index, turn)

    def has_sample(self, sample_key: str) -> bool:
        """Tell whether there is a sample of this key, in any state."""
        with self._transactions.reading() as connection:
            found = connection.execute("SELECT 1 FROM samples WHERE sample_key = ?", (sample_key,)).fetchone()
        return found is not None

    def import_answer(self, sample_id: int, endpoint: str, finish_reason: str | None, tokens: TokensResult) -> None:
        """Give a waiting sample its answer, at no cost, as an attempt that held nothing.

        Args:
            sample_id: of a queued sample.
            endpoint: stands where the tag would.
            finish_reason: as recorded.
            tokens: ids and evidence.

        Raises:
            LedgerError: the sample does not wait.
        """
        now = self._clock()
        with self._transactions.begin() as connection:
            moved = connection.execute(
                "UPDATE samples SET state = 'in_flight', attempts = attempts + 1, not_before = 0,"
                " parked_for = NULL"
                " WHERE id = ? AND state = 'queued' RETURNING attempts",
                (sample_id,),
            ).fetchall()
            if not moved:
                raise LedgerError(f"sample {sample_id} does not wait for an answer")
            attempt_id = connection.execute(
                "INSERT INTO attempts (sample_id, number, endpoint, hold_pico, streamed, held_at)"
                " VALUES (?, ?, ?, 0, 0, ?)",
                (sample_id, moved[0][0], endpoint, now),
            ).lastrowid
            assert attempt_id is not None
            connection.execute("UPDATE attempts SET state = 'sent', sent_at = ? WHERE id = ?", (now, attempt_id))
            connection.execute(
                "UPDATE attempts SET state = 'settled', cost_pico = 0, has_answer = 1, ended_at = ?, settled_at = ?"
                " WHERE id = ?",
                (now, now, attempt_id),
            )
            connection.execute(
                "UPDATE samples SET state = 'answered', answered_attempt_id = ?, endpoint = ?, finish_reason = ?,"
                " cost_pico = 0, answered_at = ? WHERE id = ?",
                (attempt_id, endpoint, finish_reason, now, sample_id),
            )
            put_tokens(connection, sample_id, attempt_id, tokens, now)
