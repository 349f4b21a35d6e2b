"""How an answer can go wrong, one function a kind.

A kind is another order of `Exchange`'s steps. Its keyword arguments are the script's `params`. The books tell what it
cost: a kind that bills enters a row, which `delivered = false` marks where the client did not get the whole body.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from aiohttp import web

from eagletui.embedded import wire
from eagletui.embedded.backend import Answer
from eagletui.embedded.books import BookRow
from eagletui.embedded.exchange import Exchange

FaultKind = Callable[..., Awaitable[web.StreamResponse]]

_EDGE_PAGE = b"<!DOCTYPE html><html><head><title>Bad gateway</title></head><body>cloudflare</body></html>"


async def http_429(exchange: Exchange, *, retry_after_s: int = 1) -> web.StreamResponse:
    """Refuse as rate limited, with Retry-After; not billed."""
    return await _refuse(exchange, 429, "Rate limit exceeded.", "rate_limit_exceeded", retry_after_s)


async def http_402(exchange: Exchange) -> web.StreamResponse:
    """Refuse for lack of credits; not billed."""
    sentence = "This request requires more credits, or fewer max_tokens."
    return await _refuse(exchange, 402, sentence, "payment_required")


async def http_403(exchange: Exchange, *, message: str = "Key limit exceeded (total limit).") -> web.StreamResponse:
    """Refuse because the key's limit is reached; not billed."""
    return await _refuse(exchange, 403, message, "forbidden")


async def http_500(exchange: Exchange, *, billed: bool = False) -> web.StreamResponse:
    """Fail inside the server, before or (billed) after generating."""
    return await _fail(exchange, 500, "Internal Server Error", "server", billed)


async def http_502(exchange: Exchange, *, billed: bool = False) -> web.StreamResponse:
    """Fail behind the router, before or (billed) after generating."""
    return await _fail(exchange, 502, "Provider returned error", "provider_unavailable", billed)


async def http_503(exchange: Exchange, *, retry_after_s: int = 1) -> web.StreamResponse:
    """Refuse as overloaded, with Retry-After; not billed."""
    return await _refuse(exchange, 503, "The provider is overloaded.", "provider_overloaded", retry_after_s)


async def mid_stream_error(exchange: Exchange, *, after_tokens: int = 5, billed: bool = True) -> web.StreamResponse:
    """End in an error after some tokens, which are billed; a body that is no stream ends in the same way."""
    message, error_type = "Provider disconnected", "provider_unavailable"
    response = await exchange.open_stream() if exchange.ask.stream else None
    answer = _cut(await exchange.generate(response), after_tokens)
    row = await exchange.bill(answer, "error", free=not billed)
    if response is None:
        error = wire.error_object(502, message, error_type=error_type)
        return await exchange.send_json(200, exchange.shaper.body(answer, row) | {"error": error})
    await exchange.send_deltas(response, answer)
    await exchange.send(response, exchange.shaper.error_chunk(502, message, error_type))
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
        await exchange.send_deltas(response, _cut(answer, after_tokens))
    else:
        answer = await exchange.generate()
        body = wire.encode(exchange.shaper.body(answer, await exchange.bill(answer)))
        response = await exchange.open_body(len(body))
        await exchange.send(response, body[: len(body) // 2])
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


async def empty_choices(exchange: Exchange, *, billed: bool = False) -> web.StreamResponse:
    """Answer 200 with no choice at all."""
    answer = await exchange.generate()
    row = await exchange.bill(answer if billed else _cut(answer, 0), "error", free=not billed)
    if not exchange.ask.stream:
        return await exchange.send_json(200, exchange.shaper.body(answer, row) | {"choices": []})
    response = await exchange.open_stream()
    await exchange.send(response, exchange.shaper.usage_chunk(row) + wire.SSE_DONE)
    return await exchange.end(response)


async def html_from_edge(exchange: Exchange, *, status: int = 200, billed: bool = False) -> web.StreamResponse:
    """Answer with an edge's HTML page, which has no generation id."""
    if billed:
        await exchange.bill(await exchange.generate())
    return web.Response(status=status, body=_EDGE_PAGE, content_type="text/html")


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


async def no_usage(exchange: Exchange) -> web.StreamResponse:
    """Answer whole and billed, and say nothing of the cost; the accounts know it."""
    answer, row = await _billed(exchange)
    if not exchange.ask.stream:
        body = exchange.shaper.body(answer, row)
        del body["usage"]
        return await exchange.send_json(200, body, whole=True)
    response = await exchange.open_stream()
    await exchange.send_deltas(response, answer)
    await exchange.send(response, exchange.shaper.finish_chunk(answer) + wire.SSE_DONE)
    return await exchange.end(response, whole=True)


async def no_generation_id(exchange: Exchange) -> web.StreamResponse:
    """Break off in the middle of a billed answer that had no generation id, neither in its headers nor in its body."""
    answer, _ = await _billed(exchange)
    anonymous = replace(exchange, shaper=replace(exchange.shaper, generation_id=""))
    response = await anonymous.open_stream()
    await anonymous.send_deltas(response, _cut(answer, 3))
    exchange.cut_off()
    return response


async def late_bill(exchange: Exchange, *, after_s: float = 1.0) -> web.StreamResponse:
    """Fail inside the server, and enter the answer in the books only some time later."""
    answer = await exchange.generate()
    exchange.bill_later(answer, after_s)
    return await _refuse(exchange, 500, "Internal Server Error", "server")


async def overbilled(exchange: Exchange, *, factor: int = 100) -> web.StreamResponse:
    """Answer whole, at a multiple of the published price."""
    exchange.price_factor = factor
    return await exchange.serve()


KINDS: Final[dict[str, FaultKind]] = {
    kind.__name__: kind
    for kind in (
        http_402,
        http_403,
        http_429,
        http_500,
        http_502,
        http_503,
        mid_stream_error,
        disconnect_before_headers,
        disconnect_after_headers,
        slow,
        empty_choices,
        html_from_edge,
        error_in_200,
        no_usage,
        no_generation_id,
        late_bill,
        overbilled,
    )
}
"""Every kind by the name that scripts use."""


async def _refuse(
    exchange: Exchange, status: int, message: str, error_type: str, retry_after_s: int | None = None
) -> web.StreamResponse:
    if retry_after_s is not None:
        exchange.headers["Retry-After"] = str(retry_after_s)
    return await exchange.send_json(status, {"error": wire.error_object(status, message, error_type=error_type)})


async def _fail(exchange: Exchange, status: int, message: str, error_type: str, billed: bool) -> web.StreamResponse:
    if billed:
        await exchange.bill(await exchange.generate())
    return await _refuse(exchange, status, message, error_type)


async def _billed(exchange: Exchange) -> tuple[Answer, BookRow]:
    answer = await exchange.generate()
    return answer, await exchange.bill(answer)


def _cut(answer: Answer, tokens: int) -> Answer:
    ids = answer.output_ids[:tokens]
    return replace(answer, output_ids=ids, logprobs=answer.logprobs[:tokens])
