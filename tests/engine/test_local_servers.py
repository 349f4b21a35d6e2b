"""The same engine on a server without a router, without accounts and without a price."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from eagletui.core.chat import Message, Prompt
from eagletui.ledger.orders import NewPrompt
from tests.engine.conftest import NewRun
from tests.engine.run_folder import EngineRun
from tests.providers.scripted_server import Exchange, scripted_server

RAW = Path(__file__).parents[1] / "data" / "raw"


def recorded_body(name: str) -> bytes:
    return re.split(rb"\r?\n\r?\n", (RAW / name).read_bytes(), maxsplit=1)[1]


async def end_of(run: EngineRun) -> int:
    """Wait for an engine in a thread, so that the test's own server can answer it."""
    return await asyncio.to_thread(run.finish)


@pytest.mark.parametrize(
    ("kind", "recording", "asked"),
    [
        ("vllm", "vllm/nonstream_return_token_ids.resp.txt", {"return_token_ids": True}),
        ("llama.cpp", "llamacpp/nonstream_verbose.resp.txt", {"return_tokens": True, "verbose": True}),
    ],
)
async def test_ids_that_the_server_returns_are_asked_for_and_kept(
    new_run: NewRun, kind: str, recording: str, asked: dict[str, object]
) -> None:
    async def act(exchange: Exchange) -> None:
        body = b'{"data":[]}' if exchange.head.startswith("GET") else recorded_body(recording)
        await exchange.reply(200, body, {"Content-Type": "application/json"})

    async with scripted_server(act) as server:
        run = new_run(server.base_url, 3, provider={"kind": kind})
        assert await end_of(run) == 0, run.log()
        posts = [json.loads(exchange.body) for exchange in server.received if exchange.head.startswith("POST")]
    probe, *asked_posts = posts
    assert (probe["max_tokens"], len(asked_posts)) == (4, 3)
    for post in posts:
        assert asked.items() <= post.items()
        assert post["stream"] is False
        assert "provider" not in post
    snapshot = run.snapshot()
    assert dict(snapshot.evidence) == {"served": 3}
    assert snapshot.spend.books.settled_pico == 0


async def test_a_prompts_own_sampling_is_sent_and_its_length_is_bounded_by_the_data_sets(new_run: NewRun) -> None:
    async def act(exchange: Exchange) -> None:
        recording = recorded_body("vllm/nonstream_return_token_ids.resp.txt")
        await exchange.reply(200, b'{"data":[]}' if exchange.head.startswith("GET") else recording)

    own = ('{"max_tokens": 5, "temperature": 0.25, "top_k": 7}', '{"max_tokens": 500}', None)
    prompts = [
        NewPrompt(f"p{n}", "d", Prompt((Message("user", f"case {n}"),), sampling_json=row), "")
        for n, row in enumerate(own)
    ]
    async with scripted_server(act) as server:
        run = new_run(server.base_url, prompts, provider={"kind": "vllm"}, sampling={"max_tokens": 64})
        assert await end_of(run) == 0, run.log()
        posts = [json.loads(exchange.body) for exchange in server.received if exchange.head.startswith("POST")][1:]
    sent = {post["messages"][0]["content"]: post for post in posts}
    asked = [(post["max_tokens"], post["temperature"], post.get("top_k")) for _, post in sorted(sent.items())]
    assert asked == [(5, 0.25, 7), (64, 1.0, None), (64, 1.0, None)]


async def test_a_server_that_breaks_off_is_asked_again_and_costs_nothing(new_run: NewRun) -> None:
    broken = 0

    async def act(exchange: Exchange) -> None:
        nonlocal broken
        if exchange.head.startswith("GET"):
            await exchange.reply(200, b'{"data":[]}')
        elif broken < 2 and b'"content":"Hi"' not in exchange.body:
            broken += 1
            exchange.reset()
        else:
            body = recorded_body("vllm/nonstream_return_token_ids.resp.txt")
            await exchange.reply(200, body, {"Content-Type": "application/json"})

    async with scripted_server(act) as server:
        run = new_run(server.base_url, 3, provider={"kind": "vllm"})
        assert await end_of(run) == 0, run.log()
    snapshot = run.snapshot()
    assert snapshot.attempts["settled"] == 5
    assert snapshot.failures == 2
    assert snapshot.spend.books.spent_pico == snapshot.spend.books.open_pico == 0


async def test_a_free_server_runs_without_any_budget(new_run: NewRun) -> None:
    async def act(exchange: Exchange) -> None:
        recording = recorded_body("vllm/nonstream_return_token_ids.resp.txt")
        body = b'{"data":[]}' if exchange.head.startswith("GET") else recording
        await exchange.reply(200, body, {"Content-Type": "application/json"})

    async with scripted_server(act) as server:
        run = new_run(server.base_url, 3, provider={"kind": "vllm"}, cap_usd="0", stop_at_usd="0")
        assert await end_of(run) == 0, run.log()
    assert run.snapshot().states["tokenized"] == 3


async def test_a_typed_price_is_held_and_charged(new_run: NewRun) -> None:
    async def act(exchange: Exchange) -> None:
        body = (
            b'{"data":[]}'
            if exchange.head.startswith("GET")
            else recorded_body("vllm/nonstream_return_token_ids.resp.txt")
        )
        await exchange.reply(200, body, {"Content-Type": "application/json"})

    usage = json.loads(recorded_body("vllm/nonstream_return_token_ids.resp.txt"))["usage"]
    price = {"kind": "vllm", "prompt_usd_per_million": "2", "completion_usd_per_million": "3"}
    async with scripted_server(act) as server:
        run = new_run(server.base_url, 2, provider=price)
        assert await end_of(run) == 0, run.log()
    expected = usage["prompt_tokens"] * 2_000_000 + usage["completion_tokens"] * 3_000_000
    assert run.snapshot().spend.books.settled_pico == 2 * expected


async def test_a_provider_that_refuses_the_key_stops_the_start_with_its_words(new_run: NewRun) -> None:
    async def act(exchange: Exchange) -> None:
        await exchange.reply(401, b'{"error":{"code":401,"message":"No auth credentials found"}}')

    async with scripted_server(act) as server:
        run = new_run(server.base_url, 1)
        assert await end_of(run) == 1
    assert "No auth credentials found" in run.log()
    assert run.state() == ("new", None)
    with run.reader() as reader:
        assert "No auth credentials found" in reader.last_events(1)[0].message
