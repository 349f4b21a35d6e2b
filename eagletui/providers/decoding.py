"""Decode foreign JSON. Whatever a server sends, the only error is `ReplyError`."""

import json
from decimal import Decimal
from typing import Any, Final, TypeVar

import msgspec

from eagletui.core.errors import ReplyError
from eagletui.core.text import clean_line

T = TypeVar("T")

UNDECODABLE: Final = (msgspec.DecodeError, ValueError, ArithmeticError, RecursionError)
"""What decoders raise: no JSON, no UTF-8, exponents beyond decimals, and nesting deeper than the stack."""

_EXACT: Final = msgspec.json.Decoder(float_hook=Decimal)
_SHOWN_CHARACTERS: Final = 60


def decode_json(data: bytes | str) -> Any:
    """Decode JSON with exact decimals.

    The standard library has the second word, because it reads what gateways leave and msgspec refuses: halves of
    surrogate pairs, integers beyond 64 bits, and NaN or Infinity, which become None: a figure that is not known.

    Raises:
        ReplyError: the data is not JSON.
    """
    try:
        return _EXACT.decode(data)
    except UNDECODABLE as refusal:
        try:
            return json.loads(data, parse_float=Decimal, parse_constant=_unknown)
        except UNDECODABLE:
            raise not_json(data, refusal) from refusal


def decode_as(data: bytes | msgspec.Raw, shape: type[T]) -> T:
    """Decode JSON of a known shape.

    Raises:
        ReplyError: the data is not JSON of that shape.
    """
    try:
        return msgspec.json.decode(data, type=shape)
    except UNDECODABLE as error:
        raise not_json(bytes(data), error) from error


def not_json(data: bytes | str, reason: Exception) -> ReplyError:
    """Say what was found instead of JSON."""
    found = data[:1024] if isinstance(data, str) else data[:1024].decode("utf-8", "replace")
    shown = clean_line(repr(found) if not found.strip() else found, _SHOWN_CHARACTERS)
    return ReplyError(f"found {shown}, expected JSON ({clean_line(str(reason), 120)})")


def _unknown(constant: str) -> None:
    """Read NaN, Infinity and -Infinity; Python's own encoder writes them for logprobs that overflowed."""
