"""Answers that break on their way: disconnects, stalls, edges, damaged bodies, odd streams.

The keyword arguments of a kind are the script's `params`. What the books say: a kind that bills enters a row, which
`delivered = false` marks where the client did not get the whole body.
"""

import asyncio
import gzip
import json
from dataclasses import replace
from typing import Any, Final, Literal

from aiohttp import web

from eagletui.embedded import wire
from eagletui.embedded.backend import Answer
from eagletui.embedded.exchange import Exchange, Pieces
from eagletui.embedded.market import MODEL_SLUG

_EDGE_PAGE: Final = (
    b"<!DOCTYPE html><html><head><title>Bad gateway</title></head><body>\x1b[31mcloudflare</body></html>"
)
"""With an escape code in it, as hostile pages have."""
_MARK: Final = -12345.678
"""A logprob that no model gives, to be found again in the encoded events."""


async def mid_stream_error(exchange: Exchange, *, after_tokens: int = 5, billed: bool = True) -> web.StreamResponse:
    """End in an error after some tokens, which are billed; a body that is no stream ends in the same way."""
    message, error_type = "Provider disconnected", "provider_unavailable"
    response = await exchange.open_stream() if exchange.ask.stream else None
    answer = (await exchange.generate(response)).cut(after_tokens)
    row = await exchange.bill(answer, "error", free=not billed)
    if response is None:
        error = wire.error_object(502, message, error_type=error_type)
        return await exchange.send_json(200, exchange.shaper.body(answer, row) | {"error": error})
    await exchange.send_deltas(response, answer)
    await exchange.send(response, exchange.shaper.error_chunk(502, message, error_type))
    return await exchange.end(response)


async def error_in_200(exchange: Exchange, *, code: int = 502, billed: bool = False) -> web.StreamResponse:
    """Answer 200 whose body, or only event, is an error."""
    if billed:
        await exchange.bill(await exchange.generate())
    error = wire.error_object(code, "Provider returned error", error_type="provider_unavailable")
    if not exchange.ask.stream:
        return await exchange.send_json(200, {"error": error})
    response = await exchange.open_stream()
    await exchange.send(response, wire.event({"id": exchange.shaper.generation_id, "error": error, "choices": []}))
    return await exchange.end(response)


async def empty_choices(exchange: Exchange, *, billed: bool = False) -> web.StreamResponse:
    """Answer 200 with no choice at all."""
    answer = await exchange.generate()
    row = await exchange.bill(answer if billed else answer.cut(0), "error", free=not billed)
    if not exchange.ask.stream:
        return await exchange.send_json(200, exchange.shaper.body(answer, row) | {"choices": []})
    response = await exchange.open_stream()
    await exchange.send(response, exchange.shaper.usage_chunk(row) + wire.SSE_DONE)
    return await exchange.end(response)


async def disconnect_before_headers(exchange: Exchange, *, billed: bool = False) -> web.StreamResponse:
    """Break the connection before any byte is answered: the client never learns a generation id."""
    if billed:
        await exchange.bill(await exchange.generate())
    exchange.cut_off()
    return web.Response(status=500)


async def disconnect_after_headers(exchange: Exchange, *, after_tokens: int = 5) -> web.StreamResponse:
    """Break the connection in the middle of the body; the whole answer is billed."""
    if exchange.ask.stream:
        response = await exchange.open_stream()
        answer = await exchange.generate(response)
        await exchange.bill(answer)
        await exchange.send_deltas(response, answer.cut(after_tokens))
    else:
        response = await _half_a_body(exchange)
    exchange.cut_off()
    return response


async def no_generation_id(exchange: Exchange) -> web.StreamResponse:
    """Break off in the middle of a billed answer that had no generation id, neither in its headers nor in its body."""
    answer, _ = await exchange.answer_and_bill()
    anonymous = replace(exchange, shaper=replace(exchange.shaper, generation_id=""))
    response = await anonymous.open_stream()
    await anonymous.send_deltas(response, answer.cut(3))
    exchange.cut_off()
    return response


async def slow(
    exchange: Exchange, *, first_token_s: float = 5.0, tokens_per_s: float | None = None
) -> web.StreamResponse:
    """Answer whole and billed, but late, and at a pace where one is given."""
    exchange.extra_latency_s = first_token_s
    if tokens_per_s is not None:
        exchange.token_interval_s = 1 / tokens_per_s
    return await exchange.serve()


async def slow_trickle(exchange: Exchange, *, bytes_at_once: int = 7) -> web.StreamResponse:
    """Answer whole, in pieces of a few bytes, so that no read ends where an event does."""
    answer, row = await exchange.answer_and_bill()
    if exchange.ask.stream:
        response = await exchange.open_stream()
        whole = exchange.pieces(answer, row).joined()
    else:
        whole = wire.encode(exchange.shaper.body(answer, row))
        response = await exchange.open_body(len(whole))
    for start in range(0, len(whole), bytes_at_once):
        await exchange.send(response, whole[start : start + bytes_at_once])
        await asyncio.sleep(0)
    return await exchange.end(response, whole=True)


