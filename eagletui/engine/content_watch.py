"""Keep the last answers of every endpoint in mind, and notice when what it writes is not what it wrote.

Bounded in memory whatever a run's length: a window of answers, and moments of what is usual, per endpoint. A restart
begins anew; findings that stood then stand on until as many sound answers have come.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple

from eagletui.core.answer_traits import INDEX, SAME, TRAITS, Traits
from eagletui.core.content_findings import CONTENT_KINDS, content_finding, shows
from eagletui.core.findings import Finding
from eagletui.core.shifts import RECENT, WINDOW, Moments, Shift, Strata, above_ceiling, gathered, learn, pooled, shifts

LOOK_EVERY: Final = 15
"""An endpoint is judged after so many answers."""
OTHERS: Final = 8
"""Other endpoints that one is compared with: those that have answered most."""
CANNED: Final = 3
"""A text that answered so many other prompts of the window is said to anything."""
_CANARY: Final = INDEX["canary"]
CANARY_LOOKS: Final = (20, 10, 5)
"""So many of the last answers to canary prompts are judged together."""


class Seen(NamedTuple):
    """One answer."""

    sample_key: str
    traits: Traits
    at: float
    """Unix seconds."""


@dataclass(slots=True)
class _Standing:
    finding: Finding
    quiet: int = 0
    """Answers since the last look that showed it."""


@dataclass(slots=True)
class _Endpoint:
    window: deque[Seen] = field(default_factory=deque)
    recent: Strata = field(default_factory=dict)
    """Moments of the window."""
    past: Strata = field(default_factory=dict)
    standing: dict[str, _Standing] = field(default_factory=dict)
    unjudged: int = 0
    canaries: deque[Seen] = field(default_factory=lambda: deque(maxlen=CANARY_LOOKS[0]))
    """The last answers to canary prompts, which may be too rare for the window."""

    def recognise(self, traits: Traits) -> Traits:
        """Mark an answer whose text answered several other prompts just before."""
        if traits.digest is None:
            return traits
        asked = {item.traits.asked for item in self.window if item.traits.digest == traits.digest}
        if len(asked - {traits.asked}) < CANNED:
            return traits
        return traits._replace(values=(*traits.values[:SAME], 1.0, *traits.values[SAME + 1 :]))


class ContentWatch:
    """Keeps the windows of a run."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Start with nothing seen.

        Args:
            clock: Unix seconds.
        """
        self._clock = clock
        self._endpoints: dict[str, _Endpoint] = {}

    def restore(self, findings: Iterable[Finding]) -> None:
        """Let findings of an earlier engine stand."""
        for finding in findings:
            if finding.kind in CONTENT_KINDS:
                seen = self._endpoints.setdefault(finding.endpoint, _Endpoint())
                seen.standing[finding.kind] = _Standing(finding)

    def see(self, endpoint: str, sample_key: str, traits: Traits) -> None:
        """Add one answer."""
        seen = self._endpoints.setdefault(endpoint, _Endpoint())
        traits = seen.recognise(traits)
        answer = Seen(sample_key, traits, self._clock())
        seen.window.append(answer)
        if traits.values[_CANARY] is not None:
            seen.canaries.append(answer)
        seen.recent.setdefault(traits.stratum, Moments()).add(traits.values)
        seen.unjudged += 1
        if len(seen.window) > WINDOW:
            gone = seen.window.popleft()
            moments = seen.recent[gone.traits.stratum]
            moments.take_back(gone.traits.values)
            if not moments.answers:
                del seen.recent[gone.traits.stratum]
            if not seen.standing:
                # What is wrong now must not become what is usual.
                learn(seen.past, gone.traits)

    def findings(self, endpoint: str) -> tuple[Finding, ...]:
        """Judge an endpoint if enough came since the last time, and return what stands."""
        seen = self._endpoints.get(endpoint)
        if seen is None:
            return ()
        if seen.unjudged >= LOOK_EVERY:
            self._judge(endpoint, seen)
            seen.unjudged = 0
        return tuple(standing.finding for standing in seen.standing.values())

    def _judge(self, endpoint: str, seen: _Endpoint) -> None:
        by_kind: dict[str, list[Shift]] = {}
        for shift in self._shifts(endpoint, seen):
            by_kind.setdefault(shift.trait.kind, []).append(shift)
        canary = _canary_shift(seen.canaries)
        if canary is not None:
            by_kind[canary.trait.kind] = [canary]
        for kind in list(seen.standing):
            standing = seen.standing[kind]
            standing.quiet = 0 if kind in by_kind else standing.quiet + seen.unjudged
            if standing.quiet >= WINDOW:
                del seen.standing[kind]
        for kind, several in by_kind.items():
            if kind not in seen.standing:
                answers = seen.canaries if several == [canary] else seen.window
                keyed = [(item.sample_key, item.traits) for item in answers]
                finding = content_finding(endpoint, several, keyed, _clock_time(answers, several))
                seen.standing[kind] = _Standing(finding)

    def _shifts(self, endpoint: str, seen: _Endpoint) -> list[Shift]:
        window = [item.traits for item in seen.window]
        if len(window) < RECENT:
            return []
        others = sorted(
            (other for tag, other in self._endpoints.items() if tag != endpoint and not other.standing),
            key=lambda other: sum(moments.answers for moments in other.past.values()),
        )[-OTHERS:]
        prompts = len({traits.asked for traits in window})
        return shifts(
            window,
            seen.recent,
            seen.past,
            pooled((other.past for other in others), seen.recent),
            [(other.recent, other.past) for other in others],
            len(window) / max(1, prompts),
        )


def _canary_shift(answers: Sequence[Seen] | deque[Seen]) -> Shift | None:
    """Judge the last answers to canary prompts, however many others came between them."""
    traits = [item.traits for item in answers]
    for looked in CANARY_LOOKS:
        above = above_ceiling(TRAITS[_CANARY], _CANARY, gathered(traits[-looked:]))
        if above is not None:
            return Shift(TRAITS[_CANARY], "ceiling", above[0] / above[1], TRAITS[_CANARY].ceiling or 0.0, looked)
    return None


def _clock_time(window: Sequence[Seen] | deque[Seen], found: Sequence[Shift]) -> str:
    """Return the local time of the first answer that shows a shift, as `ctl --since` reads it."""
    first = next((item.at for item in window if any(shows(shift, item.traits) for shift in found)), None)
    return "" if first is None else f"{datetime.fromtimestamp(first).astimezone():%Y-%m-%dT%H:%M:%S}"
