"""Tell throttles that are one sample's own, for what it asks, from those of its endpoint.

An endpoint that throttles all alike answers each request with the same chance: the part of answers in all that the
others got since. A sample that by this part was to get `patience` answers and got none (the chance of that is below
`e ** -patience`) is not throttled for the load. Only answers to requests sent with its first throttled one or later
count: those that were under way by then say nothing about what is taken now.

A sample that is the last one has nobody to be compared with. Its throttles are its own where the endpoint has answered
others and takes none of its requests for `ALONE_S`, though there is no load but its own.

What is kept here is what the ledger's attempts say, which another engine begins with (`restore`).
"""

from bisect import bisect_left, insort
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, Literal

from eagletui.engine.breaker import BREAK_FAILURES, BREAK_S
from eagletui.ledger.reader_throttles import Throttled

Cause = Literal["endpoint", "sample", "sample if alone"]
"""Whose a throttle is; the last where no other sample is queued or under way, else the endpoint's."""

ALONE_TIMES: Final = BREAK_FAILURES
ALONE_S: Final = BREAK_S
"""Sooner than its endpoint would count as broken for it, and be closed for all."""
LONGEST_GAP_S: Final = 20.0
"""Between two requests no more is counted as waited for: nobody may have asked meanwhile, such as in a pause."""


@dataclass(slots=True)
class _Wait:
    """A sample throttled by an endpoint that has not answered it since."""

    since: float
    """Monotonic seconds: when the first request that was throttled was sent."""
    told_before: int
    """Throttles of the endpoint that had been counted by then."""
    last_at: float
    """Its last throttle."""
    waited_s: float = 0.0
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
    _answering: set[str] = field(default_factory=set)
    """Tags of endpoints that have answered in this run."""
    _told: Counter[str] = field(default_factory=Counter)
    """By tag: throttles counted."""

    def restore(self, known: Throttled, lag_s: float) -> None:
        """Take over what the ledger says.

        Args:
            known: about samples that wait.
            lag_s: by which Unix seconds are ahead of monotonic ones.
        """
        self._answering |= set(known.answering)
        for told in known.told:
            sent_at, ended_at = told.sent_at - lag_s, told.ended_at - lag_s
            if told.is_answer:
                self.answered(told.endpoint, told.sample_id, sent_at)
            else:
                # What is over speaks of the endpoint alone: under a name of its own, which is forgotten at the end.
                told_of = -told.sample_id if told.is_over else told.sample_id
                self.throttled(told.endpoint, told_of, sent_at, ended_at)
        for sample_id in {sample_id for waits in self._waits.values() for sample_id in waits} - set(known.waiting):
            self.forget(sample_id)

    def answered(self, tag: str, sample_id: int, sent_at: float) -> None:
        """Note an answer.

        Args:
            tag: of the endpoint.
            sample_id: whose.
            sent_at: monotonic seconds.
        """
        self._answering.add(tag)
        self.forget(sample_id)
        if self._waits.get(tag):
            insort(self._answers.setdefault(tag, []), sent_at)

    def forget(self, sample_id: int) -> None:
        """Drop what is known of a sample that was answered or given up."""
        for tag, waits in self._waits.items():
            if waits.pop(sample_id, None) is not None and not waits:
                self._answers.pop(tag, None)

    def throttled(self, tag: str, sample_id: int, sent_at: float, now: float) -> Cause:
        """Note a throttle, and tell whose it is.

        Args:
            tag: of the endpoint.
            sample_id: whose.
            sent_at: monotonic seconds; the same for requests that were sent together.
            now: monotonic seconds.
        """
        waits = self._waits.setdefault(tag, {})
        wait = waits.setdefault(sample_id, _Wait(sent_at, self._told[tag], now))
        wait.times += 1
        wait.waited_s += min(max(0.0, now - wait.last_at), LONGEST_GAP_S)
        wait.last_at = now
        if wait.times <= self.patience:
            self._told[tag] += 1
        sent = self._answers.get(tag, [])
        answered = len(sent) - bisect_left(sent, wait.since)
        throttled = self._told[tag] - wait.told_before - min(wait.times, self.patience)
        if answered > 0 and wait.times * answered >= self.patience * (answered + throttled):
            return "sample"
        is_long = wait.times >= ALONE_TIMES and wait.waited_s >= ALONE_S
        return "sample if alone" if is_long and throttled == 0 and tag in self._answering else "endpoint"
