"""The second rung: token bytes in `logprobs.content[]`.

vLLM sends one entry a token; a token that ends inside a character is an empty entry, and the entry that completes the
character holds the bytes of the whole group. llama.cpp sends no entry for such tokens; the one that completes the
character has the last token's id and the bytes of all. `token_id:N` and llama.cpp's `id` name tokens outright.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from eagletui.core.fidelity import HIDDEN_TAIL, REPLACEMENT, Proof, covers
from eagletui.core.reply import LogprobEntry, Reply
from eagletui.core.segments import MANY, NONE, Ways, assignments, segmentations, single, smallest
from eagletui.core.vocabulary import Vocabulary

_LOST = REPLACEMENT.encode()
_TAIL_GUESSES = 8
"""Most tokens that are looked for behind the last entry: stray bytes can keep a server waiting."""

_MOST_MERGED = 12
"""Most tokens looked for in a merged entry of unknown size."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Consecutive tokens that share one non-empty entry."""

    data: bytes
    ways: dict[int, Ways]
    """By number of tokens; one size where the entries tell it."""
    least: int
    """The smallest size that is possible."""
    named: bool = False
    """The server named every id of the group."""
    last_id: int | None = None
    """The last token, where the server named it."""


def logprobs(
    reply: Reply,
    shown: Sequence[str],
    around: Collection[str] | None,
    vocabulary: Vocabulary,
    end_id: int | None,
    canonical: Sequence[int],
    *,
    offset: int = 0,
    may_stop_early: bool = False,
) -> Proof | None:
    """Judge logprob entries.

    Args:
        reply: the answer.
        shown: its texts in the order in which the model wrote them.
        around: literals that may stand around them; None where anything may.
        vocabulary: the tokenizer's.
        end_id: the token that ends this answer; None for a cut one.
        canonical: canonical ids; where an ambiguous group agrees with them they are preferred, without being proof.
        offset: the endpoint's named constant: billed minus counted.
        may_stop_early: a stop string may have ended the answer in place of the end token.

    Returns:
        None when there are no entries.
    """
    entries = reply.logprobs
    if not entries:
        return None
    billed = reply.usage.completion_tokens if reply.usage else None
    billed = None if billed is None else billed - offset
    groups, hidden, fault = _groups(entries, vocabulary)
    if fault:
        return Proof("logprobs", (), fault)
    cut = end_id is None
    shows_tail = bool(shown) and shown[-1].endswith(REPLACEMENT)
    lost_end = not cut and not may_stop_early and not _ends_with_special(groups, vocabulary)
    sums = _sums(groups, billed, hidden, cut=cut, lost_end=lost_end, shows_tail=shows_tail)
    chosen, tail, ambiguous = _solve(groups, sums)
    reason = ambiguous or sums.fault
    if not reason and tail > (HIDDEN_TAIL if cut else 0):
        reason = f"{tail} tokens at the end never became text"
    ids = _join(groups, chosen, vocabulary, canonical)
    if ids is None:
        return Proof("logprobs", (), reason)
    if sums.lost_end and end_id is not None:
        ids = (*ids, end_id)
    if not reason and end_id is not None and end_id in ids[:-1]:
        reason = "the entries go on behind the end token"
    if not reason:
        reason = _uncovered(
            ids, shown, around, vocabulary, None if billed is not None else canonical, by_text=sums.by_text
        )
    return Proof("logprobs", ids, reason, tail, leans_on_format=sums.lost_end)


def _uncovered(
    ids: Sequence[int],
    shown: Sequence[str],
    around: Collection[str] | None,
    vocabulary: Vocabulary,
    canonical: Sequence[int] | None,
    *,
    by_text: bool,
) -> str:
    """Why the ids are not the answer that the reply shows."""
    text = vocabulary.decode(ids)
    if by_text and around is None:
        return "the bill does not count the entries, and not all of their text is shown"
    if around is not None:
        around = {
            *around,
            *(vocabulary.bytes_of(i).decode("utf-8", "replace") for i in ids if vocabulary.is_special(i)),
        }
    if not covers(text, [*shown[:-1], *(last.rstrip(REPLACEMENT) for last in shown[-1:])], around, blanks=not by_text):
        return "the entries do not give the text"
    if canonical is not None and text != vocabulary.decode(canonical):
        return "there is no usage, and the entries give other text than the reply"
    return ""


