"""What endpoints said to samples that wait, for an engine that starts again."""

import contextlib
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from eagletui.ledger.reader_base import Reader


class Told(NamedTuple):
    """How an attempt ended: with an answer, or with "later" before any work."""

    endpoint: str
    sample_id: int
    sent_at: float
    """Unix seconds; the same for attempts that were sent together."""
    ended_at: float
    """Unix seconds."""
    is_answer: int
    """1 or 0."""
    is_over: int
    """1: a throttle from before the sample was last ordered again, which says nothing about it now; else 0."""


class Throttled(NamedTuple):
    """What is known about the samples that were throttled and still wait."""

    waiting: Sequence[int]
    """Rows of these samples; what was told before one was last ordered again is left out of account."""
    told: Iterable[Told]
    """Of all samples, by the endpoints that throttled those, from the first such request on, in the order they ended.
    To be taken once."""
    answering: Sequence[str]
    """Of the endpoints that throttled them: those that have answered any sample of the run."""


_IS_THROTTLE: Final = """attempts.state = 'void' AND attempts.http_status IN (429, 503)
    AND attempts.error_kind IN ('rate_limited', 'overloaded') AND attempts.sent_at IS NOT NULL"""
_IS_ANSWER: Final = "error_kind IS NULL AND ended_at IS NOT NULL"
_TOLD: Final = f"""SELECT endpoint, sample_id, sent_at, ended_at, error_kind IS NULL,
        error_kind IS NOT NULL
            AND number <= (SELECT attempts_before FROM samples WHERE samples.id = attempts.sample_id)
    FROM attempts
    WHERE id > coalesce((SELECT earlier.id FROM attempts AS earlier
                         WHERE earlier.id < :id AND earlier.sent_at < :sent_at ORDER BY earlier.id DESC LIMIT 1), 0)
        AND sent_at >= :sent_at AND endpoint IN (SELECT value FROM json_each(:tags))
        AND ({_IS_ANSWER} OR {_IS_THROTTLE})
    ORDER BY ended_at, id"""
"""Attempts are numbered in the order they are sent: what is older than the first is not read."""


class ThrottlesReader(Reader):
    """Reads who was throttled."""

    @contextlib.contextmanager
    def throttled(self) -> Iterator[Throttled]:
        """Read what there is to compare throttled samples with; nothing where none waits.

        What is told is read as it is taken, within the block.
        """
        with self._transactions.reading() as connection:
            waiting = connection.execute(
                f"""SELECT samples.id, attempts.endpoint, min(attempts.sent_at), min(attempts.id)
                FROM samples INDEXED BY samples_due JOIN attempts ON attempts.sample_id = samples.id
                WHERE samples.state = 'queued' AND samples.parked_for IS NULL AND samples.not_before > 0
                    AND attempts.number > samples.attempts_before AND {_IS_THROTTLE}
                GROUP BY samples.id, attempts.endpoint"""
            ).fetchall()
            if not waiting:
                yield Throttled((), (), ())
                return
            tags = sorted({tag for _, tag, *_ in waiting})
            since = {
                "sent_at": min(sent_at for *_, sent_at, _ in waiting),
                "id": min(attempt_id for *_, attempt_id in waiting),
                "tags": json.dumps(tags),
            }
            told = connection.execute(_TOLD, since)
            answering = [
                tag
                for tag in tags
                if connection.execute(
                    f"SELECT 1 FROM attempts WHERE endpoint = ? AND {_IS_ANSWER} LIMIT 1", (tag,)
                ).fetchone()
            ]
            yield Throttled(sorted({sample_id for sample_id, *_ in waiting}), (Told(*row) for row in told), answering)
