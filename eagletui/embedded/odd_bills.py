"""Bills that are odd: missing, late, wrong, oddly written; and accounts that lag or err.

The answer itself is whole in all of them, and the books hold what it truly cost.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import msgspec
from aiohttp import web

from eagletui.core.money import usd_to_pico
from eagletui.embedded import wire
from eagletui.embedded.exchange import Exchange


async def no_usage(exchange: Exchange) -> web.StreamResponse:
    """Answer whole and billed, and say nothing of the cost; the accounts know it."""
    answer, row = await exchange.answer_and_bill()
    if exchange.ask.stream:
        return await exchange.send_events(replace(exchange.pieces(answer, row), usage=b""))
    body = exchange.shaper.body(answer, row)
    del body["usage"]
    return await exchange.send_json(200, body, whole=True)


async def no_cost(exchange: Exchange) -> web.StreamResponse:
    """Answer whole with token counts and no cost; the accounts know it."""
    return await _with_usage(exchange, lambda usage: {k: v for k, v in usage.items() if k != "cost"})


async def usage_only_chunk(exchange: Exchange) -> web.StreamResponse:
    """Send the bill in a chunk that has no `choices` at all (Effect-TS/effect#6117)."""
    answer, row = await exchange.answer_and_bill()
    if not exchange.ask.stream:
        return await exchange.send_json(200, exchange.shaper.body(answer, row), whole=True)
    bill = wire.event({"id": exchange.shaper.generation_id, "usage": wire.usage(row)})
    return await exchange.send_events(replace(exchange.pieces(answer, row), usage=bill))


async def usage_on_choice(exchange: Exchange) -> web.StreamResponse:
    """Send the bill on a chunk with a choice and an empty delta, as the router used to (speakeasy-api/gram#921)."""
    answer, row = await exchange.answer_and_bill()
    if not exchange.ask.stream:
        return await exchange.send_json(200, exchange.shaper.body(answer, row), whole=True)
    choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
    bill = wire.event({"id": exchange.shaper.generation_id, "choices": [choice], "usage": wire.usage(row)})
    return await exchange.send_events(replace(exchange.pieces(answer, row), usage=bill))


async def odd_cost(
    exchange: Exchange, *, form: Literal["string", "float", "exponent"] = "string"
) -> web.StreamResponse:
    """Write the cost as a string, as a float's shortest digits, or with an exponent; it is the same amount."""

    def written(usage: dict[str, Any]) -> dict[str, Any]:
        exact = bytes(usage["cost"]).decode()
        scaled = msgspec.Raw(f"{usd_to_pico(exact)}E-12".encode())
        cost = {"string": exact, "float": float(exact), "exponent": scaled}[form]
        return usage | {"cost": cost}

    return await _with_usage(exchange, written)


async def overbilled(exchange: Exchange, *, factor: int = 100) -> web.StreamResponse:
    """Answer whole, at a multiple of the published price."""
    exchange.price_factor = factor
    return await exchange.serve()


async def excess_reasoning(exchange: Exchange, *, reasoning_tokens: int = 100_000) -> web.StreamResponse:
    """Count more reasoning tokens than completion tokens (anomalyco/opencode#17566)."""
    details = {"reasoning_tokens": reasoning_tokens}
    return await _with_usage(exchange, lambda usage: usage | {"completion_tokens_details": details})


async def late_bill(exchange: Exchange, *, after_s: float = 1.0, named: bool = True) -> web.StreamResponse:
    """Fail inside the server, or without a generation id, and enter the answer in the books only some time later."""
    answer = await exchange.generate()
    exchange.bill_later(answer, after_s)
    if not named:
        exchange.cut_off()
        return web.Response(status=500)
    error = wire.error_object(500, "Internal Server Error", error_type="server")
    return await exchange.send_json(500, {"error": error})


async def late_generation(exchange: Exchange, *, questions: int = 2) -> web.StreamResponse:
    """Say nothing of the cost, and let `/generation` answer 404 to the first questions about it."""
    exchange.accounts.silent_for[exchange.shaper.generation_id] = questions
    return await no_usage(exchange)


async def key_wrong(exchange: Exchange, *, extra_usd: str = "0.50", looks: int = 1_000_000) -> web.StreamResponse:
    """Answer whole, and let `/key` show more than was spent at the next looks."""
    exchange.accounts.extra_pico = usd_to_pico(extra_usd)
    exchange.accounts.extra_looks = looks
    return await exchange.serve()


async def _with_usage(exchange: Exchange, change: Callable[[dict[str, Any]], dict[str, Any]]) -> web.StreamResponse:
    answer, row = await exchange.answer_and_bill()
    usage = change(wire.usage(row))
    if not exchange.ask.stream:
        return await exchange.send_json(200, exchange.shaper.body(answer, row) | {"usage": usage}, whole=True)
    bill = wire.event({"id": exchange.shaper.generation_id, "choices": [], "usage": usage})
    return await exchange.send_events(replace(exchange.pieces(answer, row), usage=bill))
