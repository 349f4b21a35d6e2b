"""The third rung: boundaries of streamed deltas are token boundaries.

A delta is one token, or a group: tokens that a server held back until they formed a whole character, or several
tokens sent together. A group is proved only when its bytes have exactly one segmentation of its size. Sizes come
from cumulative counts; without those only their sum is known, and only if one assignment fits it there is proof.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from eagletui.core.fidelity import HIDDEN_TAIL, REPLACEMENT, Proof
from eagletui.core.likely_cuts import even_sizes, likeliest_cut
from eagletui.core.reply import Delta
from eagletui.core.segments import MANY, Ways, segmentations, single, smallest
from eagletui.core.vocabulary import Vocabulary

_FINE = 0.7
"""Deltas per canonical token from which a stream is taken for one delta a token."""

_TAIL_GUESSES = 64
"""Most tokens that are looked for behind the last text: stray bytes can keep a server waiting for long."""

_REFUTED: Final = 2
"""Tokens that the deltas need beyond the billed ones from which they cannot be tokens."""

_LOST = REPLACEMENT.encode()


class Piece(NamedTuple):
    """One delta's text, with the structure that the stream does not show."""

    data: bytes
    before: tuple[int, ...] = ()
    """Structural tokens between the delta before and this one."""
    completion_tokens: int | None = None
    """Cumulative, after this delta."""


def pieces(
    deltas: Sequence[Delta], texts: Sequence[tuple[str, str]], between: Sequence[tuple[int, ...]]
) -> list[Piece] | None:
    """Lay the deltas of a reply along its raw text.

    Args:
        deltas: as streamed.
        texts: the raw text between structural tokens as (field, text), fields `reasoning` and `content`.
        between: the structural tokens before each of the texts.

    Returns:
        None where the deltas are not the raw text: parts of tool calls, glue, or another order.
    """
    found: list[Piece] = []
    at = 0
    for (field, text), before in zip(texts, between, strict=True):
        pending = before
        covered = ""
        while at < len(deltas) and len(covered) < len(text):
            content, reasoning, tool_call, _, count = deltas[at]
            mine, other = (content, reasoning) if field == "content" else (reasoning, content)
            if other or tool_call:
                return None
            if mine:
                found.append(Piece(mine.encode(), pending, count))
                covered += mine
                pending = ()
            at += 1
        if covered != text:
            return None
    if any(delta.content or delta.reasoning or delta.tool_call for delta in deltas[at:]):
        return None
    return found


def streamed(
    stream: Sequence[Piece],
    vocabulary: Vocabulary,
    encode: Callable[[str], Sequence[int]],
    *,
    after: tuple[int, ...],
    billed: int | None,
    cut: bool,
    canonical: Sequence[int],
) -> Proof:
    """Judge the boundaries of a stream.

    Args:
        stream: from `pieces`; texts with what stands between them.
        vocabulary: the tokenizer's.
        encode: canonical encoding of a text, for stretches that nothing proves.
        after: structural tokens behind the last text, the end token included.
        billed: completion tokens with named constants undone: every token, the end token included.
        cut: the answer was cut by `max_tokens`, so up to three tokens may be hidden behind the last whole character.
        canonical: canonical ids, preferred where boundaries leave a choice, without being proof.
    """
    solution = _Solution(0, None, 0)
    text_tokens: int | None = None
    whole = b"".join(piece.data for piece in stream)  # each is whole characters, so nothing spans two of them
    reason = "there is no usage to check the stream against"
    refuted = False
    if billed is not None:
        text_tokens = billed - sum(len(piece.before) for piece in stream) - len(after)
        if all(piece.completion_tokens is not None for piece in stream):
            solution = _counted(stream, text_tokens, vocabulary)
        else:
            solution = _summed([piece.data for piece in stream], text_tokens, vocabulary)
        reason, refuted = _verdict(solution, stream, text_tokens, vocabulary)
        # A cut inside a character is believed where the answer has characters of several bytes at all.
        hidden = HIDDEN_TAIL if cut and not whole.isascii() else 0
        if not reason and solution.tail > hidden:
            reason = f"{solution.tail} tokens at the end never became text"
    if _LOST in whole:
        reason = "the server replaced bytes that are no character"
    chosen = solution.chosen
    if reason or chosen is None:
        chosen = _likeliest(stream, vocabulary, encode, canonical, solution.chosen, text_tokens)
    ids: list[int] = []
    for piece, own in zip(stream, chosen, strict=True):
        ids += piece.before
        ids += own
    leans = bool(after) or any(piece.before for piece in stream)
    return Proof("streamed", (*ids, *after), reason, solution.tail, leans_on_format=leans, refuted=refuted)


@dataclass(frozen=True, slots=True)
class _Solution:
    """How many ways fit, and one of them."""

    number: int
    chosen: list[tuple[int, ...]] | None
    """Ids per delta."""
    tail: int


def _verdict(solution: _Solution, stream: Sequence[Piece], total: int, vocabulary: Vocabulary) -> tuple[str, bool]:
    """Why the stream proves nothing, empty where it does, and whether its deltas cannot be tokens."""
    if solution.number == 1:
        chosen = zip(stream, solution.chosen or (), strict=True)
        if any(len(own) > 1 and len(own) != smallest(piece.data, vocabulary) for piece, own in chosen):
            return "a delta covers more tokens than its text needs, so text may have been lost before it", False
        return "", False
    if solution.number:
        return "a group of tokens has several segmentations", False
    least = sum(smallest(piece.data, vocabulary) or 0 for piece in stream)
    reason = f"the deltas hold at least {least} tokens and {total} were billed for them"
    return reason, least > total + _REFUTED


