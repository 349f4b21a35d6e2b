"""Bytes per token id and token id per bytes: the table every exactness rule works on."""

import codecs
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

_MAGIC: Final = b"EAGLEVO1"
_HOLE: Final = 0xFFFFFFFF


def _byte_level_alphabet() -> str:
    """The printable stand-ins of byte-level BPE (GPT-2's `bytes_to_unicode`), one character for each byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    stand_ins = iter(range(256, 512))
    return "".join(chr(byte if byte in printable else next(stand_ins)) for byte in range(256))


_ALPHABET: Final = codecs.charmap_build(_byte_level_alphabet())
"""As a character map of the interpreter's codecs: a tokenizer has some hundred thousand pieces to translate."""


def byte_level_bytes(piece: str) -> bytes | None:
    """Bytes of a byte-level piece such as `Ġthe`, or None when a character is outside the alphabet."""
    try:
        return codecs.charmap_encode(piece, "strict", _ALPHABET)[0]
    except UnicodeEncodeError:
        return None


def sentencepiece_bytes(piece: str) -> bytes:
    """Bytes of a SentencePiece piece: `▁` is a space and `<0xNN>` one byte."""
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        return bytes([int(piece[3:5], 16)])
    return piece.replace("▁", " ").encode()


@dataclass(frozen=True)
class Vocabulary:
    """An immutable vocabulary: ordinary pieces by id and special tokens by their literal text."""

    pieces: Sequence[bytes | None]
    """Bytes of each ordinary token, by id; None for specials and for ids that name nothing."""
    specials: Mapping[str, int]
    """Special and structural tokens by literal text. Text never becomes one of these by encoding."""
    avoid: frozenset[int] = frozenset()
    """Ids that lose against another id with the same bytes (SentencePiece `<0xNN>` beside a real piece)."""
    max_piece_bytes: int = field(init=False)
    """Length of the longest ordinary piece."""
    special_bytes: frozenset[bytes] = field(init=False, repr=False, compare=False)
    """Literal texts of `specials` in UTF-8."""
    _bytes: dict[int, bytes] = field(init=False, repr=False, compare=False)
    _ids: dict[bytes, int] = field(init=False, repr=False, compare=False)
    _special_texts: dict[int, str] = field(init=False, repr=False, compare=False)
    _shared: frozenset[bytes] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        known: dict[int, bytes] = {}
        ids: dict[bytes, int] = {}
        shared: set[bytes] = set()
        for token_id, piece in enumerate(self.pieces):
            if piece is None:
                continue
            known[token_id] = piece
            if piece in ids:
                if token_id in self.avoid:
                    continue
                if ids[piece] not in self.avoid:
                    shared.add(piece)
                    continue
            ids[piece] = token_id
        longest = max(map(len, known.values()), default=0)
        known |= {token_id: text.encode() for text, token_id in self.specials.items()}
        object.__setattr__(self, "max_piece_bytes", longest)
        object.__setattr__(self, "special_bytes", frozenset(text.encode() for text in self.specials))
        object.__setattr__(self, "_bytes", known)
        object.__setattr__(self, "_ids", ids)
        object.__setattr__(self, "_special_texts", {number: text for text, number in self.specials.items()})
        object.__setattr__(self, "_shared", frozenset(shared))

    @classmethod
    def from_pieces(
        cls, pieces: Mapping[int, bytes], specials: Mapping[str, int], avoid: Iterable[int] = ()
    ) -> "Vocabulary":
        """Build from a sparse table; an id that is also a special is the special's alone."""
        taken = set(specials.values())
        size = max([*pieces, *taken], default=-1) + 1
        table: list[bytes | None] = [None] * size
        for token_id, piece in pieces.items():
            if token_id not in taken:
                table[token_id] = piece
        return cls(tuple(table), dict(specials), frozenset(avoid))

    @classmethod
    def from_byte_level(cls, vocab: Mapping[str, int], specials: Mapping[str, int]) -> "Vocabulary":
        """Build from a byte-level BPE table (`model.vocab` of a tokenizer.json) and its special tokens."""
        taken = set(specials.values())
        pieces: dict[int, bytes] = {}
        for piece, token_id in vocab.items():
            decoded = None if token_id in taken else byte_level_bytes(piece)
            if decoded is not None:
                pieces[token_id] = decoded
        return cls.from_pieces(pieces, specials)

    @classmethod
    def from_sentencepiece(cls, vocab: Mapping[str, int], specials: Mapping[str, int]) -> "Vocabulary":
        """Build from a SentencePiece-style BPE table with byte fallback (Gemma, Llama 2, Mistral)."""
        taken = set(specials.values())
        pieces = {token_id: sentencepiece_bytes(piece) for piece, token_id in vocab.items() if token_id not in taken}
        avoid = [token_id for piece, token_id in vocab.items() if len(piece) == 6 and piece.startswith("<0x")]
        return cls.from_pieces(pieces, specials, avoid)

    @property
    def size(self) -> int:
        """One more than the highest id."""
        return len(self.pieces)

    def __contains__(self, token_id: object) -> bool:
        """Tell whether the id names an ordinary or a special token."""
        return token_id in self._bytes

    def bytes_of(self, token_id: int) -> bytes:
        """Bytes of a token, specials at their literal text.

        Raises:
            KeyError: the id names nothing.
        """
        return self._bytes[token_id]

    def id_of(self, data: bytes) -> int | None:
        """The ordinary token with exactly these bytes, or None. Specials are never found here."""
        return self._ids.get(data)

    def ids_not_found(self) -> list[int]:
        """Ordinary ids, but those to avoid, whose bytes lead to another id."""
        found = self._ids
        return [
            token_id
            for token_id, piece in enumerate(self.pieces)
            if piece is not None and found.get(piece) != token_id and token_id not in self.avoid
        ]

    def is_shared(self, data: bytes) -> bool:
        """Tell whether several ordinary ids have these bytes, so that bytes do not name one."""
        return data in self._shared

    def special_id(self, text: str) -> int:
        """Id of a special token by its literal text.

        Raises:
            KeyError: the vocabulary has no such special token.
        """
        return self.specials[text]

    def special_text(self, token_id: int) -> str | None:
        """Literal text of a special token, or None for an ordinary or unknown id."""
        return self._special_texts.get(token_id)

    def is_special(self, token_id: int) -> bool:
        """Tell whether the id is a special or structural token."""
        return token_id in self._special_texts

    def decode(self, ids: Iterable[int]) -> bytes:
        """Bytes of a list of ids, specials at their literal text.

        Raises:
            KeyError: an id names nothing.
        """
        return b"".join(map(self._bytes.__getitem__, ids))

    def boundaries(self, ids: Sequence[int]) -> dict[int, int]:
        """Byte offset of each token boundary, to the index of the token that begins there."""
        found = {0: 0}
        at = 0
        for index, token_id in enumerate(ids, 1):
            at += len(self._bytes[token_id])
            found[at] = index
        return found

    def first_unknown(self, ids: Iterable[int]) -> int | None:
        """The first id that names nothing, or None when all are known."""
        return next((token_id for token_id in ids if token_id not in self._bytes), None)


