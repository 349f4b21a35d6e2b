"""Questions to the arbiter, its opinions, and what they make of a label.

An opinion never gives more than `inferred`, and only from a stated posterior on. Below it everything stays as it was.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Final, Protocol

from eagletui.core.fidelity import HIDDEN_TAIL, PROVED, REPLACEMENT, Evidence, Usability
from eagletui.core.findings import WRONG_FORMAT
from eagletui.core.likelihood import Likelihood
from eagletui.core.posterior import SURE, least_posterior
from eagletui.core.sampling import Sampling
from eagletui.core.tokdiff import Span, align
from eagletui.core.vocabulary import Vocabulary

ASKED: Final[tuple[Evidence, ...]] = ("counted", "canonical", "conflict")
"""Evidence that the arbiter may replace."""

SOUND: Final[tuple[Usability, ...]] = ("usable", "resegmented")
"""Usabilities of answers whose text is not in doubt."""


@dataclass(frozen=True, slots=True)
class Question:
    """An answer whose cut is not proved."""

    prompt_ids: Sequence[int]
    """What it answers; at least one."""
    ids: tuple[int, ...]
    """As rebuilt; at least one."""
    sampling: Sampling
    length: int | None = None
    """Tokens sampled, as billed and without the endpoint's named constant; None where no count is to be used."""
    cut: bool = False
    """The answer was cut, so up to `HIDDEN_TAIL` of its tokens may be hidden behind `ids`."""
    tail_shown: bool = False
    """The server showed that there are such tokens."""


@dataclass(frozen=True, slots=True)
class Opinion:
    """What the target model says of an answer."""

    ids: tuple[int, ...]
    """The most likely cut of the same bytes, up to the last token that is shown whole."""
    posterior: float
    """Its probability among all cuts, 0 to 1."""
    margin: float
    """Log of how much more likely it is than the given ids, lengths aside; 0 where it is the same."""
    scores: tuple[float, ...]
    """Log-probability of each of `ids` under the sampling."""
    likelihood: Likelihood
    """Of the given ids."""
    tokens: int
    """Tokens computed, without the prompt."""
    behind: int = 0
    """Last bytes of the text that `ids` leave out: they belong to a token that the cut hides."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as it was rebuilt, before the arbiter is asked."""

    id: str
    endpoint: str
    """Empty for a direct server."""
    evidence: Evidence
    usability: Usability
    reason: str
    """Why there is no better evidence."""
    billed: int | None
    offset: int | None
    """Named constant between billed and counted; None without a bill."""
    tail_trimmed: bool
    question: Question
    canonical: tuple[int, ...]
    """Canonical encoding of the same bytes."""
    is_bill_sound: bool = True
    """No finding doubts the counts of the endpoint."""

    def fingerprint(self, model: str) -> str:
        """Hash all that an opinion and its ruling depend on, hex.

        Args:
            model: names the target model's weights.
        """
        asked = self.question
        settings: tuple[object, ...] = (
            astuple(asked.sampling),
            asked.length,
            asked.cut,
            asked.tail_shown,
            self.evidence,
            self.billed,
        )
        if not self.is_bill_sound:
            settings = (*settings, "counts in doubt")
        text = repr((model, tuple(asked.prompt_ids), asked.ids, settings))
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Ruling:
    """An answer as it stands after the arbiter was asked."""

    ids: tuple[int, ...]
    evidence: Evidence
    usability: Usability
    reason: str
    offset: int | None
    drift: int | None
    tail_trimmed: bool

    @property
    def is_inferred(self) -> bool:
        """Tell whether the label rests on the arbiter."""
        return self.evidence == "inferred"


def rule(answer: Answer, opinion: Opinion) -> Ruling:
    """Say what an opinion makes of an answer."""
    # Counts that are in doubt do not tell that ids are wrong.
    least = least_posterior(answer.evidence) if answer.is_bill_sound else SURE
    hidden = 0 if answer.question.length is None else answer.question.length - len(opinion.ids)
    if answer.question.length is not None and not 0 <= hidden <= (HIDDEN_TAIL if answer.question.cut else 0):
        return _as_before(
            answer, f"the target model finds {_tokens(len(opinion.ids))} likelier than any cut with the billed count"
        )
    if not opinion.ids:
        return _as_before(answer, "the target model finds all of it likelier as part of one token that is not whole")
    if opinion.posterior < least:
        words = f"the target model gives its likeliest cut a probability of {opinion.posterior:.2f}, below {least}"
        return _as_before(answer, words)
    stated = ">0.999" if opinion.posterior > 0.999 else f"{opinion.posterior:.3f}"
    words = f"The target model gives this cut a probability of {stated}"
    if opinion.ids != answer.question.ids:
        side = "more" if opinion.margin >= 0 else "less"
        words += f"; it is {abs(opinion.margin):.1f} nats {side} likely than the one before"
    return Ruling(
        ids=opinion.ids,
        evidence="inferred",
        usability="usable" if opinion.posterior >= SURE else "resegmented",
        reason=words,
        offset=None if answer.billed is None else (answer.offset or 0) + hidden,
        drift=None if answer.billed is None else answer.billed - len(opinion.ids) - (answer.offset or 0) - hidden,
        tail_trimmed=answer.tail_trimmed or hidden > 0 or opinion.behind > 0,
    )


