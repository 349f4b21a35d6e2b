"""Align two tokenizations by byte offset.

`a` is what is proved or recorded, `b` the canonical or rebuilt list. Offsets count UTF-8 bytes of `a`'s decoded
text with special tokens at literal length.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import accumulate
from typing import Final, Literal

from eagletui.core.vocabulary import Vocabulary

SpanKind = Literal["~", "!", "+", "-"]
LaneKind = Literal["=", "~", "!", "+", "-"]

_EXACT_DIFF_LIMIT: Final = 2_000
"""Longer lists are compared with difflib's popularity heuristic, which keeps repetitive text from going quadratic."""


@dataclass(frozen=True, slots=True)
class Span:
    """A run of bytes where two tokenizations differ."""

    offset: int
    """First byte, counted in `a`."""
    length: int
    """Bytes covered in `a`; 0 for a run that only `b` has."""
    a_ids: tuple[int, ...]
    b_ids: tuple[int, ...]
    kind: SpanKind
    """`~` same bytes other ids, `!` other text, `+` only in a, `-` only in b."""


def is_hidden_tail(span: Span, raw: str) -> bool:
    """Tell whether a span is only what a cut in mid-character hides.

    Such ids lie behind the last whole character: no text has them, so no re-encoding of a text can differ there.

    Args:
        span: of proved against canonical ids.
        raw: the text of the proved ids, up to the last whole character.
    """
    return span.kind == "+" and span.offset >= len(raw.encode("utf-8", "surrogatepass"))


@dataclass(frozen=True, slots=True)
class Lane:
    """One run of the two tokenizations, equal or not, in order."""

    offset: int
    length: int
    a_ids: tuple[int, ...]
    b_ids: tuple[int, ...]
    kind: LaneKind


def align(a_ids: Sequence[int], b_ids: Sequence[int], vocabulary: Vocabulary) -> tuple[Span, ...]:
    """List the runs where two tokenizations differ, in order.

    Args:
        a_ids: served, streamed, truth or recorded ids.
        b_ids: canonical or rebuilt ids.
        vocabulary: must know every id.

    Raises:
        KeyError: an id names nothing.
    """
    return tuple(
        Span(lane.offset, lane.length, lane.a_ids, lane.b_ids, lane.kind)
        for lane in lanes(a_ids, b_ids, vocabulary)
        if lane.kind != "="
    )


def lanes(a_ids: Sequence[int], b_ids: Sequence[int], vocabulary: Vocabulary) -> tuple[Lane, ...]:
    """List equal and differing runs in order, for a two-lane view.

    Raises:
        KeyError: an id names nothing.
    """
    found: list[Lane] = []
    equal: list[int] = []
    offset = equal_from = 0
    for a_run, b_run in _runs(tuple(a_ids), tuple(b_ids), vocabulary):
        if a_run == b_run:
            equal.extend(a_run)
            offset += len(vocabulary.decode(a_run))
            continue
        if equal:
            found.append(Lane(equal_from, offset - equal_from, tuple(equal), tuple(equal), "="))
            equal.clear()
        length = len(vocabulary.decode(a_run))
        found.append(Lane(offset, length, a_run, b_run, _kind(a_run, b_run, vocabulary)))
        offset += length
        equal_from = offset
    if equal:
        found.append(Lane(equal_from, offset - equal_from, tuple(equal), tuple(equal), "="))
    return tuple(found)