async def stalled_stream(exchange: Exchange, *, after_tokens: int = 5, stall_s: float = 600.0) -> web.StreamResponse:
    """Send some tokens and then only keep-alive comments; the whole answer is billed."""
    if not exchange.ask.stream:
        response = await _half_a_body(exchange)
        await exchange.wait_for_client(stall_s)
        return response
    response = await exchange.open_stream()
    answer = await exchange.generate(response)
    await exchange.bill(answer)
    await exchange.send_deltas(response, answer.cut(after_tokens))
    await exchange.wait_for_client(stall_s, response)
    return await exchange.end(response)


async def keep_alive_flood(exchange: Exchange, *, comments: int = 2_000) -> web.StreamResponse:
    """Answer whole, with a flood of keep-alive comments before, between and after the events."""
    answer, row = await exchange.answer_and_bill()
    if not exchange.ask.stream:
        whole = wire.encode(exchange.shaper.body(answer, row))
        response = await exchange.open_body(len(whole) + comments)
        await exchange.send(response, b" " * comments + whole)
        return await exchange.end(response, whole=True)
    response = await exchange.open_stream()
    await exchange.send(response, wire.SSE_COMMENT * comments)
    for event in exchange.pieces(answer, row).events():
        await exchange.send(response, wire.SSE_COMMENT * 3 + event)
    return await exchange.end(response, whole=True)


async def html_from_edge(exchange: Exchange, *, status: int = 200, billed: bool = False) -> web.StreamResponse:
    """Answer with an edge's HTML page, which has no generation id."""
    if billed:
        await exchange.bill(await exchange.generate())
    return web.Response(status=status, body=_EDGE_PAGE, content_type="text/html")


async def http_524(exchange: Exchange, *, billed: bool = True) -> web.StreamResponse:
    """Let the edge give up with its page (524) while the answer is generated and billed all the same."""
    return await html_from_edge(exchange, status=524, billed=billed)


async def redirect(
    exchange: Exchange, *, status: Literal[301, 302, 307, 308] = 307, to: str = "https://example.invalid/"
) -> web.StreamResponse:
    """Send the request elsewhere, where a key must not follow; nothing is generated."""
    return web.Response(status=status, headers={"Location": to})


async def wrong_content_type(exchange: Exchange, *, content_type: str = "text/plain") -> web.StreamResponse:
    """Answer whole under another media type than the body has."""
    answer, row = await exchange.answer_and_bill()
    exchange.headers["Content-Type"] = content_type
    if exchange.ask.stream:
        return await exchange.send_events(exchange.pieces(answer, row))
    return await exchange.send_bytes(wire.encode(exchange.shaper.body(answer, row)), whole=True)


async def gzip_garbage(exchange: Exchange) -> web.StreamResponse:
    """Answer with a compressed body that is damaged in the middle; the whole answer is billed."""
    answer, row = await exchange.answer_and_bill()
    packed = bytearray(gzip.compress(wire.encode(exchange.shaper.body(answer, row))))
    middle = len(packed) // 2
    packed[middle : middle + 8] = bytes(byte ^ 0xFF for byte in packed[middle : middle + 8])
    exchange.headers["Content-Encoding"] = "gzip"
    return await exchange.send_bytes(bytes(packed))


