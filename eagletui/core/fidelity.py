"""The evidence ladder: how token ids are believed, and what a count alone can say."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from eagletui.core.vocabulary import Vocabulary

Evidence = Literal["served", "logprobs", "streamed", "inferred", "counted", "canonical", "conflict"]
Usability = Literal["usable", "resegmented", "text_suspect", "model_suspect", "unusable"]

EVIDENCE: Final[tuple[Evidence, ...]] = (
    "served",
    "logprobs",
    "streamed",
    "inferred",
    "counted",
    "canonical",
    "conflict",
)
"""Best first."""

PROVED: Final[tuple[Evidence, ...]] = ("served", "logprobs", "streamed")
"""Kinds of evidence that are proof."""

CANARIES: Final = "[canary]"
"""Data set of the prompts that only watch the endpoints: their answers are never trained on."""

TRAINABLE: Final[tuple[Usability, ...]] = ("usable", "resegmented")
"""The default training set."""

USABILITY: Final[tuple[Usability, ...]] = ("usable", "resegmented", "text_suspect", "model_suspect", "unusable")

HIDDEN_TAIL: Final = 3
"""Most tokens that a cut inside a character can hide: a character has at most four bytes, and one is missing."""

REPLACEMENT: Final = "\ufffd"
"""What servers show for bytes that are no character. It never tells which bytes they were."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What one rung says about one reply."""

    evidence: Evidence
    """The rung."""
    ids: tuple[int, ...]
    """The output ids, the end token included where the answer has one; up to the last whole character."""
    reason: str = ""
    """Why it is no proof, one phrase; empty where it is one."""
    hidden_tail: int = 0
    """Tokens billed behind `ids` that a cut inside a character made unreadable."""
    leans_on_format: bool = False
    """Structural tokens among `ids`, the end token too, are the format's word and not the server's."""
    refuted: bool = False
    """The bill says that the server's pieces are no tokens at all: something cut the text anew."""

    @property
    def holds(self) -> bool:
        """Tell whether the ids are proved."""
        return not self.reason


def judge_count(counted: int, billed: int | None, offset: int) -> Evidence:
    """Say what a count is worth for a canonical encoding.

    Args:
        counted: our tokens, the end token included.
        billed: the provider's, or None when it sent no usage.
        offset: named, proved constant of the endpoint: billed minus counted.
    """
    if billed is None:
        return "canonical"
    return "counted" if billed == counted + offset else "conflict"


def up_to_last_whole_character(ids: Sequence[int], vocabulary: Vocabulary, limit: int | None = None) -> tuple[int, ...]:
    """Ids whose ordinary bytes lie within the first whole characters of the text; specials stay where they stand.

    Args:
        ids: output ids.
        vocabulary: must know them.
        limit: length of the whole characters in bytes; None measures these ids themselves.
    """
    if limit is None:
        limit = whole_characters(b"".join(vocabulary.bytes_of(i) for i in ids if not vocabulary.is_special(i)))
    kept: list[int] = []
    size = 0
    for token_id in ids:
        if not vocabulary.is_special(token_id):
            size += len(vocabulary.bytes_of(token_id))
            if size > limit:
                break
        kept.append(token_id)
    return tuple(kept)


def same_up_to_last_whole_character(ids: Sequence[int], truth: Sequence[int], vocabulary: Vocabulary) -> bool:
    """Tell whether ids are the true ones up to the last whole character of the truth."""
    limit = whole_characters(b"".join(vocabulary.bytes_of(i) for i in truth if not vocabulary.is_special(i)))
    return up_to_last_whole_character(ids, vocabulary, limit) == up_to_last_whole_character(truth, vocabulary, limit)


def whole_characters(data: bytes) -> int:
    """Offset behind the last whole character: bytes after it, unfinished or stray, are no text."""
    for end in range(len(data), 0, -1):
        for start in range(end - 1, max(-1, end - 5), -1):
            if data[start] & 0xC0 != 0x80:
                if _is_character(data[start:end]):
                    return end
                break
    return 0


def _is_character(data: bytes) -> bool:
    try:
        return len(data.decode()) == 1
    except UnicodeDecodeError:
        return False


def same_text(shown: str, data: bytes) -> bool:
    """Tell whether bytes are what a server showed, runs of U+FFFD counted as one."""
    return _collapsed(shown) == _collapsed(data.decode("utf-8", "replace"))


def covers(data: bytes, shown: Sequence[str], around: Collection[str] | None = None, *, blanks: bool = True) -> bool:
    """Tell whether texts stand in the data one after the other, runs of U+FFFD counted as one.

    Args:
        data: what the ids decode to.
        shown: the server's texts in order. Servers take blanks away and never add any.
        around: literals that may stand before, between and behind the texts beside blanks; None where anything may.
        blanks: blanks may stand there, too.
    """
    text = _collapsed(data.decode("utf-8", "replace"))
    at = 0
    left: list[str] = []
    for piece in shown:
        wanted = _collapsed(piece)
        found = text.find(wanted, at)
        if found < 0:
            return False
        left.append(text[at:found])
        at = found + len(wanted)
    left.append(text[at:].rstrip(REPLACEMENT))
    if around is None:
        return True
    rests = (_without(stretch, around) for stretch in left)
    return not any(rest.strip() if blanks else rest for rest in rests)


def _without(stretch: str, literals: Collection[str]) -> str:
    for literal in sorted(filter(None, literals), key=len, reverse=True):
        stretch = stretch.replace(literal, "")
    return stretch


def _collapsed(text: str) -> str:
    if REPLACEMENT not in text:
        return text
    head, *rest = text.split(REPLACEMENT)
    return REPLACEMENT.join([head, *(piece for piece in rest[:-1] if piece), rest[-1]])
