"""Prices that change in mid-run: nothing is bought above the accepted price, and a resume accepts the new one."""

import asyncio
import json
from decimal import Decimal

from eagletui.core.money import Price
from eagletui.engine.market import Market
from eagletui.ledger.writer import LedgerWriter
from eagletui.providers.base import Endpoint
from tests.engine.conftest import NewRun
from tests.provider_fixture import ProviderHandle
from tests.providers.scripted_server import Exchange, scripted_server


def endpoint(tag: str, completion_usd: str, prompt_usd: str = "0.000001") -> Endpoint:
    price = Price(Decimal(prompt_usd), Decimal(completion_usd), Decimal(0))
    return Endpoint(tag, tag.title(), price, None, None, supports_logprobs=False, supports_stream=True)


def price_of(market: Market, tag: str) -> Decimal:
    return market.endpoints[tag].price.completion_usd_per_token


def test_a_lower_price_is_taken_at_once_and_a_higher_one_waits_for_a_person() -> None:
    market = Market("auto")
    assert market.take([endpoint("a", "0.000003"), endpoint("b", "0.000003")]) == []
    dearer = market.take([endpoint("a", "0.000002"), endpoint("b", "0.000004")])
    assert dearer == ["b from $1 in and $3 out per million tokens to $1 in and $4 out per million tokens"]
    assert (price_of(market, "a"), price_of(market, "b")) == (Decimal("0.000002"), Decimal("0.000003"))
    market.accept()
    assert price_of(market, "b") == Decimal("0.000004")


async def test_a_price_that_rose_between_two_engines_waits_for_a_person(
    new_run: NewRun, replay_provider: ProviderHandle
) -> None:
    run = new_run(replay_provider.api_url, 2, provider={"only": ["embedded/text"]})
    with LedgerWriter(run.folder.ledger_path) as writer:
        writer.set_run_state("running")
        writer.add_price("embedded/text", prompt_usd="0.00000003", completion_usd="0.0000015", request_usd="0")
    process = run.start()
    await asyncio.to_thread(run.until_state, "paused", "price")
    assert "embedded/text from $0.03 in and $1.5 out per million tokens to" in (run.snapshot().run.pause_detail or "")
    await asyncio.to_thread(run.order, "resume")
    assert await asyncio.to_thread(run.wait, process) == 0, run.log()
    assert len(replay_provider.books()["rows"]) == 2


async def test_a_resume_after_another_pause_does_not_accept_a_price(
    new_run: NewRun, replay_provider: ProviderHandle
) -> None:
    run = new_run(replay_provider.api_url, 2, provider={"only": ["embedded/text"]})
    with LedgerWriter(run.folder.ledger_path) as writer:
        writer.set_run_state("running")
        writer.set_run_state("paused", "user", "Paused by hand.")
        writer.add_price("embedded/text", prompt_usd="0.00000003", completion_usd="0.0000015", request_usd="0")
    run.start()
    await asyncio.to_thread(run.order, "resume")
    await asyncio.to_thread(run.until_state, "paused", "price")
    assert replay_provider.books()["rows"] == []


def test_an_endpoint_that_is_not_offered_any_more_has_no_weight() -> None:
    market = Market("auto")
    market.take([endpoint("a", "0.000003"), endpoint("b", "0.000003")])
    market.take([endpoint("b", "0.000003"), endpoint("c", "0.000003")])
    assert set(market.weights()) == {"b", "c"}


async def test_a_price_refused_by_the_router_pauses_the_run_and_a_resume_accepts_it(
    new_run: NewRun,
) -> None:
    asked_prices: list[float] = []
    price = {"completion": "0.000002"}

    async def act(exchange: Exchange) -> None:
        if "/endpoints " in exchange.head:
            pricing = {"prompt": "0.000001", **price, "request": "0"}
            record = {"tag": "maker/one", "provider_name": "Maker", "pricing": pricing}
            await exchange.reply(200, json.dumps({"data": {"endpoints": [record]}}).encode())
        elif "/key " in exchange.head:
            await exchange.reply(200, b'{"data":{"usage":0}}')
        else:
            asked_prices.append(json.loads(exchange.body)["provider"]["max_price"]["completion"])
            if len(asked_prices) == 1:
                price["completion"] = "0.000005"
            if asked_prices[-1] < 5:
                error = {"code": 404, "message": "No endpoint under max_price", "metadata": {}}
                refusal = {"error": error | {"availability": {"code": "constraint_filtered", "retryable": False}}}
                await exchange.reply(404, json.dumps(refusal).encode())
                return
            choice = {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
            usage = {"prompt_tokens": 30, "completion_tokens": 2, "cost": 0}
            body = {"id": f"gen-{len(asked_prices)}", "choices": [choice], "usage": usage}
            await exchange.reply(200, json.dumps(body).encode(), {"Content-Type": "application/json"})

    async with scripted_server(act) as server:
        run = new_run(server.base_url, 3, max_in_flight=1, pace={"stream": "never"})
        process = run.start()
        await asyncio.to_thread(run.until_state, "paused", "price")
        assert "No endpoint under max_price" in (run.snapshot().run.pause_detail or "")
        await asyncio.to_thread(run.until, lambda reader: len(reader.prices()) == 2, "the new price is seen")
        await asyncio.to_thread(run.order, "resume")
        assert await asyncio.to_thread(run.wait, process) == 0, run.log()
    assert asked_prices == [2, 5, 5, 5]
    assert run.snapshot().states["tokenized"] == 3