async def truncated_json(exchange: Exchange) -> web.StreamResponse:
    """Answer with a body, or a last event, that ends in the middle and says that it is whole."""
    answer, row = await exchange.answer_and_bill()
    if not exchange.ask.stream:
        whole = wire.encode(exchange.shaper.body(answer, row))
        return await exchange.send_bytes(whole[: len(whole) * 2 // 3])
    response = await exchange.open_stream()
    events = exchange.pieces(answer, row).events()
    for event in events[: len(events) // 2]:
        await exchange.send(response, event)
    await exchange.send(response, events[len(events) // 2][:40] + b"\n\n" + wire.SSE_DONE)
    return await exchange.end(response)


async def two_finish_chunks(exchange: Exchange) -> web.StreamResponse:
    """Answer whole and say the finish reason twice (langchain-ai/langchain#38349)."""
    answer, row = await exchange.answer_and_bill()
    pieces = exchange.pieces(answer, row)
    return await _deliver(exchange, answer, row, replace(pieces, finish=pieces.finish * 2))


async def duplicate_chunk(exchange: Exchange) -> web.StreamResponse:
    """Send one chunk of text twice: the text then holds more than was generated."""
    answer, row = await exchange.answer_and_bill()
    pieces = exchange.pieces(answer, row)
    middle = len(pieces.deltas) // 2
    repeated = (*pieces.deltas[: middle + 1], *pieces.deltas[middle:])
    return await _deliver(exchange, answer, row, replace(pieces, deltas=repeated))


async def missing_done(exchange: Exchange) -> web.StreamResponse:
    """Answer whole and end the stream without its end marker."""
    answer, row = await exchange.answer_and_bill()
    return await _deliver(exchange, answer, row, replace(exchange.pieces(answer, row), done=b""))


async def missing_finish(exchange: Exchange) -> web.StreamResponse:
    """Send all text and the bill, and never say why the answer ended."""
    answer, row = await exchange.answer_and_bill()
    if exchange.ask.stream:
        return await exchange.send_events(replace(exchange.pieces(answer, row), finish=b""), whole=False)
    body = exchange.shaper.body(answer, row)
    body["choices"][0] |= {"finish_reason": None, "native_finish_reason": None}
    return await exchange.send_json(200, body)


async def reordered_fields(exchange: Exchange) -> web.StreamResponse:
    """Answer whole, every object's fields in the opposite order and its text escaped."""
    answer, row = await exchange.answer_and_bill()
    if not exchange.ask.stream:
        return await exchange.send_json(200, _reversed(exchange.shaper.body(answer, row)), whole=True)
    pieces = exchange.pieces(answer, row)
    deltas = tuple(_escaped(event) for event in pieces.deltas)
    return await exchange.send_events(replace(pieces, deltas=deltas, finish=_escaped(pieces.finish)))


async def nan_logprobs(exchange: Exchange) -> web.StreamResponse:
    """Answer whole, its logprobs not numbers but the bare word NaN, which is not JSON."""
    answer, row = await exchange.answer_and_bill()
    marked = replace(answer, logprobs=(_MARK,) * len(answer.logprobs))
    mark = b'"logprob":' + wire.encode(_MARK)
    if not exchange.ask.stream:
        body = wire.encode(exchange.shaper.body(marked, row))
        return await exchange.send_bytes(body.replace(mark, b'"logprob":NaN'), whole=True)
    pieces = exchange.pieces(marked, row)
    deltas = tuple(event.replace(mark, b'"logprob":NaN') for event in pieces.deltas)
    finish = pieces.finish.replace(mark, b'"logprob":NaN')
    return await exchange.send_events(replace(pieces, deltas=deltas, finish=finish))


async def empty_answer(exchange: Exchange) -> web.StreamResponse:
    """Finish with stop and not one character of content, and bill it (musistudio/claude-code-router#228)."""
    return await _ended_as(exchange, "stop", "")


async def content_filter(exchange: Exchange, *, after_tokens: int = 5) -> web.StreamResponse:
    """Stop as filtered after some tokens, which are billed."""
    return await _ended_as(exchange, "content_filter", None, after_tokens)


async def _ended_as(exchange: Exchange, finish: str, content: str | None, after_tokens: int = 1) -> web.StreamResponse:
    answer = (await exchange.generate()).cut(after_tokens)
    row = await exchange.bill(answer, finish)
    body = exchange.shaper.body(answer, row)
    if content is not None:
        body["choices"][0]["message"]["content"] = content
    if not exchange.ask.stream:
        return await exchange.send_json(200, body, whole=True)
    pieces = exchange.pieces(answer, row)
    said = exchange.shaper.finish_chunk(answer, finish)
    return await exchange.send_events(replace(pieces, deltas=() if content == "" else pieces.deltas, finish=said))


async def other_model(exchange: Exchange, *, model: str = "huggingfacetb/smollm2-360m-instruct") -> web.StreamResponse:
    """Answer whole from another model than the one asked, as the reply itself says."""
    answer, row = await exchange.answer_and_bill()
    if not exchange.ask.stream:
        return await exchange.send_json(200, exchange.shaper.body(answer, row) | {"model": model}, whole=True)

    def renamed(event: bytes) -> bytes:
        return event.replace(wire.encode(MODEL_SLUG), wire.encode(model))

    pieces = exchange.pieces(answer, row)
    deltas = tuple(map(renamed, pieces.deltas))
    return await exchange.send_events(Pieces(deltas, renamed(pieces.finish), renamed(pieces.usage)))


async def _deliver(exchange: Exchange, answer: Answer, row: Any, pieces: Pieces) -> web.StreamResponse:
    """Send the changed stream; a body has nothing to change and goes out whole."""
    if exchange.ask.stream:
        return await exchange.send_events(pieces)
    return await exchange.send_json(200, exchange.shaper.body(answer, row), whole=True)


async def _half_a_body(exchange: Exchange) -> web.StreamResponse:
    answer, row = await exchange.answer_and_bill()
    body = wire.encode(exchange.shaper.body(answer, row))
    response = await exchange.open_body(len(body))
    await exchange.send(response, body[: len(body) // 2])
    return response


def _reversed(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _reversed(item) for name, item in reversed(value.items())}
    return [_reversed(item) for item in value] if isinstance(value, list) else value


def _escaped(event: bytes) -> bytes:
    decoded = json.loads(event.removeprefix(b"data: "))
    return b"data: " + json.dumps(_reversed(decoded), ensure_ascii=True, separators=(", ", ": ")).encode() + b"\n\n"