def _summed(data: Sequence[bytes], total: int, vocabulary: Vocabulary) -> _Solution:
    """Sizes known in sum only: unique if every delta has its least size and one segmentation of it.

    Tokens above the least sizes may be a hidden tail, longer segmentations or lost text: they prove nothing.
    """
    least: list[int] = []
    ways: list[Ways | None] = []  # of the pieces that are one token, as most are
    for piece in data:
        one = single(piece, vocabulary)
        size = 1 if one.number else smallest(piece, vocabulary)
        if size is None:
            return _Solution(0, None, 0)
        least.append(size)
        ways.append(one if one.number else None)
    excess = total - sum(least)
    if not 0 <= excess <= HIDDEN_TAIL:
        return _Solution(MANY if excess > 0 else 0, None, 0)
    found = [
        one if one is not None else segmentations(piece, size, vocabulary)
        for one, piece, size in zip(ways, data, least, strict=True)
    ]
    number = MANY if excess else min(MANY, math.prod(way.number for way in found))
    return _Solution(number, [way.ids for way in found], excess)


def _counted(stream: Sequence[Piece], total: int, vocabulary: Vocabulary) -> _Solution:
    """Sizes from cumulative counts.

    A count may run ahead of the text: it includes tokens that were sampled and not yet shown, because they end
    inside a character, and structural tokens between two texts. `ahead` is how many.
    """
    steps: list[dict[int, _Step]] = []
    states = {0: 1}
    before = structure = 0
    for index, piece in enumerate(stream):
        structure += len(piece.before)
        count = (piece.completion_tokens or 0) - structure
        following = stream[index + 1] if index + 1 < len(stream) else None
        if following is None:
            slack = _TAIL_GUESSES
        else:
            slack = len(following.before) + (0 if following.data.isascii() else HIDDEN_TAIL)
        step: dict[int, _Step] = {}
        for held, number in states.items():
            for ahead in range(slack + 1):
                size = count - before + held - ahead
                ways = segmentations(piece.data, size, vocabulary, held_back=max(0, held - len(piece.before)))
                if ways.number:
                    known = step.get(ahead)
                    together = number * ways.number + (known.number if known else 0)
                    ids = ways.ids
                    if ways.number > 1 and not held and not ahead:
                        ids = likeliest_cut(piece.data, size, vocabulary) or ids
                    step[ahead] = _Step(min(MANY, together), known.held if known else held, ids)
        steps.append(step)
        states = {ahead: found.number for ahead, found in step.items()}
        before = count
    number, last, tail = 0, None, 0
    for ahead, ways_here in sorted(states.items()):
        hidden = total - before + ahead
        if hidden >= 0:
            if last is None:
                last, tail = ahead, hidden
            number = min(MANY, number + ways_here)
    if last is None:
        return _Solution(0, None, 0)
    chosen: list[tuple[int, ...]] = []
    for step in reversed(steps):
        chosen.append(step[last].ids)
        last = step[last].held
    return _Solution(number, chosen[::-1], tail)


class _Step(NamedTuple):
    """Ways to read the stream up to one delta, with the last choice of one of them."""

    number: int
    held: int
    ids: tuple[int, ...]


def _likeliest(
    stream: Sequence[Piece],
    vocabulary: Vocabulary,
    encode: Callable[[str], Sequence[int]],
    canonical: Sequence[int],
    chosen: Sequence[tuple[int, ...]] | None,
    total: int | None,
) -> list[tuple[int, ...]]:
    """Ids for a stream that proves nothing: never across a delta's boundary, canonical where that fits."""
    fine = len(stream) >= _FINE * max(1, len(canonical))
    within = _canonical_within(stream, vocabulary, canonical)
    alone = [tuple(encode(piece.data.decode())) for piece in stream]
    plain = [there or own for there, own in zip(within, alone, strict=True)]
    data = [piece.data for piece in stream]
    sizes: Sequence[int] | None = None
    if chosen and (fine or all(piece.completion_tokens is not None for piece in stream)):
        sizes = [len(own) for own in chosen]
    elif fine:
        sizes = [smallest(piece, vocabulary) or 1 for piece in data]
    elif total is not None:
        sizes = even_sizes(data, [len(own) for own in plain], total, vocabulary)
    if sizes is None:
        return plain
    found: list[tuple[int, ...]] = []
    for index, size in enumerate(sizes):
        ways = [plain[index], alone[index], *([chosen[index]] if chosen else [])]
        fitting = next((way for way in ways if len(way) == size), ())
        found.append(fitting or likeliest_cut(data[index], size, vocabulary) or plain[index])
    return found


def _canonical_within(
    stream: Sequence[Piece], vocabulary: Vocabulary, canonical: Sequence[int]
) -> list[tuple[int, ...] | None]:
    """The canonical ids of each delta; None where they do not begin and end with it."""
    boundaries = vocabulary.boundaries(canonical)
    found: list[tuple[int, ...] | None] = []
    at = 0
    for piece in stream:
        at += len(vocabulary.decode(piece.before))
        end = at + len(piece.data)
        there = None
        if at in boundaries and end in boundaries:
            there = tuple(canonical[boundaries[at] : boundaries[end]])
        found.append(there if there is not None and vocabulary.decode(there) == piece.data else None)
        at = end
    return found
