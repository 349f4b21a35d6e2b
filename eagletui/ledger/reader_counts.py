"""Billed against counted tokens per endpoint, for an engine that starts again."""

from typing import NamedTuple

from eagletui.core.money import PROMPT_EXTRA_TOKENS
from eagletui.ledger.books import OVERRUN, overrun_of
from eagletui.ledger.orders import Overrun
from eagletui.ledger.reader_base import Reader


class CountedGroup(NamedTuple):
    """Answers of one endpoint that ended alike and differ from their bill by as much."""

    endpoint: str
    finish_reason: str | None
    ended: int
    """1: the model ended them itself, so that a constant of the end token applies."""
    excess: int | None
    """billed - counted of the plain reading; None where it says nothing."""
    drift: int | None
    """billed - counted of the ids that were chosen, with no constant undone; None without a bill."""
    samples: int
    billed: int
    """Sum of billed output tokens where drift is known."""
    proved: int
    """Samples whose ids are proved."""
    example_key: str


class CountedPrompt(NamedTuple):
    """The prompt whose bill is the most beyond its count, of one endpoint."""

    endpoint: str
    counted: int
    billed: int


class EvidenceGroup(NamedTuple):
    """Samples of a data set with the same evidence."""

    evidence: str
    samples: int
    output_tokens: int
    """Counted."""


class CountsReader(Reader):
    """Reads what the checks of a run remember."""

    def counted_groups(self) -> list[CountedGroup]:
        """Group every tokenized answer by endpoint, finish reason and difference."""
        with self._transactions.reading() as connection:
            rows = connection.execute(
                """SELECT endpoint, finish_reason, has_end,
                    plain_excess_tokens AS excess,
                    drift_tokens + CASE WHEN has_end THEN coalesce(offset_tokens, 0) ELSE 0 END AS drift,
                    count(*), coalesce(sum(billed_output_tokens) FILTER (WHERE drift_tokens IS NOT NULL), 0),
                    count(*) FILTER (WHERE evidence IN ('served', 'logprobs', 'streamed')), min(sample_key)
                FROM samples WHERE endpoint IS NOT NULL AND evidence IS NOT NULL
                GROUP BY endpoint, finish_reason, has_end, excess, drift ORDER BY endpoint"""
            ).fetchall()
        return [CountedGroup(*row) for row in rows]

    def dearest_prompts(self) -> list[CountedPrompt]:
        """Name for each endpoint the prompt with the largest ratio of billed to counted tokens.

        Tokens that every bound adds on top of a ratio are taken off the bill first.
        """
        with self._transactions.reading() as connection:
            # With max(), SQLite takes the other columns from the row that has the maximum.
            rows = connection.execute(
                """SELECT endpoint, prompt_tokens, billed_prompt_tokens,
                    max((billed_prompt_tokens - ?) * 1.0 / prompt_tokens)
                FROM samples WHERE endpoint IS NOT NULL AND prompt_tokens > 0 AND billed_prompt_tokens IS NOT NULL
                GROUP BY endpoint""",
                (PROMPT_EXTRA_TOKENS,),
            ).fetchall()
        return [CountedPrompt(*row[:3]) for row in rows]

    def overruns(self) -> list[Overrun]:
        """List every attempt that cost more than its bound."""
        with self._transactions.reading() as connection:
            rows = connection.execute(
                f"SELECT {OVERRUN} FROM attempts JOIN samples ON samples.id = attempts.sample_id"
                " WHERE attempts.cost_pico > hold_pico ORDER BY attempts.id"
            ).fetchall()
        return [overrun_of(row) for row in rows]

    def evidence_of(self, dataset: str) -> list[EvidenceGroup]:
        """Group the rebuilt samples of a data set by evidence; quarantined ones are left out."""
        with self._transactions.reading() as connection:
            rows = connection.execute(
                "SELECT evidence, count(*), coalesce(sum(output_tokens), 0) FROM samples"
                " WHERE dataset = ? AND state = 'tokenized' GROUP BY evidence ORDER BY evidence",
                (dataset,),
            ).fetchall()
        return [EvidenceGroup(*row) for row in rows]