def pack_vocabulary(vocabulary: Vocabulary) -> bytes:
    """Serialise for `RUN/vocabulary.msgpack`: counts, piece lengths, piece bytes, avoided ids, specials."""
    lengths = [_HOLE if piece is None else len(piece) for piece in vocabulary.pieces]
    avoid = sorted(vocabulary.avoid)
    chunks = [
        _MAGIC,
        struct.pack("<III", len(lengths), len(avoid), len(vocabulary.specials)),
        struct.pack(f"<{len(lengths)}I", *lengths),
        b"".join(piece for piece in vocabulary.pieces if piece is not None),
        struct.pack(f"<{len(avoid)}I", *avoid),
    ]
    for text, token_id in vocabulary.specials.items():
        encoded = text.encode()
        chunks.append(struct.pack("<II", token_id, len(encoded)) + encoded)
    return b"".join(chunks)


def unpack_vocabulary(data: bytes) -> Vocabulary:
    """Read what `pack_vocabulary` wrote.

    Raises:
        ValueError: the data is not a packed vocabulary.
    """
    if not data.startswith(_MAGIC):
        raise ValueError("Not a packed vocabulary: the first eight bytes differ.")
    try:
        at = len(_MAGIC)
        size, avoided, special_count = struct.unpack_from("<III", data, at)
        at += 12
        lengths = struct.unpack_from(f"<{size}I", data, at)
        at += 4 * size
        pieces: list[bytes | None] = []
        for length in lengths:
            if length == _HOLE:
                pieces.append(None)
            else:
                pieces.append(data[at : at + length])
                at += length
        avoid = frozenset(struct.unpack_from(f"<{avoided}I", data, at))
        at += 4 * avoided
        specials: dict[str, int] = {}
        for _ in range(special_count):
            token_id, length = struct.unpack_from("<II", data, at)
            at += 8
            specials[data[at : at + length].decode()] = token_id
            at += length
    except (struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"A packed vocabulary ends early or is damaged: {error}.") from error
    return Vocabulary(tuple(pieces), specials, avoid)
