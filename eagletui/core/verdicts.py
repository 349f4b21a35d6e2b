"""What a person signs for when a data set is accepted: how many samples differ, in what way, and at what share."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

from eagletui.core.fidelity import PROVED
from eagletui.core.tokdiff import Span

Difference = Literal["same_bytes", "other_text", "unproved"]

DIFFERENCES: Final[tuple[Difference, ...]] = ("same_bytes", "other_text", "unproved")

WORDS: Final[dict[Difference, str]] = {
    "same_bytes": "proved ids that cut the same text otherwise",
    "other_text": "proved ids that stand for another text",
    "unproved": "not proved, and no count speaks for the ids",
}


@dataclass(frozen=True, slots=True)
class Doubtful:
    """A sample whose ids are not simply the canonical ones."""

    evidence: str
    spans: tuple[Span, ...]
    drift: int | None


@dataclass(frozen=True, slots=True)
class Basis:
    """What a verdict on a data set rests on."""

    samples: int
    """Answered, rebuilt and not quarantined."""
    proved: int
    counted: int
    """Not proved, and the count agrees: believed, and not among the mismatched."""
    output_tokens: int
    by_kind: dict[Difference, int] = field(default_factory=dict)
    """Mismatched samples. `same_bytes`: proved ids cut the same text otherwise than re-encoding does; `other_text`:
    proved ids stand for another text; `unproved`: the segmentation is not proved and no count speaks for it."""
    tokens_differ: int = 0
    """Tokens in differing spans of proved ids, and of unproved ones at least what the count is off by."""
    spans: dict[str, int] = field(default_factory=dict)
    """Spans of the mismatched samples by kind."""

    @property
    def mismatched(self) -> int:
        """Samples of every kind."""
        return sum(self.by_kind.values())

    @property
    def samples_percent(self) -> float:
        """Share of samples that differ."""
        return 100.0 * self.mismatched / self.samples if self.samples else 0.0

    @property
    def tokens_percent(self) -> float:
        """Share of output tokens that differ; a lower bound where samples are unproved."""
        return 100.0 * self.tokens_differ / self.output_tokens if self.output_tokens else 0.0

    @property
    def is_lower_bound(self) -> bool:
        """Tell whether more tokens may differ than are counted."""
        return self.by_kind.get("unproved", 0) > 0


def basis(samples: int, proved: int, counted: int, output_tokens: int, doubtful: Iterable[Doubtful]) -> Basis:
    """Sum up a data set.

    Args:
        samples: all of them.
        proved: of those, with proved ids.
        counted: of those, with ids that a count speaks for.
        output_tokens: of all samples, as counted.
        doubtful: samples with differing spans, and those that are neither proved nor counted.
    """
    kinds: Counter[Difference] = Counter()
    spans: Counter[str] = Counter()
    differ = 0
    for sample in doubtful:
        kinds[_kind(sample)] += 1
        spans.update(span.kind for span in sample.spans)
        in_spans = sum(max(len(span.a_ids), len(span.b_ids)) for span in sample.spans)
        differ += in_spans if sample.evidence in PROVED else max(1, in_spans, abs(sample.drift or 0))
    by_kind = {kind: kinds[kind] for kind in DIFFERENCES if kinds[kind]}
    return Basis(samples, proved, counted, output_tokens, by_kind, differ, dict(spans))


def _kind(sample: Doubtful) -> Difference:
    if sample.evidence not in PROVED:
        return "unproved"
    return "same_bytes" if all(span.kind == "~" for span in sample.spans) else "other_text"
