"""What the inspector shows of one sample: which lanes there are, why spans differ, how the answer ends.

Pure: a sample and a vocabulary in, values out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

from eagletui.core.fidelity import PROVED
from eagletui.core.text import visible
from eagletui.core.tokdiff import Lane, Span
from eagletui.core.vocabulary import Vocabulary
from eagletui.ledger.reader_samples import SampleDetail
from eagletui.tui import figures
from eagletui.tui.span_cause import UNPROVED_NAME, cause

COMPARED: Final = (*PROVED, "inferred")
"""Evidence whose ids come from the model or were chosen by it, so that a second lane says something."""
TAIL_TOKENS: Final = 12
_CONTEXT_BYTES: Final = 18
_NEAR_TOKENS: Final = 4
"""Hold a whole character, however it was cut."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One place where the two tokenizations differ."""

    lane: Lane
    token: int
    """Index of its first token, counted in the stored ids."""
    before: bytes
    """Some bytes before it."""
    after: bytes
    """Some bytes behind it."""

    def cause(self, vocabulary: Vocabulary, name: str) -> str:
        """Say what happened and what to do about it."""
        return cause(self.lane, vocabulary, name, before=self.before, after=self.after)


@dataclass(frozen=True, slots=True)
class Inspection:
    """The token view of one sample."""

    ids: tuple[int, ...]
    """The stored output ids."""
    lanes: tuple[Lane, ...]
    """Stored against canonical, in order; one equal lane where nothing is compared."""
    is_compared: bool
    """Whether a second lane says something: the stored ids come from the model, or are not the canonical ones."""
    note: str
    """What the lanes are, in one line."""
    a_name: str = "proved"
    """What the first lane is."""
    differences: tuple[Difference, ...] = ()
    """The lanes that differ, each with its place."""
    bytes: int | None = None
    """Of the whole answer, specials at literal length; None where an id names nothing."""

    @property
    def spans(self) -> tuple[Lane, ...]:
        """The lanes that differ."""
        return tuple(difference.lane for difference in self.differences)

    def bytes_of(self, index: int) -> str:
        """Say which bytes of the answer a difference covers."""
        lane = self.differences[index].lane
        last = lane.offset + lane.length - 1
        place = f"byte {lane.offset:,}" if last <= lane.offset else f"bytes {lane.offset:,}-{last:,}"
        return f"{place} of {figures.count(self.bytes)}"

    def token_of(self, index: int) -> str:
        """Say at which of the stored ids a difference begins."""
        return f"token {self.differences[index].token + 1:,} of {len(self.ids):,}"


def inspect(detail: SampleDetail, vocabulary: Vocabulary) -> Inspection | None:
    """Make the token view of a sample, or None where it has no ids."""
    tokens = detail.tokens
    if tokens is None or tokens.output_ids is None:
        return None
    ids = tuple(tokens.output_ids)
    whole = (Lane(0, 0, ids, ids, "="),)
    unknown = vocabulary.first_unknown(ids)
    if unknown is not None:
        note = f"Id {unknown} is not in this run's vocabulary, so the ids cannot be aligned."
        return Inspection(ids, whole, False, note)
    if tokens.evidence not in COMPARED:
        billed, counted = figures.count(detail.row.billed_output_tokens), figures.count(len(ids))
        why = "Conflict: what was billed or said does not fit" if tokens.evidence == "conflict" else "Counted only"
        name, lead = UNPROVED_NAME, f"{why}; no ids are proved."
        if not tokens.spans:
            note = f"{lead} One lane, the canonical encoding: billed {billed}, counted {counted}."
            return Inspection(ids, whole, False, note)
        note = f"{lead} The stored ids follow what was seen, against the canonical encoding: billed {billed}."
    else:
        name = "proved" if tokens.evidence in PROVED else "inferred"
        note = f"The {name} ids against the canonical encoding of the same text; only what differs is doubled."
        if not tokens.spans:
            note = f"The {name} ids are the canonical encoding: nothing differs."
    found = lanes_of(ids, tokens.spans, vocabulary)
    return Inspection(ids, found, True, note, name, _differences(found, vocabulary), _end_of(found))


