"""What the inspector shows of one sample: which lanes there are, why spans differ, how the answer ends.

Pure: a sample and a vocabulary in, values out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from eagletui.core.fidelity import PROVED
from eagletui.core.text import visible
from eagletui.core.tokdiff import Lane, Span, lanes
from eagletui.core.vocabulary import Vocabulary
from eagletui.ledger.reader_samples import SampleDetail
from eagletui.tui import figures

COMPARED: Final = (*PROVED, "inferred")
"""Evidence whose ids come from the model or were chosen by it, so that a second lane says something."""
TAIL_TOKENS: Final = 12
_CONTEXT_BYTES: Final = 18


@dataclass(frozen=True, slots=True)
class Inspection:
    """The token view of one sample."""

    ids: tuple[int, ...]
    """The stored output ids."""
    lanes: tuple[Lane, ...]
    """Stored against canonical, in order; one equal lane where nothing is compared."""
    is_compared: bool
    """Whether the stored ids come from the model, so that a second lane says something."""
    note: str
    """What the lanes are, in one line."""
    a_name: str = "proved"
    """What the first lane is."""

    @property
    def spans(self) -> tuple[Lane, ...]:
        """The lanes that differ."""
        return tuple(lane for lane in self.lanes if lane.kind != "=")


def inspect(detail: SampleDetail, vocabulary: Vocabulary) -> Inspection | None:
    """Make the token view of a sample, or None where it has no ids."""
    tokens = detail.tokens
    if tokens is None or tokens.output_ids is None:
        return None
    ids = tuple(tokens.output_ids)
    if tokens.evidence not in COMPARED:
        billed, counted = figures.count(detail.row.billed_output_tokens), figures.count(len(ids))
        why = "Conflict: what was billed or said does not fit" if tokens.evidence == "conflict" else "Counted only"
        note = f"{why}; no ids are proved. One lane, the canonical encoding: billed {billed}, counted {counted}."
        return Inspection(ids, (Lane(0, 0, ids, ids, "="),), False, note)
    unknown = vocabulary.first_unknown(ids)
    if unknown is not None:
        note = f"Id {unknown} is not in this run's vocabulary, so the ids cannot be aligned."
        return Inspection(ids, (Lane(0, 0, ids, ids, "="),), False, note)
    rebuilt = apply_spans(ids, tokens.spans, vocabulary)
    name = "proved" if tokens.evidence in PROVED else "inferred"
    note = f"The {name} ids against the canonical encoding of the same text; only what differs is doubled."
    if not tokens.spans:
        note = f"The {name} ids are the canonical encoding: nothing differs."
    return Inspection(ids, lanes(ids, rebuilt, vocabulary), True, note, name)


def apply_spans(ids: Sequence[int], spans: Sequence[Span], vocabulary: Vocabulary) -> tuple[int, ...]:
    """Rebuild the second tokenization from the first and the spans where they differ."""
    rebuilt: list[int] = []
    waiting = sorted(spans, key=lambda span: span.offset)
    offset = index = 0
    while index < len(ids) or waiting:
        if waiting and (waiting[0].offset <= offset or index >= len(ids)):
            span = waiting.pop(0)
            rebuilt += span.b_ids
            offset += span.length
            index += len(span.a_ids)
            continue
        rebuilt.append(ids[index])
        offset += len(vocabulary.bytes_of(ids[index]))
        index += 1
    return tuple(rebuilt)


def cause(lane: Lane, vocabulary: Vocabulary) -> str:
    """Explain a span: what happened and what to do about it."""
    match lane.kind:
        case "~" if any(_is_partial(vocabulary.bytes_of(token_id)) for token_id in lane.a_ids):
            return (
                f"The model wrote a character in pieces ({len(lane.a_ids)} tokens) that the tokenizer would merge."
                " Same bytes: train on the proved ids."
            )
        case "~":
            return (
                "The model cut the text otherwise than the tokenizer would. Same bytes: train on the proved ids,"
                " not on a re-encoding."
            )
        case "!":
            return (
                "The texts differ: something was lost or rewritten between the model and the reply."
                " Look at the raw reply before training on it."
            )
        case "+" if _is_partial(vocabulary.decode(lane.a_ids)):
            return "The answer was cut in mid-character: these bytes are no whole character, so no text has them."
        case "+":
            return "The model sampled these and the text of the reply does not have them: the API stripped them."
        case _:
            return "Only the rebuilt text has these; the model did not sample them."


def describe_side(ids: Sequence[int], vocabulary: Vocabulary) -> tuple[str, str]:
    """Write one side of a span as ids and as bytes per token."""
    if not ids:
        return ("none", "")
    shown = ids[:24]
    more = f" and {len(ids) - len(shown)} more" if len(ids) > len(shown) else ""
    numbers = ", ".join(map(str, shown)) + more
    return (f"[{numbers}]", " | ".join(vocabulary.bytes_of(token_id).hex(" ") for token_id in shown) + more)


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


def _is_partial(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return True
    return False
