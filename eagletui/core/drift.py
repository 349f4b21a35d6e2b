"""Billed against counted, per endpoint: which constants are explained, and what every label then is.

A label that rests on a count is a pure function of its endpoint's counts. Only constants on a closed list of named
causes are undone, and only where the counts, split by how the answer ended, show exactly that cause. Any other
constant is a fault to find, never an offset to learn.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from eagletui.core.fidelity import PROVED, Evidence

LEAST_SAMPLES: Final = 10
"""Samples of an endpoint below which its labels are provisional and nothing is learned."""

_SPLIT_SAMPLES: Final = 4
"""Samples from which a split must show the cause by itself."""

_ELSEWHERE: Final = 0.2
"""Share of the other answers from which a cause's constant is not that cause's."""

_SHARE: Final = 0.5
"""Share of samples from which a constant is a constant."""

_CUT_ANEW: Final = 0.2
"""Share of an endpoint's streams whose pieces cannot be tokens from which no stream of it proves anything."""
_LEAST_CUT: Final = 3


class Split(NamedTuple):
    """What kind of answer it was."""

    finish: str
    """Finish reason."""
    reasoning: bool
    tools: bool


class Cause(NamedTuple):
    """A named reason why billed and counted differ by a constant."""

    name: str
    offset: int
    """billed - counted."""
    finish_reasons: tuple[str, ...]
    """Answers it holds for; all others must show no constant."""


STOP_NOT_BILLED: Final = Cause("stop token not billed", -1, ("stop", "tool_calls"))

CAUSES: Final = (STOP_NOT_BILLED,)
"""The closed list."""


@dataclass(frozen=True, slots=True)
class EndpointCounts:
    """How often each difference between billed and counted was seen."""

    by_split: Mapping[Split, Mapping[int, int]] = field(default_factory=dict)
    """Samples by billed - counted (the end token counted), for each kind of answer."""

    @classmethod
    def of(cls, observations: Iterable[tuple[Split, int]]) -> "EndpointCounts":
        """Count observations of (kind of answer, billed - counted)."""
        table: dict[Split, Counter[int]] = {}
        for split, excess in observations:
            table.setdefault(split, Counter())[excess] += 1
        return cls(table)

    def added(self, split: Split, excess: int) -> "EndpointCounts":
        """The counts with one more observation."""
        table = {known: dict(counts) for known, counts in self.by_split.items()}
        row = table.setdefault(split, {})
        row[excess] = row.get(excess, 0) + 1
        return EndpointCounts(table)

    def agreeing(self, verdict: "Verdict", tools: bool | None = None) -> tuple[int, int]:
        """Count the answers that agree with their bill under a verdict, and all that were looked at.

        Args:
            verdict: gives the named constant.
            tools: only answers with tool calls, or only those without; None takes all.
        """
        chosen = [(split, found) for split, found in self.by_split.items() if tools in (None, split.tools)]
        agreed = sum(found.get(verdict.offset(split.finish), 0) for split, found in chosen)
        return agreed, sum(sum(found.values()) for _, found in chosen)

    @property
    def samples(self) -> int:
        """Observations in all."""
        return sum(sum(counts.values()) for counts in self.by_split.values())

    def together(self, finish_reasons: Iterable[str] | None = None) -> Counter[int]:
        """All splits with these finish reasons as one; None takes every split."""
        wanted = None if finish_reasons is None else set(finish_reasons)
        total: Counter[int] = Counter()
        for split, counts in self.by_split.items():
            if wanted is None or split.finish in wanted:
                total.update(counts)
        return total


class Streams(NamedTuple):
    """What the pieces of an endpoint's streams showed."""

    held: int = 0
    """Streams whose pieces are tokens by their bill."""
    refuted: int = 0
    """Streams whose pieces need more tokens than were billed."""

    @property
    def cut_anew(self) -> bool:
        """Tell whether something between the model and here cuts the text into other pieces than tokens."""
        return self.refuted >= _LEAST_CUT and self.refuted > _CUT_ANEW * (self.held + self.refuted)


NO_STREAMS: Final = Streams()


