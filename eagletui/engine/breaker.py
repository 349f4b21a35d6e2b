"""When an endpoint counts as broken: requests end, and for minutes none of them was a success.

A broken endpoint is out of the rotation; one request at a time looks whether it is back, after a pause that doubles
with each look. Times are the caller's monotonic seconds.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

BREAK_FAILURES: Final = 5
"""Fewer failures than this say nothing about an endpoint."""
BREAK_S: Final = 120.0
"""So long without a success, counted from the first failure after the last one, and an endpoint is broken."""
PATIENT_S: Final = 900.0
"""The same while requests are under way that were sent before all that: they may be long answers."""
LOOK_S: Final = 30.0
"""Pause before the first look at a broken endpoint; doubles with each, up to `LOOK_MAX_S`."""
LOOK_MAX_S: Final = 300.0


@dataclass(slots=True)
class Breaker:
    """What the last requests to one endpoint came to."""

    failures: int = 0
    """Since the last success."""
    last: str = ""
    """The last failure, for people: its kind and detail."""
    failing_since: float = 0.0
    """Of the first of `failures`."""
    broken_at: float | None = None
    looks: int = 0
    """Failed looks since it broke."""
    answered_at: float = -math.inf
    """Of the last success."""

    @property
    def is_broken(self) -> bool:
        """The endpoint is out of the rotation."""
        return self.broken_at is not None

    @property
    def pause_s(self) -> float:
        """How long to wait before the next look."""
        return min(LOOK_MAX_S, LOOK_S * 2.0**self.looks)

    def answered_lately(self, now: float) -> bool:
        """Tell whether the last success is no longer ago than a break takes."""
        return now - self.answered_at < BREAK_S

    def succeeded(self, now: float) -> str | None:
        """Note an answer; return a line for the log where it ends a break."""
        told = None
        if self.broken_at is not None:
            told = f"answers again, {now - self.broken_at:.0f} s after it was taken out of the rotation."
        self.failures, self.looks, self.broken_at, self.answered_at = 0, 0, None, now
        return told

    def failed(
        self, what: str, sent_at: float, now: float, *, awaits: Callable[[float], bool], at_once: bool = False
    ) -> bool:
        """Note a failure, and tell whether a pause of `pause_s` begins: a break, or another look that came to nothing.

        Args:
            what: the failure, for people.
            sent_at: when the failed request was sent.
            now: when it failed.
            awaits: tells whether a request is under way that was sent at or before a time.
            at_once: the failure alone says that the endpoint cannot be used.
        """
        if self.failures == 0:
            self.failing_since = now
        self.failures += 1
        self.last = what
        if self.broken_at is not None:
            if sent_at < self.broken_at:
                return False
            self.looks += 1
            return True
        silent_s = now - self.failing_since
        long_ago = self.failures >= BREAK_FAILURES and silent_s >= BREAK_S
        if at_once or (long_ago and (silent_s >= PATIENT_S or not awaits(now - BREAK_S))):
            self.broken_at = now
            return True
        return False

    def reset(self) -> None:
        """Forget everything: a person says that it is worth another try."""
        self.failures, self.looks, self.broken_at = 0, 0, None

    def story(self, now: float) -> str:
        """Say what is wrong, for people."""
        number = "1 request failed" if self.failures == 1 else f"{self.failures:,} requests failed"
        return f"{number} and none succeeded for {now - self.failing_since:.0f} s; the last: {self.last.rstrip('.')}"
