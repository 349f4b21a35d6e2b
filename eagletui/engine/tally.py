"""What is known of one endpoint while it answers: counts, and how many answers show which fault."""

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Final

from eagletui.core.drift import LEAST_SAMPLES, NO_STREAMS, Split, Streams, Verdict
from eagletui.core.findings import ODD_ENDS, Finding
from eagletui.core.prompt_counts import PromptCounts
from eagletui.tokens.answer import Rebuilt

ENDS_REMEMBERED: Final = 100
"""Last requests of an endpoint of which it is known whether they failed."""
PROMPTS_COUNTED: Final = 2000
"""Prompts of an endpoint that are compared with their bill: what a server adds shows in the first ones."""


@dataclass(slots=True)
class Faulty:
    """How many of how many show a fault."""

    affected: int = 0
    examined: int = 0
    example: str | None = None

    def add(self, sample_key: str, is_faulty: bool) -> None:
        """Count one more."""
        self.examined += 1
        if is_faulty:
            self.affected += 1
            self.example = sample_key

    @property
    def is_systematic(self) -> bool:
        """Tell whether enough were seen and too many of them are faulty."""
        return self.examined >= LEAST_SAMPLES and self.affected > ODD_ENDS * self.examined


@dataclass(slots=True)
class Tally:
    """What is known of one endpoint."""

    counts: dict[Split, dict[int, int]] = field(default_factory=dict)
    """Samples by billed - counted, for each kind of answer."""
    samples: int = 0
    proved: int = 0
    billed: int = 0
    """Billed output tokens where drift is known."""
    drifts: Counter[tuple[str | None, int]] = field(default_factory=Counter)
    """Samples by finish reason (None where the model did not end the answer) and drift with no constant undone."""
    example: str | None = None
    """A sample that is off."""
    canonical: Counter[tuple[str | None, int]] = field(default_factory=Counter)
    """Samples by finish reason, as above, and what the canonical encoding differs from the bill by."""
    streams: Streams = NO_STREAMS
    refuted: str | None = None
    """A sample whose stream has other pieces than tokens."""
    prompts: Counter[PromptCounts] = field(default_factory=Counter)
    prompt_example: str | None = None
    """A sample whose prompt is billed otherwise."""
    ends: Faulty = field(default_factory=Faulty)
    """Answers that end with another token than the format's, among those whose last token is known."""
    arguments: Faulty = field(default_factory=Faulty)
    """Answers whose arguments the server wrote again, among those with calls and proved ids."""
    elsewhere: Faulty = field(default_factory=Faulty)
    """Answers that others gave, among all to requests for this endpoint."""
    served_by: str = ""
    """What the last of them is filed under."""
    other_model: bool = False
    """One of them came from another model."""
    requests: deque[str | None] = field(default_factory=lambda: deque(maxlen=ENDS_REMEMBERED))
    """The last requests: the sample of one that failed, None for one that was answered."""
    verdict: Verdict = field(default_factory=Verdict)
    findings: tuple[Finding, ...] = ()
    """As last reviewed."""

    def anew(self) -> "Tally":
        """A tally whose answers are to be counted again; what does not depend on their ids stays."""
        return Tally(
            elsewhere=self.elsewhere,
            served_by=self.served_by,
            other_model=self.other_model,
            prompts=self.prompts,
            prompt_example=self.prompt_example,
            requests=self.requests,
            findings=self.findings,
        )

    def take_prompt(self, counts: PromptCounts, sample_key: str) -> None:
        """Add a prompt whose tokens are counted and billed."""
        if self.prompts.total() < PROMPTS_COUNTED:
            self.prompts[counts] += 1
            if counts.excess:
                self.prompt_example = sample_key

    def take_faults(self, sample_key: str, rebuilt: Rebuilt) -> None:
        """Add what one answer shows beside its count."""
        if rebuilt.stream_holds is not None:
            held, refuted = self.streams
            self.streams = Streams(held + rebuilt.stream_holds, refuted + (not rebuilt.stream_holds))
            self.refuted = self.refuted if rebuilt.stream_holds else sample_key
        if rebuilt.ended and rebuilt.sampled_end is not None:
            self.ends.add(sample_key, "end_token" in rebuilt.findings)
        if rebuilt.arguments_kept is not None:
            self.arguments.add(sample_key, not rebuilt.arguments_kept)

    def count(self, split: Split, excess: int | None, samples: int, example: str) -> None:
        """Add samples that differ from their bill by as much."""
        if excess is None:
            return
        row = self.counts.setdefault(split, {})
        row[excess] = row.get(excess, 0) + samples
        if excess:
            self.example = example

    @property
    def off_canonical(self) -> tuple[int, int]:
        """Answers whose canonical count differs from the bill under the verdict, and all that have one."""
        off = sum(
            samples for (finish, excess), samples in self.canonical.items() if excess != self.verdict.offset(finish)
        )
        return off, self.canonical.total()

    @property
    def off(self) -> int:
        """Sum of the absolute drift under the verdict, whatever was known when each answer came."""
        return sum(
            samples * abs(drift - self.verdict.offset(finish)) for (finish, drift), samples in self.drifts.items()
        )
