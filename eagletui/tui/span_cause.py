"""Why two tokenizations differ in one place, in a sentence, and what to do about it.

Pure: a run of ids from both and a vocabulary in, words out. `a` is what the model wrote or a server recorded, `b` the
text encoded again.
"""

import unicodedata
from collections.abc import Sequence
from itertools import accumulate, islice
from typing import Final

from eagletui.core.text import shorten, visible
from eagletui.core.tokdiff import Lane
from eagletui.core.vocabulary import Vocabulary

UNPROVED_NAME: Final = "stored"
"""Of a first side that nothing proves."""
_TRAIN: Final = "Same bytes: train on the {name} ids, not on a re-encoding."
_UNPROVED: Final = "Same bytes, and nothing proves which of the two the model sampled."
_WROTE: Final = {UNPROVED_NAME: "The model may have written", "inferred": "The model most likely wrote"}
_LOOK: Final = "Look at the reply (v) before training on it."
_QUOTED_CELLS: Final = 24
_PAIRS_SHOWN: Final = 2
_REPLACED: Final = "\N{REPLACEMENT CHARACTER}"
_BLANKS: Final = {" ": "space", "\n": "newline", "\t": "tab", "\r": "carriage return"}


def cause(lane: Lane, vocabulary: Vocabulary, name: str = "proved", *, before: bytes = b"", after: bytes = b"") -> str:
    """Explain a span: what happened and what to do about it.

    Args:
        lane: a run where the two differ.
        vocabulary: must know every id.
        name: of the first tokenization.
        before: the bytes before the span, three at least where there are some: a span may lie inside a character.
        after: those behind it.
    """
    match lane.kind:
        case "~":
            advice = _UNPROVED if name == UNPROVED_NAME else _TRAIN.format(name=name)
            wrote = _WROTE.get(name, "The model wrote")
            return f"{_same_bytes(lane, vocabulary, wrote, before, after)} {advice}"
        case "!":
            return _other_text(lane, vocabulary, name)
        case "+":
            return _only_first(lane, vocabulary, name)
        case _:
            return _only_second(lane, vocabulary)


def _same_bytes(lane: Lane, vocabulary: Vocabulary, wrote: str, before: bytes, after: bytes) -> str:
    text = vocabulary.decode(lane.a_ids).decode("utf-8", "replace")
    ours, theirs = _count(lane.a_ids), _count(lane.b_ids)
    cut, cut_again = (_cut_character(ids, vocabulary, before, after) for ids in (lane.a_ids, lane.b_ids))
    if cut:
        return f"{wrote} {cut} in pieces: {ours} here, {theirs} when the text is encoded again."
    if cut_again:
        return f"{wrote} {cut_again} in {ours}, and the text encoded again cuts inside it: {theirs}."
    if text and not text.strip():
        return f"{wrote} these blanks ({_blanks(text)}) in {ours}; the text encoded again takes {theirs}."
    quoted = _quoted(vocabulary.decode(lane.a_ids))
    if len(lane.b_ids) == 1:
        return f"{wrote} {quoted} in {ours}, and the tokenizer has one token for it."
    if len(lane.a_ids) == 1:
        return f"{wrote} {quoted} in one token; the text encoded again takes {theirs}."
    return f"{wrote} {quoted} in {ours}, cut at other places than the {theirs} of the text encoded again."


def _other_text(lane: Lane, vocabulary: Vocabulary, name: str) -> str:
    a, b = vocabulary.decode(lane.a_ids), vocabulary.decode(lane.b_ids)
    if a == b:
        return _spelled_out(lane, vocabulary, name)
    special = _specials(lane.b_ids, vocabulary)
    if special and not _specials(lane.a_ids, vocabulary):
        ids = ", ".join(map(str, islice(lane.a_ids, 3)))
        return (
            f"{special[0]} (id {vocabulary.special_id(special[0])}) belongs here, and the {name} ids have {ids}, which"
            f" spells {_quoted(a)}: a wrong id for it, or an answer that never ended. {_LOOK}"
        )
    return f"{_letters(a, b)} {_LOOK}"


def _spelled_out(lane: Lane, vocabulary: Vocabulary, name: str) -> str:
    """The letters of a special token in ordinary tokens are another thing to a model than the special token."""
    ours, theirs = _specials(lane.a_ids, vocabulary), _specials(lane.b_ids, vocabulary)
    extra = next((text for text in theirs if text not in ours), "")
    if extra:
        return (
            f"The model spelled {extra} out in ordinary tokens, and the text encoded again makes it the special token"
            f" {vocabulary.special_id(extra)}: to a model these are different. Train on the {name} ids."
        )
    extra = next((text for text in ours if text not in theirs), "a special token")
    return (
        f"The model sampled the special token {extra}, and the text encoded again spells its letters out: to a model"
        f" these are different. Train on the {name} ids."
    )


