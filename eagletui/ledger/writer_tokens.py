"""Store rebuilt ids, and the labels that come with them."""

import sqlite3
from dataclasses import asdict

from eagletui.core.errors import LedgerError
from eagletui.core.tokdiff import is_hidden_tail
from eagletui.ledger.codecs import pack_ids, pack_spans, pack_text, unpack_ids
from eagletui.ledger.orders import StoredOpinion, TokensLabel, TokensResult
from eagletui.ledger.writer_base import Writer


class TokensWriter(Writer):
    """Writes of a rebuild."""

    def store_tokens(self, sample_id: int, tokens: TokensResult) -> bool:
        """Store the ids of an answered sample, or replace them after a rebuild.

        Args:
            sample_id: an answered, tokenized or quarantined sample; a quarantined one stays so.
            tokens: the rebuilt ids.

        Returns:
            Whether the ids changed, which makes features taken from the old ones stale.
        """
        with self._transactions.begin() as connection:
            found = connection.execute("SELECT answered_attempt_id FROM samples WHERE id = ?", (sample_id,)).fetchone()
            if found is None or found[0] is None:
                raise LedgerError(f"sample {sample_id} has no answer to store ids for")
            return put_tokens(connection, sample_id, found[0], tokens, self._clock())

    def store_label(self, sample_id: int, label: TokensLabel) -> None:
        """Label stored ids anew, because what their endpoint's counts show has changed; the ids stay.

        Args:
            sample_id: a tokenized sample, or a quarantined one, whose usability shows once it is released.
            label: all of it.
        """
        with self._transactions.begin() as connection:
            connection.execute(
                """UPDATE samples SET
                    usability = CASE state WHEN 'quarantined' THEN usability ELSE :usability END,
                    usability_before = CASE state WHEN 'quarantined' THEN :usability END,
                    evidence = :evidence, offset_tokens = :offset, drift_tokens = :drift, excess_tokens = :excess,
                    plain_excess_tokens = :plain_excess, has_end = :ended
                WHERE id = :id""",
                {
                    "usability": label.usability,
                    "evidence": label.evidence,
                    "offset": label.offset,
                    "drift": label.drift,
                    "excess": label.excess,
                    "plain_excess": label.plain_excess,
                    "ended": label.ended,
                    "id": sample_id,
                },
            )
            connection.execute(
                "UPDATE tokens SET evidence = ?, reason = ? WHERE sample_id = ?",
                (label.evidence, label.reason, sample_id),
            )

    def store_opinion(self, sample_id: int, opinion: StoredOpinion) -> None:
        """Keep what the target model said of a sample, in place of what was said before."""
        with self._transactions.begin() as connection:
            connection.execute(
                """INSERT OR REPLACE INTO opinions (sample_id, question, model, posterior, margin, changed, inferred,
                    tokens, own, expected, variance, structure_json, asked_at)
                VALUES (:sample_id, :question, :model, :posterior, :margin, :changed, :inferred, :tokens,
                    :own, :expected, :variance, :structure_json, :now)""",
                {"sample_id": sample_id, **asdict(opinion), "now": self._clock()},
            )


def put_tokens(
    connection: sqlite3.Connection, sample_id: int, attempt_id: int, tokens: TokensResult, now: float
) -> bool:
    """Write tokens and the sample's labels inside the caller's transaction; tell whether the ids changed."""
    old = connection.execute(
        "SELECT revision, prompt_ids, output_ids FROM tokens WHERE sample_id = ?", (sample_id,)
    ).fetchone()
    prompt_ids = None if tokens.prompt_ids is None else pack_ids(tokens.prompt_ids)
    output_ids = None if tokens.output_ids is None else pack_ids(tokens.output_ids)
    changed = old is None or not (_same_ids(old[1], prompt_ids) and _same_ids(old[2], output_ids))
    revision = 1 if old is None else old[0] + changed
    connection.execute(
        """INSERT INTO tokens (sample_id, attempt_id, revision, prompt_ids, output_ids, raw, spans, evidence, reason,
            tail_trimmed, rebuilt_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
        ON CONFLICT (sample_id) DO UPDATE SET attempt_id = excluded.attempt_id, revision = excluded.revision,
            prompt_ids = excluded.prompt_ids, output_ids = excluded.output_ids, raw = excluded.raw,
            spans = excluded.spans, evidence = excluded.evidence, reason = excluded.reason,
            tail_trimmed = excluded.tail_trimmed, rebuilt_at = excluded.rebuilt_at""",
        (
            sample_id,
            attempt_id,
            revision,
            prompt_ids,
            output_ids,
            pack_text(tokens.raw),
            pack_spans(tokens.spans),
            tokens.evidence,
            tokens.reason,
            tokens.tail_trimmed,
            now,
        ),
    )
    counted = tokens.counted
    if counted is None and tokens.output_ids is not None:
        counted = len(tokens.output_ids)
    connection.execute(
        """UPDATE samples SET
            state = CASE state WHEN 'answered' THEN 'tokenized' ELSE state END,
            usability = CASE state WHEN 'quarantined' THEN usability ELSE :usability END,
            usability_before = CASE state WHEN 'quarantined' THEN :usability END,
            evidence = :evidence, prompt_tokens = :prompt, output_tokens = :output, excess_tokens = :excess,
            plain_excess_tokens = :plain_excess, has_end = :ended, offset_tokens = :offset, drift_tokens = :drift,
            spans = :spans
        WHERE id = :id""",
        {
            "usability": tokens.usability,
            "evidence": tokens.evidence,
            "prompt": None if tokens.prompt_ids is None else len(tokens.prompt_ids),
            "output": counted,
            "excess": tokens.excess,
            "plain_excess": tokens.plain_excess,
            "ended": tokens.ended,
            "offset": tokens.offset,
            "drift": tokens.drift,
            "spans": sum(not is_hidden_tail(span, tokens.raw) for span in tokens.spans),
            "id": sample_id,
        },
    )
    return changed


def _same_ids(old: bytes | None, new: bytes | None) -> bool:
    if old is None or new is None:
        return old is new
    return old == new or unpack_ids(old) == unpack_ids(new)
