"""Read single fields of provider JSON, tolerantly: what a field cannot be is left out or named."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from eagletui.core.errors import ReplyError
from eagletui.core.money import PICO, usd_to_pico
from eagletui.core.reply import LogprobEntry, Routed
from eagletui.core.text import clean_line
from eagletui.providers.usual_events import TOKEN_ID, UNKNOWN_LOGPROB

JsonObject = Mapping[str, Any]

_SHOWN_CHARACTERS: Final = 60

MAX_COUNT: Final = 2**31 - 1
"""Token ids and counts beyond this are none; ids are kept in 32 bits."""
MAX_COST_PICO: Final = 1_000 * PICO
"""No request costs more; an amount beyond this is a fault of the server, and the bill is asked for elsewhere."""


def shown(value: object) -> str:
    """A foreign value, short and safe, for a message."""
    if value is None:
        return "nothing"
    return clean_line(repr(value) if not isinstance(value, str) else value, width=_SHOWN_CHARACTERS) or "empty text"


def object_of(value: object, field: str) -> JsonObject:
    """The value as an object.

    Raises:
        ReplyError: it is something else.
    """
    if type(value) is dict or isinstance(value, Mapping):
        return value
    raise ReplyError(f"field {field}: found {shown(value)}, expected an object")


def list_of(value: object) -> list[Any]:
    """The value as a list; anything else is an empty one."""
    return list(value) if isinstance(value, list | tuple) else []


def text_of(value: object) -> str | None:
    """The value if it is text."""
    return whole_of(value) if isinstance(value, str) else None


def whole_of(text: str) -> str:
    """Text that can be encoded: lone surrogates, which a gateway may leave, become U+FFFD."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def count_of(value: object) -> int | None:
    """The value if it is a count that a token id or a number of tokens can be."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT else None


def ids_of(value: object, field: str) -> tuple[int, ...] | None:
    """A list of token ids, or None when the server sent none.

    Raises:
        ReplyError: the list holds something else.
    """
    if value is None:
        return None
    if not isinstance(value, list | tuple):
        raise ReplyError(f"field {field}: found {shown(value)}, expected a list of token ids")
    for position, token_id in enumerate(value):
        if count_of(token_id) is None:
            raise ReplyError(f"field {field}[{position}]: found {shown(token_id)}, expected a token id")
    return tuple(value)


def predicted_of(root: JsonObject) -> int | None:
    """llama.cpp's cumulative count, sent with `timings_per_token`."""
    timings = root.get("timings")
    if timings is None:
        return None
    return count_of(timings.get("predicted_n")) if isinstance(timings, Mapping) else None


def logprob_of(value: object) -> float | None:
    """A log probability; OpenAI's -9999.0 means that there is none."""
    if type(value) is float and value != UNKNOWN_LOGPROB:
        return value
    if not isinstance(value, int | float | Decimal) or isinstance(value, bool) or value == UNKNOWN_LOGPROB:
        return None
    return float(value) if -MAX_COUNT < value < MAX_COUNT else None


def pico_of(value: object) -> int | None:
    """What one request cost, from USD to picodollars, or None when the value cannot be that."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        return None
    try:
        pico = usd_to_pico(value if isinstance(value, Decimal) else str(value))
    except ValueError:
        return None
    return pico if 0 <= pico <= MAX_COST_PICO else None


def cost_of(usage: JsonObject) -> int | None:
    """What was spent: the router's charge, and with one's own key at the provider that provider's bill beside it."""
    cost_pico = pico_of(usage.get("cost"))
    if cost_pico is None or usage.get("is_byok") is not True:
        return cost_pico
    details = usage.get("cost_details")
    upstream = details.get("upstream_inference_cost") if isinstance(details, Mapping) else None
    return cost_pico + (pico_of(upstream) or 0)


def routed_of(metadata: object) -> Routed | None:
    """Read which endpoint a router selected (OpenRouter's page on router metadata)."""
    endpoints = metadata.get("endpoints") if isinstance(metadata, Mapping) else None
    available = endpoints.get("available") if isinstance(endpoints, Mapping) else None
    for row in list_of(available):
        if isinstance(row, Mapping) and row.get("selected") is True:
            return Routed(text_of(row.get("provider")), text_of(row.get("model")))
    return None


def entry_of(entry: JsonObject) -> LogprobEntry:
    """One entry of `logprobs.content`, with the id where the server gives it."""
    token = text_of(entry.get("token")) or ""
    token_id = count_of(entry.get("id"))
    digits = token.removeprefix(TOKEN_ID)
    if digits != token and digits.isdecimal() and len(digits) < 16:
        token_id = count_of(int(digits))
    raw = entry.get("bytes")
    data: bytes | None = None
    if isinstance(raw, list | tuple) and all(type(byte) is int and 0 <= byte < 256 for byte in raw):
        data = bytes(raw)
    return LogprobEntry(token, data, logprob_of(entry.get("logprob")), token_id)