def lanes_of(ids: Sequence[int], spans: Sequence[Span], vocabulary: Vocabulary) -> tuple[Lane, ...]:
    """Put what both tokenizations share between the spans where they differ.

    Args:
        ids: the first tokenization.
        spans: where the second differs, by its offset in the first; those of `tokdiff.align`.
        vocabulary: must know every id.
    """
    found: list[Lane] = []
    offset = start = index = 0
    for span in sorted(spans, key=lambda span: span.offset):
        first = offset
        while offset < span.offset and index < len(ids):
            offset += len(vocabulary.bytes_of(ids[index]))
            index += 1
        if index > start:
            found.append(Lane(first, offset - first, tuple(ids[start:index]), tuple(ids[start:index]), "="))
        found.append(Lane(span.offset, span.length, span.a_ids, span.b_ids, span.kind))
        index += len(span.a_ids)
        offset, start = span.offset + span.length, index
    if start < len(ids):
        rest = tuple(ids[start:])
        found.append(Lane(offset, len(vocabulary.decode(rest)), rest, rest, "="))
    return tuple(found)


def _differences(found: Sequence[Lane], vocabulary: Vocabulary) -> tuple[Difference, ...]:
    differences: list[Difference] = []
    token = 0
    before = b""
    for lane, following in zip_longest(found, found[1:]):
        if lane.kind != "=":
            after = b"" if following is None else vocabulary.decode(following.a_ids[:_NEAR_TOKENS])
            differences.append(Difference(lane, token, before, after))
        token += len(lane.a_ids)
        before = vocabulary.decode(lane.a_ids[-_NEAR_TOKENS:])
    return tuple(differences)


def _end_of(found: Sequence[Lane]) -> int:
    return found[-1].offset + found[-1].length if found else 0


@dataclass(frozen=True, slots=True)
class TailRow:
    """One of the last ids."""

    position: int
    """Counted from the start, from 0."""
    token_id: int
    kind: str
    """special, ordinary, or unknown."""
    alone: str
    """What the id decodes to by itself."""
    context: str
    """The text that ends with it, the token in brackets."""


def tail_rows(ids: Sequence[int], vocabulary: Vocabulary, *, ascii_: bool = False) -> list[TailRow]:
    """Spell out the last ids, each alone and where it stands."""
    rows: list[TailRow] = []
    start = max(0, len(ids) - TAIL_TOKENS)
    for position in range(start, len(ids)):
        token_id = ids[position]
        if token_id not in vocabulary:
            rows.append(TailRow(position, token_id, "unknown", "no such token", ""))
            continue
        before = b"".join(
            vocabulary.bytes_of(earlier) for earlier in ids[max(0, position - 12) : position] if earlier in vocabulary
        )
        alone = visible(vocabulary.bytes_of(token_id), ascii_=ascii_)
        context = visible(before[-_CONTEXT_BYTES:], ascii_=ascii_)
        kind = "special" if vocabulary.is_special(token_id) else "ordinary"
        rows.append(TailRow(position, token_id, kind, alone, f"{context}[{alone}]"))
    return rows


def tail_verdict(
    ids: Sequence[int], vocabulary: Vocabulary, expected: str | None, finish: str | None
) -> tuple[str, bool]:
    """Compare the last id with the token that should end the answer.

    Returns:
        A sentence, and whether all is well as far as can be told.
    """
    if not ids:
        return ("There are no ids.", False)
    last = ids[-1]
    shown = visible(vocabulary.bytes_of(last)) if last in vocabulary else "no such token"
    if expected is None:
        return (f"No end token is expected (finish reason {finish or 'unknown'}). The last id is {last}: {shown}", True)
    wanted = vocabulary.specials.get(expected)
    if wanted is None:
        return (f"{expected} should end the answer, and this vocabulary has no such token.", False)
    if last == wanted:
        return (f"The last id is {wanted}, {expected}: the expected end (finish reason {finish}).", True)
    return (f"{expected} ({wanted}) should end the answer, but the last id is {last}: {shown}", False)