class Constant(NamedTuple):
    """A constant that no named cause explains."""

    excess: int
    """billed - counted."""
    affected: int
    examined: int
    where: str
    """Which answers show it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an endpoint's counts say."""

    cause: Cause | None = None
    """The named constant, or None."""
    provisional: bool = True
    """Fewer than `LEAST_SAMPLES` were seen."""
    constant: Constant | None = None
    """A constant without a name: the format or the tokenizer is wrong."""
    disagreeing: Constant | None = None
    """Most counts disagree without a constant."""
    cut_anew: bool = False
    """The pieces of its streams are no tokens, so those that fit their bill fit it by chance."""

    @property
    def trusted(self) -> bool:
        """Tell whether an equal count may be called `counted`."""
        return self.constant is None and self.disagreeing is None

    def offset(self, finish_reason: str | None) -> int:
        """The named constant for an answer that ended so; 0 where there is none."""
        return self.cause.offset if self.cause and finish_reason in self.cause.finish_reasons else 0


def judge(counts: EndpointCounts, streams: Streams = NO_STREAMS) -> Verdict:
    """Explain an endpoint's counts and streams, as a pure function of them."""
    return replace(_judge_counts(counts), cut_anew=streams.cut_anew)


def _judge_counts(counts: EndpointCounts) -> Verdict:
    if counts.samples < LEAST_SAMPLES:
        return Verdict()
    cause = next((cause for cause in CAUSES if _shows(counts, cause)), None)
    verdict = Verdict(cause, provisional=False)
    constant = _unexplained(counts, verdict)
    if constant is not None:
        return Verdict(None, provisional=False, constant=constant)
    agreeing, _ = counts.agreeing(verdict)
    if agreeing < _SHARE * counts.samples:
        odd = Constant(0, counts.samples - agreeing, counts.samples, "all answers")
        return Verdict(None, provisional=False, disagreeing=odd)
    return verdict


def relabel(evidence: Evidence, excess: int | None, finish_reason: str | None, verdict: Verdict) -> Evidence:
    """The label of a sample under its endpoint's verdict.

    Args:
        evidence: as rebuilt.
        excess: billed - counted of its ids; None where the count says nothing about them.
        finish_reason: how the answer ended.
        verdict: of the endpoint.
    """
    if evidence == "streamed" and verdict.cut_anew:
        return "conflict"
    if evidence in PROVED or evidence in ("inferred", "canonical") or excess is None:
        return evidence
    return "counted" if verdict.trusted and excess == verdict.offset(finish_reason) else "conflict"


def distrust(evidence: Evidence) -> str:
    """Say why an endpoint's verdict takes a label away."""
    if evidence == "streamed":
        return "The endpoint's streams come in other pieces than tokens."
    return "The endpoint's counts show an unexplained constant."


def _shows(counts: EndpointCounts, cause: Cause) -> bool:
    """Tell whether the counts show this cause: its constant where it holds, and none where it does not."""
    holding = counts.together(cause.finish_reasons)
    if sum(holding.values()) < LEAST_SAMPLES or not _is_mode(holding, cause.offset):
        return False
    for split, found in counts.by_split.items():
        expected = cause.offset if split.finish in cause.finish_reasons else 0
        if sum(found.values()) >= _SPLIT_SAMPLES and _mode(found) != expected:
            return False
    others = Counter(
        {
            excess: number
            for split, found in counts.by_split.items()
            if split.finish not in cause.finish_reasons
            for excess, number in found.items()
        }
    )
    return others.get(cause.offset, 0) <= _ELSEWHERE * sum(others.values())


def _unexplained(counts: EndpointCounts, verdict: Verdict) -> Constant | None:
    """The largest constant that the verdict's cause leaves."""
    groups = [(counts.by_split[split], split.finish, _describe(split)) for split in counts.by_split]
    for finish in {split.finish for split in counts.by_split}:
        groups.append((counts.together([finish]), finish, f"answers that ended with {finish}"))
    found: list[Constant] = []
    for group, finish, where in groups:
        examined = sum(group.values())
        expected = verdict.offset(finish)
        mode = _mode(group)
        if examined >= LEAST_SAMPLES and mode != expected and _is_mode(group, mode):
            found.append(Constant(mode - expected, group[mode], examined, where))
    return max(found, key=lambda constant: constant.affected, default=None)


def _mode(found: Mapping[int, int]) -> int:
    """The commonest difference, the smaller one of equals."""
    return max(found, key=lambda excess: (found[excess], -abs(excess)))


def _is_mode(found: Mapping[int, int], excess: int) -> bool:
    total = sum(found.values())
    return found.get(excess, 0) >= _SHARE * total and _mode(found) == excess


def _describe(split: Split) -> str:
    parts = [f"answers that ended with {split.finish}"]
    parts.append("with reasoning" if split.reasoning else "without reasoning")
    if split.tools:
        parts.append("with tool calls")
    return ", ".join(parts)