def _letters(a: bytes, b: bytes) -> str:
    """Tell how two texts differ, the least suspicious reading first."""
    ours, theirs = a.decode("utf-8", "replace"), b.decode("utf-8", "replace")
    if _REPLACED in theirs and _REPLACED.encode() not in a:
        return "The text has U+FFFD where the model wrote something else: the API cut a character in its middle."
    if _is_partial(a) and a.startswith(b):
        return "The last character of the model is not whole, and the text stops before it."
    if "".join(ours.split()) == "".join(theirs.split()):
        return f"Only blanks differ: {_blanks(ours)} against {_blanks(theirs)}. Something changed them on the way."
    if any(_normal(form, ours) == _normal(form, theirs) for form in ("NFC", "NFKC")):
        return f"The same letters in other Unicode characters, {_pairs(ours, theirs)}: something normalised the text."
    if ours.casefold() == theirs.casefold():
        return f"Only capitals differ: {_pairs(ours, theirs)}."
    if len(ours) == len(theirs):
        return f"Other characters, which may look alike: {_pairs(ours, theirs)}."
    return f"The texts differ, {_quoted(a)} against {_quoted(b)}: something was lost or rewritten on the way."


def _only_first(lane: Lane, vocabulary: Vocabulary, name: str) -> str:
    data = vocabulary.decode(lane.a_ids)
    if not data:
        return "These tokens hold no byte at all: no text can show them."
    if _is_partial(data):
        return "The answer was cut in mid-character: these bytes are no whole character, so no text has them."
    if _is_blank(data):
        what = f"only blanks ({_blanks(data.decode())})"
    else:
        what = _quoted(data)
    return (
        f"The model sampled these, {what}, and the text of the reply does not have them: the API stripped them."
        f" Train on the {name} ids."
    )


def _only_second(lane: Lane, vocabulary: Vocabulary) -> str:
    data = vocabulary.decode(lane.b_ids)
    what = f"only blanks ({_blanks(data.decode())})" if data and _is_blank(data) else _quoted(data)
    return f"Only the text encoded again has these, {what}: the model did not sample them. {_LOOK}"


def _cut_character(ids: Sequence[int], vocabulary: Vocabulary, before: bytes, after: bytes) -> str:
    """Name the first character that a token of a run begins in; '' where none does.

    A character that lies half in the run is found too: the run may be what is left after equal tokens were taken off.
    """
    before = before[-3:]
    starts = set(accumulate((len(vocabulary.bytes_of(token_id)) for token_id in ids[:-1]), initial=len(before)))
    data = before + vocabulary.decode(ids) + after[:3]
    at = 0
    for char in data.decode("utf-8", "surrogateescape"):
        size = len(char.encode("utf-8", "surrogateescape"))
        if any(at < start < at + size for start in starts):
            return f"{visible(char)} ({_code_point(char)})"
        at += size
    return ""


def _pairs(ours: str, theirs: str) -> str:
    """Name the first characters that differ, with the marks on them."""
    if len(ours) == len(theirs):
        differing = [(one, other) for one, other in zip(ours, theirs, strict=True) if one != other]
    else:
        start = next((at for at, (one, other) in enumerate(zip(ours, theirs, strict=False)) if one != other), 0)
        differing = [(_with_marks(ours, start), _with_marks(theirs, start))]
    named = [f"{_named(one)} against {_named(other)}" for one, other in differing[:_PAIRS_SHOWN]]
    more = len(differing) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")


def _with_marks(text: str, start: int) -> str:
    marks = 1
    while start + marks < len(text) and unicodedata.combining(text[start + marks]):
        marks += 1
    return text[start : start + marks]


def _named(characters: str) -> str:
    if not characters:
        return "nothing"
    points = " ".join(map(_code_point, characters))
    name = unicodedata.name(characters[-1], "unnamed").lower()
    return f"{visible(characters)} {points} {name}"


def _code_point(char: str) -> str:
    return f"U+{ord(char):04X}"


def _blanks(text: str) -> str:
    """Count the blanks of a text by kind."""
    counts: dict[str, int] = {}
    for char in text:
        if char.isspace():
            kind = _BLANKS.get(char, _code_point(char))
            counts[kind] = counts.get(kind, 0) + 1
    return ", ".join(f"{count:,} {kind}{'s' * (count > 1)}" for kind, count in counts.items()) or "none"


def _specials(ids: Sequence[int], vocabulary: Vocabulary) -> list[str]:
    return [text for token_id in ids if (text := vocabulary.special_text(token_id)) is not None]


def _normal(form: str, text: str) -> str:
    return unicodedata.normalize("NFC" if form == "NFC" else "NFKC", text)


def _quoted(data: bytes) -> str:
    return f'"{shorten(visible(data), _QUOTED_CELLS)}"'


def _count(ids: Sequence[int]) -> str:
    return "1 token" if len(ids) == 1 else f"{len(ids):,} tokens"


def _is_blank(data: bytes) -> bool:
    return not data.decode("utf-8", "replace").strip()


def _is_partial(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return True
    return False
