"""Turn token ids, texts, prompts and spans into ledger blobs and back."""

import struct
import sys
import threading
from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
import zstandard

from eagletui.core.chat import Prompt
from eagletui.core.errors import LedgerError
from eagletui.core.tokdiff import Span

_LEVEL: Final = 3
_local = threading.local()


class Packed(NamedTuple):
    """Bytes that are compressed already."""

    blob: bytes
    """As `pack_bytes` makes it."""
    size_bytes: int
    """Of what is in it."""


def pack_bytes(data: bytes) -> bytes:
    """Compress with zstd; the frame holds the size."""
    # A compressor is not thread-safe and costs more to make than to use on a small blob.
    compressor: zstandard.ZstdCompressor | None = getattr(_local, "compressor", None)
    if compressor is None:
        compressor = _local.compressor = zstandard.ZstdCompressor(level=_LEVEL)
    return compressor.compress(data)


def unpack_bytes(blob: bytes) -> bytes:
    """Undo `pack_bytes`.

    Raises:
        LedgerError: the blob is damaged.
    """
    decompressor: zstandard.ZstdDecompressor | None = getattr(_local, "decompressor", None)
    if decompressor is None:
        decompressor = _local.decompressor = zstandard.ZstdDecompressor()
    try:
        return decompressor.decompress(blob)
    except zstandard.ZstdError as error:
        raise LedgerError(f"a blob of the ledger is damaged: {error}") from error


def pack_ids(ids: Sequence[int]) -> bytes:
    """Pack token ids as zstd of little-endian int32."""
    return pack_bytes(struct.pack(f"<{len(ids)}i", *ids))


def unpack_ids(blob: bytes) -> "array[int]":
    """Undo `pack_ids`; the array is `[T]` int32 and feeds `torch.frombuffer` or numpy without a copy."""
    values = array("i")
    values.frombytes(unpack_bytes(blob))
    if sys.byteorder == "big":
        values.byteswap()
    return values


def pack_text(text: str) -> bytes:
    """Pack a text as zstd of UTF-8; lone surrogates, which a reply can smuggle in, survive."""
    return pack_bytes(text.encode("utf-8", "surrogatepass"))


def unpack_text(blob: bytes) -> str:
    """Undo `pack_text`."""
    return unpack_bytes(blob).decode("utf-8", "surrogatepass")


_prompt_decoder: Final = msgspec.json.Decoder(Prompt)


def pack_prompt(prompt: Prompt) -> bytes:
    """Pack a conversation as zstd of JSON."""
    return pack_bytes(msgspec.json.encode(prompt))


def unpack_prompt(blob: bytes) -> Prompt:
    """Undo `pack_prompt`."""
    try:
        return _prompt_decoder.decode(unpack_bytes(blob))
    except msgspec.MsgspecError as error:
        raise LedgerError(f"a prompt of the ledger cannot be read: {error}") from error


_spans_decoder: Final = msgspec.json.Decoder(tuple[Span, ...])


def pack_spans(spans: Sequence[Span]) -> bytes:
    """Pack differing spans as zstd of a JSON list of `{offset, length, a_ids, b_ids, kind}`."""
    return pack_bytes(msgspec.json.encode(spans))


def unpack_spans(blob: bytes) -> tuple[Span, ...]:
    """Undo `pack_spans`."""
    try:
        return _spans_decoder.decode(unpack_bytes(blob))
    except msgspec.MsgspecError as error:
        raise LedgerError(f"the spans of a sample cannot be read: {error}") from error