def _runs(
    a: tuple[int, ...], b: tuple[int, ...], vocabulary: Vocabulary
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Cut both lists into pairs of runs, equal or differing, as small as byte boundaries allow."""
    start = _common_prefix(a, b)
    if start:
        yield a[:start], b[:start]
    end = _common_prefix(a[start:][::-1], b[start:][::-1])
    yield from _refined(a[start : len(a) - end], b[start : len(b) - end], vocabulary, deeper=True)
    if end:
        yield a[len(a) - end :], b[len(b) - end :]


def _refined(
    a: tuple[int, ...], b: tuple[int, ...], vocabulary: Vocabulary, *, deeper: bool
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Take resegmented text off both ends of a differing run; what remains is compared id by id where `deeper`."""
    if not a and not b:
        return
    if _same_text(a, b, vocabulary):
        yield from _shared_boundaries(a, b, vocabulary)
        return
    a_head, b_head = _same_text_prefix(a, b, vocabulary)
    yield from _shared_boundaries(a[:a_head], b[:b_head], vocabulary)
    a, b = a[a_head:], b[b_head:]
    a_tail, b_tail = _same_text_suffix(a, b, vocabulary)
    a_middle, b_middle = a[: len(a) - a_tail], b[: len(b) - b_tail]
    if deeper:
        long = len(a_middle) + len(b_middle) > _EXACT_DIFF_LIMIT
        matcher = SequenceMatcher(None, a_middle, b_middle, autojunk=long)
        for tag, a_low, a_high, b_low, b_high in matcher.get_opcodes():
            a_run, b_run = a_middle[a_low:a_high], b_middle[b_low:b_high]
            if tag == "equal":
                yield a_run, b_run
            else:
                yield from _refined(a_run, b_run, vocabulary, deeper=False)
    else:
        yield a_middle, b_middle
    yield from _shared_boundaries(a[len(a) - a_tail :], b[len(b) - b_tail :], vocabulary)


def _shared_boundaries(
    a: tuple[int, ...], b: tuple[int, ...], vocabulary: Vocabulary
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Cut two tokenizations of the same bytes wherever both have a boundary."""
    a_from = b_from = a_at = b_at = 0
    a_bytes = b_bytes = 0
    while a_at < len(a) or b_at < len(b):
        if b_at == len(b) or (a_at < len(a) and a_bytes <= b_bytes):
            a_bytes += len(vocabulary.bytes_of(a[a_at]))
            a_at += 1
        else:
            b_bytes += len(vocabulary.bytes_of(b[b_at]))
            b_at += 1
        if a_bytes == b_bytes:
            yield a[a_from:a_at], b[b_from:b_at]
            a_from, b_from = a_at, b_at
    if a_from < len(a) or b_from < len(b):
        yield a[a_from:], b[b_from:]


def _same_text_prefix(a: tuple[int, ...], b: tuple[int, ...], vocabulary: Vocabulary) -> tuple[int, int]:
    """How many ids of each list cover the longest common text that ends on a boundary of both."""
    a_ends = _ends(a, vocabulary)
    b_ends = {end: index for index, end in enumerate(_ends(b, vocabulary), 1)}
    a_text, b_text = vocabulary.decode(a), vocabulary.decode(b)
    best = (0, 0)
    for index, end in enumerate(a_ends, 1):
        if a_text[:end] != b_text[:end]:
            break
        if end in b_ends and _specials(a[:index], vocabulary) == _specials(b[: b_ends[end]], vocabulary):
            best = (index, b_ends[end])
    return best


def _same_text_suffix(a: tuple[int, ...], b: tuple[int, ...], vocabulary: Vocabulary) -> tuple[int, int]:
    """The same from the end."""
    a_text, b_text = vocabulary.decode(a), vocabulary.decode(b)
    b_starts = {end: index for index, end in enumerate(_ends(b[::-1], vocabulary), 1)}
    best = (0, 0)
    for index, end in enumerate(_ends(a[::-1], vocabulary), 1):
        if a_text[-end:] != b_text[-end:]:
            break
        if end in b_starts and _specials(a[-index:], vocabulary) == _specials(b[-b_starts[end] :], vocabulary):
            best = (index, b_starts[end])
    return best


def _ends(ids: tuple[int, ...], vocabulary: Vocabulary) -> list[int]:
    return list(accumulate(len(vocabulary.bytes_of(token_id)) for token_id in ids))


def _common_prefix(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    for index, (left, right) in enumerate(zip(a, b, strict=False)):
        if left != right:
            return index
    return min(len(a), len(b))


def _specials(ids: tuple[int, ...], vocabulary: Vocabulary) -> list[int]:
    return [token_id for token_id in ids if vocabulary.is_special(token_id)]


def _same_text(a: tuple[int, ...], b: tuple[int, ...], vocabulary: Vocabulary) -> bool:
    """Same bytes and the same special tokens: a special is never the same text as its spelled-out pieces."""
    if _specials(a, vocabulary) != _specials(b, vocabulary):
        return False
    return vocabulary.decode(a) == vocabulary.decode(b)


def _kind(a: tuple[int, ...], b: tuple[int, ...], vocabulary: Vocabulary) -> SpanKind:
    if not b:
        return "+"
    if not a:
        return "-"
    return "~" if _same_text(a, b, vocabulary) else "!"
