"""What endpoints said to samples that wait, for an engine that starts again."""

from collections.abc import Sequence
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


class Throttled(NamedTuple):
    """What is known about the samples that were throttled and still wait."""

    waiting: Sequence[int]
    """Rows of these samples."""
    told: Sequence[Told]
    """Of all samples, from the first request of those on that was throttled, in the order they ended."""
    answering: Sequence[str]
    """Of the endpoints that throttled them: those that have answered any sample of the run."""


_IS_THROTTLE: Final = """attempts.state = 'void' AND attempts.http_status IN (429, 503)
    AND attempts.error_kind IN ('rate_limited', 'overloaded') AND attempts.sent_at IS NOT NULL"""
_IS_ANSWER: Final = "error_kind IS NULL AND ended_at IS NOT NULL"


class ThrottlesReader(Reader):
    """Reads who was throttled."""

    def throttled(self) -> Throttled:
        """Read what there is to compare throttled samples with; nothing where none waits."""
        with self._transactions.reading() as connection:
            waiting = connection.execute(
                f"""SELECT samples.id, attempts.endpoint, min(attempts.sent_at)
                FROM samples INDEXED BY samples_queue JOIN attempts ON attempts.sample_id = samples.id
                WHERE samples.state = 'queued' AND samples.parked_for IS NULL AND samples.not_before > 0
                    AND {_IS_THROTTLE}
                GROUP BY samples.id, attempts.endpoint"""
            ).fetchall()
            if not waiting:
                return Throttled((), (), ())
            told = connection.execute(
                f"""SELECT endpoint, sample_id, sent_at, ended_at, error_kind IS NULL FROM attempts
                WHERE sent_at >= ? AND ({_IS_ANSWER} OR {_IS_THROTTLE}) ORDER BY ended_at, id""",
                (min(sent_at for *_, sent_at in waiting),),
            ).fetchall()
            answering = [
                tag
                for tag in sorted({tag for _, tag, _ in waiting})
                if connection.execute(f"SELECT 1 FROM attempts WHERE endpoint = ? AND {_IS_ANSWER}", (tag,)).fetchone()
            ]
        return Throttled(
            sorted({sample_id for sample_id, *_ in waiting}),
            [Told(*row) for row in told],
            answering,
        )