def _groups(entries: Sequence[LogprobEntry], vocabulary: Vocabulary) -> tuple[list[_Group], int, str]:
    """Read the entries as groups; also the number of empty entries at the end and a fault that ends all."""
    groups: list[_Group] = []
    held: list[int | None] = []
    specials = vocabulary.special_bytes
    for position, entry in enumerate(entries):
        if entry.bytes_ and entry.id is None and not held and entry.bytes_ not in specials:
            one = single(entry.bytes_, vocabulary)
            if one.number:
                groups.append(_Group(entry.bytes_, {1: one}, 1))
                continue
        data = _bytes(entry, vocabulary)
        if data is None:
            return [], 0, f"entry {position} has no bytes"
        if entry.id is not None and entry.id not in vocabulary:
            return [], 0, f"entry {position} names id {entry.id}, which is not in the vocabulary of {vocabulary.size}"
        if not data:
            held.append(entry.id)
            continue
        groups.append(_group(data, entry.id, held, vocabulary))
        held = []
    if held and None not in held:
        ids = tuple(token_id for token_id in held if token_id is not None)
        groups.append(_Group(vocabulary.decode(ids), {len(ids): Ways(1, ids)}, len(ids), named=True))
        held = []
    return groups, len(held), ""


def _bytes(entry: LogprobEntry, vocabulary: Vocabulary) -> bytes | None:
    """Bytes of an entry; a special named by id stands at its literal text."""
    if entry.id is not None and vocabulary.is_special(entry.id):
        return vocabulary.bytes_of(entry.id)
    if entry.bytes_ is not None:
        return entry.bytes_
    if entry.id is not None and entry.id in vocabulary:
        return vocabulary.bytes_of(entry.id)
    return None if REPLACEMENT in entry.token else entry.token.encode()


def _group(data: bytes, last_id: int | None, held: Sequence[int | None], vocabulary: Vocabulary) -> _Group:
    """The ways to read one non-empty entry after `held` empty ones."""
    size = len(held) + 1
    if last_id is not None:
        own = vocabulary.bytes_of(last_id)
        if None not in held:
            ids = (*(token_id for token_id in held if token_id is not None), last_id)
            if vocabulary.decode(ids) == data or (held and own == data):
                return _Group(vocabulary.decode(ids), {size: Ways(1, ids)}, size, named=True)
        if held:
            ways = segmentations(data, size, vocabulary, last_id=last_id, known=_known(held))
            return _Group(data, {size: ways}, size, last_id=last_id)
        return _merged(data, last_id, vocabulary)
    special = vocabulary.specials.get(data.decode("utf-8", "replace"))
    if size > 1 and special is not None:
        return _Group(data, {size: NONE}, size)  # the empty entries before it never became text
    if size == 1:
        ordinary = vocabulary.id_of(data)
        if special is not None:
            return _Group(data, {1: Ways(1 if ordinary is None else MANY, (special,))}, 1)
        if ordinary is None:
            return _merged(data, None, vocabulary)
    return _Group(data, {size: segmentations(data, size, vocabulary)}, size)


def _merged(data: bytes, last_id: int | None, vocabulary: Vocabulary) -> _Group:
    """An entry that holds several tokens, their number unknown."""
    least = smallest(data, vocabulary) or 1
    sizes = range(max(2, least), min(len(data), _MOST_MERGED) + 1)
    ways = {size: segmentations(data, size, vocabulary, last_id=last_id) for size in sizes}
    possible = {size: found for size, found in ways.items() if found.number}
    if len(possible) == 1:
        possible |= {0: NONE}  # still of unknown size: its one size must fit the sum
    return _Group(data, possible or {1: NONE}, min((size for size in possible if size), default=1), last_id=last_id)


def _known(held: Sequence[int | None]) -> dict[int, int]:
    return {position: token_id for position, token_id in enumerate(held) if token_id is not None}


def _ends_with_special(groups: Sequence[_Group], vocabulary: Vocabulary) -> bool:
    return bool(groups) and groups[-1].data.decode("utf-8", "replace") in vocabulary.specials


class _Sums(NamedTuple):
    """What the billed count leaves open."""

    totals: tuple[int, ...]
    """Possible numbers of tokens in the merged entries together, the likeliest first."""
    tails: tuple[int, ...]
    """The hidden tail that goes with each."""
    lost_end: bool
    """The end token has no entry."""
    fault: str
    by_text: bool = False
    """The count leaves open whether an entry is repeated or the end token unbilled: only the whole text settles it."""


