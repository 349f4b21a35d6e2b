"""Tell throttles that are one sample's own, for what it asks, from those of its endpoint.

An endpoint that throttles all alike answers each request with the same chance: the part of answers in all that the
others got since. A sample that by this part was to get `patience` answers and got none (the chance of that is below
`e ** -patience`) is not throttled for the load. Only answers to requests sent after its first throttle count: those
that were under way by then say nothing about what is taken now.
"""

from bisect import bisect_right, insort
from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Wait:
    """A sample throttled by an endpoint that has not answered it since."""

    since: float
    """Monotonic seconds: its first throttle."""
    told_before: int
    """Throttles of the endpoint that had been counted by then."""
    times: int = 0


@dataclass(slots=True)
class Throttles:
    """Counts throttles, and the answers to others meanwhile, by endpoint."""

    patience: int
    """So many answers must have been due to a sample. Of each sample so many throttles speak about its endpoint."""
    _waits: dict[str, dict[int, _Wait]] = field(default_factory=dict)
    """By tag and sample id."""
    _answers: dict[str, list[float]] = field(default_factory=dict)
    """By tag: when the requests were sent that were answered while a sample waits there, sorted."""
    _told: Counter[str] = field(default_factory=Counter)
    """By tag: throttles counted."""

    def answered(self, tag: str, sample_id: int, sent_at: float) -> None:
        """Note an answer.

        Args:
            tag: of the endpoint.
            sample_id: whose.
            sent_at: monotonic seconds.
        """
        self.forget(sample_id)
        if self._waits.get(tag):
            insort(self._answers.setdefault(tag, []), sent_at)

    def forget(self, sample_id: int) -> None:
        """Drop what is known of a sample that was answered or given up."""
        for tag, waits in self._waits.items():
            if waits.pop(sample_id, None) is not None and not waits:
                self._answers.pop(tag, None)

    def throttled(self, tag: str, sample_id: int, now: float) -> bool:
        """Note a throttle, and tell whether it is the sample's own.

        Args:
            tag: of the endpoint.
            sample_id: whose.
            now: monotonic seconds.
        """
        waits = self._waits.setdefault(tag, {})
        wait = waits.setdefault(sample_id, _Wait(now, self._told[tag]))
        wait.times += 1
        if wait.times <= self.patience:
            self._told[tag] += 1
        sent = self._answers.get(tag, [])
        answered = len(sent) - bisect_right(sent, wait.since)
        throttled = self._told[tag] - wait.told_before - min(wait.times, self.patience)
        return answered > 0 and wait.times * answered >= self.patience * (answered + throttled)
