"""An endpoint that refuses everybody is left, and the others answer; the run pauses for its prices and its key only."""

import asyncio
import json

from tests.engine.conftest import NewRun
from tests.providers.scripted_server import Exchange, scripted_server

ANSWER = {
    "id": "gen-1",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Fine."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 3, "cost": 0.00001},
}
REFUSALS = {
    "here": (403, {"message": "Provider returned error", "code": 403, "metadata": {"provider_name": "Here"}}),
    "dear": (404, {"message": "No endpoints found.", "code": 404, "availability": {"code": "constraint_filtered"}}),
}


def endpoints(tags: tuple[str, ...]) -> bytes:
    pricing = {"prompt": "0.000001", "completion": "0.000002", "request": "0"}
    records = [{"tag": tag, "provider_name": tag.title(), "pricing": pricing} for tag in tags]
    return json.dumps({"data": {"endpoints": records}}).encode()


async def test_the_run_goes_on_without_endpoints_that_refuse_everybody(new_run: NewRun) -> None:
    asked = dict.fromkeys(("good", "here", "dear"), 0)
    looks = 0

    async def act(exchange: Exchange) -> None:
        nonlocal looks
        if "/endpoints " in exchange.head:
            looks += 1
            await exchange.reply(200, endpoints(tuple(asked)))
        elif "/key " in exchange.head:
            await exchange.reply(200, b'{"data":{"usage":0}}')
        else:
            (tag,) = json.loads(exchange.body)["provider"]["only"]
            asked[tag] += 1
            status, error = REFUSALS.get(tag, (200, None))
            body = ANSWER if error is None else {"error": error}
            await exchange.reply(status, json.dumps(body).encode(), {"Content-Type": "application/json"})

    async with scripted_server(act) as server:
        run = new_run(
            server.base_url,
            [f"Number {number}." for number in range(60)],
            pace={"stream": "never", "spread": "even"},
            max_in_flight=6,
        )
        assert await asyncio.to_thread(run.finish) == 0, run.log()
    assert asked["good"] == 60
    assert 5 <= asked["here"] <= 12
    assert 1 <= asked["dear"] <= 6
    assert looks >= 2
    with run.reader() as reader:
        told = [event.message for event in reader.events()]
    assert any(line.startswith("here is taken out of the rotation: 5 requests failed") for line in told)
    assert any(line.startswith("dear refused a request") and "quarantine dear" in line for line in told)


async def test_a_price_that_did_rise_pauses_the_run(new_run: NewRun) -> None:
    rises = False

    async def act(exchange: Exchange) -> None:
        nonlocal rises
        if "/endpoints " in exchange.head:
            body = endpoints(("good", "dear"))
            await exchange.reply(200, body.replace(b"0.000002", b"0.000003") if rises else body)
        elif "/key " in exchange.head:
            await exchange.reply(200, b'{"data":{"usage":0}}')
        else:
            rises = True
            status, error = REFUSALS["dear"]
            await exchange.reply(status, json.dumps({"error": error}).encode())

    async with scripted_server(act) as server:
        run = new_run(server.base_url, ["One.", "Two."], pace={"stream": "never", "spread": "even"})
        assert await asyncio.to_thread(run.finish, "--exit-when-paused") == 3, run.log()
    assert run.state() == ("paused", "price")