def _sums(
    groups: Sequence[_Group],
    billed: int | None,
    hidden: int,
    *,
    cut: bool,
    lost_end: bool,
    shows_tail: bool,
) -> _Sums:
    """Compare the entries with the billed count."""
    merged = any(len(group.ways) > 1 for group in groups)
    fixed = sum(group.least for group in groups if len(group.ways) == 1)
    if billed is None:
        fault = "a merged entry has an unknown number of tokens and there is no usage" if merged else ""
        return _Sums((0,), (hidden,), lost_end, fault)
    # Only a server that shows U+FFFD for an unfinished character leaves tokens without any entry.
    tails = tuple(range(max(1, hidden), _TAIL_GUESSES + 1)) if shows_tail else (hidden,)
    if merged:
        totals = tuple(billed - fixed - lost_end - tail for tail in tails)
        return _Sums(totals, tails, lost_end, "")
    missing = billed - fixed
    if cut and missing in tails:
        return _Sums((0,), (missing,), False, "")
    # Where every entry is one token and all bytes are text, the text alone settles them, and the end token may be
    # unbilled. Bytes that are no character reach the text as U+FFFD, which does not tell how many there were.
    single = all(group.least == 1 or group.named for group in groups) and _is_text(groups)
    if not cut and not shows_tail and (missing == lost_end or (single and missing == lost_end - 1)):
        return _Sums((0,), (0,), lost_end, "", by_text=missing != lost_end)
    return _Sums((0,), (hidden,), lost_end, f"{fixed} tokens are in the entries and {billed} were billed")


def _is_text(groups: Sequence[_Group]) -> bool:
    try:
        b"".join(group.data for group in groups).decode()
    except UnicodeDecodeError:
        return False
    return True


def _solve(groups: Sequence[_Group], sums: _Sums) -> tuple[dict[int, tuple[int, ...]], int, str]:
    """Ids per merged entry, the hidden tail, and why that is no proof."""
    for group in groups:
        if group.named:
            continue
        if _LOST in group.data:
            return {}, sums.tails[0], "the server replaced bytes that are no character"
        if len(group.ways) == 1 and group.ways[group.least].number != 1:
            text = group.data.decode("utf-8", "replace")
            what = "has several segmentations" if group.ways[group.least].number else "is no vocabulary entry"
            return {}, sums.tails[0], f"a group of {group.least} tokens ({text!r}) {what}"
    merged = [(index, group) for index, group in enumerate(groups) if len(group.ways) > 1]
    if not merged or sums.fault:
        return {}, sums.tails[0], ""
    found = 0
    best: tuple[tuple[int, ...], ...] = ()
    tail = sums.tails[0]
    for total, guess in zip(sums.totals, sums.tails, strict=True):
        number, chosen = assignments([group.ways for _, group in merged], total)
        if number and not found:
            best, tail = chosen, guess
        found += number
    picked = {index: ids for (index, _), ids in zip(merged, best, strict=False)}
    if found == 1:
        return picked, tail, ""
    return picked, tail, f"{len(merged)} merged entries have {'several' if found else 'no'} segmentations of their size"


def _join(
    groups: Sequence[_Group], chosen: dict[int, tuple[int, ...]], vocabulary: Vocabulary, canonical: Sequence[int]
) -> tuple[int, ...] | None:
    """All ids in order; ambiguous groups follow the canonical ids where those have a boundary at both ends."""
    boundaries = vocabulary.boundaries(canonical)
    ids: list[int] = []
    at = 0
    for index, group in enumerate(groups):
        end = at + len(group.data)
        if len(group.ways) == 1 and group.ways[group.least].number == 1:
            ids_here: tuple[int, ...] | None = group.ways[group.least].ids
        else:
            ids_here = _preferred(group, chosen.get(index), boundaries, at, end, canonical, vocabulary)
        if ids_here is None:
            return None
        ids += ids_here
        at = end
    return tuple(ids)


def _preferred(
    group: _Group,
    chosen: tuple[int, ...] | None,
    boundaries: dict[int, int],
    at: int,
    end: int,
    canonical: Sequence[int],
    vocabulary: Vocabulary,
) -> tuple[int, ...] | None:
    """The likeliest ids of a group that is not proved."""
    if at in boundaries and end in boundaries:
        there = tuple(canonical[boundaries[at] : boundaries[end]])
        size = len(chosen) if chosen else len(there)
        fits = len(there) == size and size in group.ways and group.last_id in (None, *there[-1:])
        if fits and vocabulary.decode(there) == group.data:
            return there
    if chosen:
        return chosen
    return next((ways.ids for size, ways in sorted(group.ways.items()) if ways.ids), None)