def obstacle(
    evidence: Evidence, usability: Usability, ids: Sequence[int] | None, prompt_ids: Sequence[int] | None, raw: str
) -> str | None:
    """Tell why the arbiter is not asked about an answer, as a phrase; None where it may be.

    Args:
        evidence: of the ids.
        usability: of the answer.
        ids: of the answer.
        prompt_ids: what it answers.
        raw: its text.
    """
    if evidence in PROVED or evidence == "inferred":
        return f"already {evidence}"
    if not ids:
        return "no ids"
    if usability not in SOUND:
        return f"the answer is {usability}"
    if REPLACEMENT in raw:
        return "the text has U+FFFD, which stands for bytes that it does not tell"
    return None if prompt_ids else "the prompt's ids are not known"


class _Finding(Protocol):
    @property
    def kind(self) -> str: ...

    @property
    def endpoint(self) -> str: ...

    @property
    def action(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Doubts:
    """What findings leave for the arbiter: where it may not be asked, and where counts say nothing."""

    everything: str | None = None
    """Kind of a finding that doubts every text."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Endpoints whose texts are in doubt, with the kind of the finding."""
    counts: frozenset[str] = frozenset()
    """Endpoints whose counts are in doubt."""

    @classmethod
    def of(cls, findings: Iterable[_Finding]) -> "Doubts":
        """Read open findings."""
        known = list(findings)
        wrong = [finding for finding in known if finding.action == WRONG_FORMAT]
        return cls(
            everything=next((finding.kind for finding in wrong if not finding.endpoint), None),
            texts={finding.endpoint: finding.kind for finding in wrong if finding.endpoint},
            counts=frozenset(finding.endpoint for finding in known if finding.kind == "counts"),
        )

    def obstacle(self, endpoint: str) -> str | None:
        """Tell why no answer of an endpoint is asked about, as a phrase."""
        kind = self.everything or self.texts.get(endpoint)
        return None if kind is None else f"the finding {kind} doubts the text"


def sampled_length(
    billed: int | None, offset: int | None, *, ended: bool, finish_reason: str | None
) -> tuple[int | None, bool]:
    """Tell how many tokens were sampled by the bill, and whether some of them may be hidden.

    Args:
        billed: the provider's completion tokens.
        offset: named constant between billed and counted.
        ended: the model ended the answer itself.
        finish_reason: as received.

    Returns:
        The number, None where the bill does not say it; and whether the answer was cut.
    """
    cut = not ended and finish_reason == "length"
    # A stop string's own tokens are billed and not shown.
    return (billed - (offset or 0) if billed is not None and (ended or cut) else None), cut


def differing_spans(ids: Sequence[int], canonical: Sequence[int], vocabulary: Vocabulary) -> tuple[Span, ...]:
    """List where ids differ from the canonical encoding, as far as they go."""
    until = vocabulary.boundaries(canonical).get(len(vocabulary.decode(ids)))
    return align(ids, canonical[:until], vocabulary)


def canonical_ids(ids: Sequence[int], spans: Sequence[Span], vocabulary: Vocabulary) -> tuple[int, ...]:
    """Undo spans of `tokdiff.align`: `a` in, `b` out."""
    index_at = vocabulary.boundaries(ids)
    made: list[int] = []
    done = 0
    for span in spans:
        start = index_at[span.offset]
        made += ids[done:start]
        made += span.b_ids
        done = start + len(span.a_ids)
    return (*made, *ids[done:])


def _as_before(answer: Answer, words: str) -> Ruling:
    length = answer.billed
    drift = None if length is None else length - len(answer.question.ids) - (answer.offset or 0)
    before = answer.reason.rstrip(".")
    return Ruling(
        ids=answer.question.ids,
        evidence=answer.evidence,
        usability=answer.usability,
        reason=f"{before}; {words}" if before else words[:1].upper() + words[1:],
        offset=answer.offset,
        drift=drift,
        tail_trimmed=answer.tail_trimmed,
    )


def _tokens(number: int) -> str:
    return "1 token" if number == 1 else f"{number} tokens"
