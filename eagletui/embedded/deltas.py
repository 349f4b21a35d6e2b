"""The text a server shows for a list of ids, step by step."""

import codecs
import functools
from dataclasses import dataclass
from pathlib import Path

import msgspec

from eagletui.core.vocabulary import Vocabulary


class _Added(msgspec.Struct):
    id: int
    content: str


class _Model(msgspec.Struct):
    vocab: dict[str, int]


class _TokenizerFile(msgspec.Struct):
    model: _Model
    added_tokens: list[_Added]


@functools.cache
def load_vocabulary(folder: Path) -> Vocabulary:
    """Read the byte-level vocabulary of `folder/tokenizer.json`, whose added tokens are all special."""
    parsed = msgspec.json.decode((folder / "tokenizer.json").read_bytes(), type=_TokenizerFile)
    return Vocabulary.from_byte_level(parsed.model.vocab, {added.content: added.id for added in parsed.added_tokens})


@dataclass(frozen=True, slots=True)
class TextDelta:
    """One step of a stream: the text that became whole, and the ids behind it."""

    text: str
    ids: tuple[int, ...]
    """More than one where earlier ids were held back inside a character."""


def split_deltas(ids: tuple[int, ...], vocabulary: Vocabulary) -> tuple[TextDelta, ...]:
    """Split an answer into deltas of whole characters, as servers stream it.

    An id whose bytes end inside a character is held back whole, with the characters before its cut, and joins the next
    delta: a delta never ends inside a token. Bytes that can never become a character are shown as U+FFFD. What is held
    back when the answer ends is dropped, as llama.cpp and vLLM do.

    Args:
        ids: the output ids, the stop token included.
        vocabulary: bytes of each id; special tokens show no text.

    Returns:
        Deltas whose ids join to `ids`. The last one has no text where tokens showed none: the stop token, a cut tail.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    deltas: list[TextDelta] = []
    held: list[int] = []
    text = ""
    for id_ in ids:
        held.append(id_)
        shown = b"" if vocabulary.special_text(id_) is not None else vocabulary.bytes_of(id_)
        text += decoder.decode(shown)
        cut_bytes, _ = decoder.getstate()
        if text and not cut_bytes:
            deltas.append(TextDelta(text, tuple(held)))
            held, text = [], ""
    if held:
        deltas.append(TextDelta("", tuple(held)))
    return tuple(deltas)
