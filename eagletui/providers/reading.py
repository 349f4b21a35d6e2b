"""Turn a received body into a `Reply`, or into the failure it hides behind status 200."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, cast

import msgspec

from eagletui.core.errors import ReplyError
from eagletui.core.reply import Reply
from eagletui.providers import errors
from eagletui.providers.base import Encoding, ProviderFailure, RawReply
from eagletui.providers.decoding import decode_json
from eagletui.providers.parse import parse_body, parse_stream, split_sse

_EVENT_STARTS: Final = (b"data:", b"event:", b":")
_DONE: Final = b"[DONE]"


class _Choice(msgspec.Struct):
    error: Any = None
    finish_reason: Any = None


class _Carrier(msgspec.Struct):
    error: Any = None
    choices: list[_Choice] | None = None
    usage: Any = None


def read_reply(raw: RawReply) -> Reply:
    """Parse a body once.

    A body that was cut after its finish reason and its usage is a whole answer: nothing of it is missing.

    Returns:
        An answer with a finish reason.

    Raises:
        ProviderFailure: an error inside the reply, no choices, not JSON, or a cut before the end. `cost_pico_usd` is
            set where the broken reply states its cost; a running cost in mid-stream is none.
    """
    if raw.encoding != true_encoding(raw.encoding, raw.body):
        raw = replace(raw, encoding="sse")
    try:
        reply = parse_body(raw.body) if raw.encoding == "json" else parse_stream(_whole_events(raw))
    except ReplyError as error:
        raise raw.cut or ProviderFailure(
            "not_json", f"The reply cannot be read: {error}", http_status=raw.http_status
        ) from error
    usage = reply.usage
    failure = _failure(raw, reply)
    if failure is None:
        return reply
    failure.usage = usage
    failure.cost_pico_usd = usage.cost_pico_usd if usage and _bill_is_final(raw) else None
    failure.generation_id = reply.generation_id
    raise failure


def read_kept(encoding: Encoding, body: bytes) -> Reply:
    """Parse an answer that was kept when it was received.

    Args:
        encoding: of the body.
        body: byte for byte; a stream that broke off after its usage is a whole answer, and the event it broke in is
            left out.

    Raises:
        ReplyError: it cannot be read.
    """
    if true_encoding(encoding, body) == "json":
        return parse_body(body)
    try:
        return parse_stream(body)
    except ReplyError:
        whole = _up_to_last_event(body)
        if len(whole) == len(body):
            raise
        return parse_stream(whole)


def true_encoding(stated: Encoding, body: bytes) -> Encoding:
    """Return how a body is written, which relays that lose its media type do not say: no JSON begins like an event."""
    return "sse" if body.lstrip()[:6].startswith(_EVENT_STARTS) else stated


def _failure(raw: RawReply, reply: Reply) -> ProviderFailure | None:
    error = _error_object(raw)
    if error is not None:
        return errors.from_error_in_reply(error, raw.http_status)
    if raw.cut is not None and (reply.finish_reason is None or reply.usage is None or not _bill_is_final(raw)):
        return raw.cut
    if reply.finish_reason == "error":
        return errors.from_error_in_reply(reply.error or "finish reason error", raw.http_status)
    if reply.finish_reason is not None:
        return None
    if reply.content or reply.reasoning or reply.tool_calls or reply.refusal:
        return ProviderFailure("incomplete", "The reply ends without a finish reason.", http_status=raw.http_status)
    return ProviderFailure("empty_choices", "The reply has no answer in it.", http_status=raw.http_status)


def _error_object(raw: RawReply) -> object | None:
    """Find the `error` of a body or of any event. Most bodies do not hold the word and are not decoded again."""
    if b'"error"' not in raw.body:
        return None
    for carrier in _carriers(raw):
        for error in (carrier.error, *(choice.error for choice in carrier.choices or ())):
            if error:
                return cast(object, error)
    return None


def _bill_is_final(raw: RawReply) -> bool:
    """Tell whether the last usage of a reply is its bill, and not a running figure that some relays send on the way.

    A stream's bill comes with the finish reason or after it; a stream without one must have been ended in order.
    """
    if raw.encoding == "json":
        return True
    finished = False
    for carrier in _carriers(raw):
        finished = finished or any(choice.finish_reason for choice in carrier.choices or ())
        if finished and carrier.usage:
            return True
    return not finished and raw.cut is None and raw.body.rstrip().endswith(_DONE)


def _carriers(raw: RawReply) -> Iterator[_Carrier]:
    for event in [decode_json(raw.body)] if raw.encoding == "json" else split_sse(_whole_events(raw)):
        try:
            yield msgspec.convert(event, type=_Carrier)
        except msgspec.ValidationError:
            continue  # `parse` has judged the shape already.


def _whole_events(raw: RawReply) -> bytes:
    """Leave out the event in which a broken stream broke."""
    if raw.cut is None:
        return raw.body
    return _up_to_last_event(raw.body)


def _up_to_last_event(body: bytes) -> bytes:
    return body[: max(body.rfind(b"\n\n") + 2, body.rfind(b"\n\r\n") + 3)]
