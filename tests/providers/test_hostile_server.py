"""Whatever a server sends, a failure has a name and a figure is one the ledger can hold."""

import gzip
import json
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import aclosing

import pytest
import zstandard

from eagletui.core.errors import ConfigError
from eagletui.core.money import usd_to_pico
from eagletui.core.reply import Reply
from eagletui.providers.base import Encoding, ProviderFailure, RawReply, Timeouts
from eagletui.providers.errors import from_status
from eagletui.providers.fields import MAX_COST_PICO, MAX_COUNT
from eagletui.providers.offer import Routing
from eagletui.providers.openrouter import OpenRouter
from eagletui.providers.reading import read_reply
from eagletui.providers.transport import HttpTransport
from tests.providers.nasty import NASTY, to_json, variants
from tests.providers.scripted_server import Exchange, scripted_server

TIMEOUTS = Timeouts(connect_s=5.0, first_event_s=5.0, event_s=5.0, total_s=10.0)
KEY = "sk-or-v1-marker-7c1e0d"
USAGE = {
    "prompt_tokens": 9,
    "completion_tokens": 2,
    "cost": 0.0001,
    "completion_tokens_details": {"reasoning_tokens": 0},
}
LOGPROB = {"token": "Hi", "bytes": [72, 105], "logprob": -0.5, "id": 7}
CALL = {"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
MESSAGE = {
    "role": "assistant",
    "content": [{"type": "text", "text": "Hi"}, {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}],
    "reasoning": "Hm",
    "reasoning_details": [{"type": "reasoning.text", "text": "Hm"}],
    "tool_calls": [CALL],
    "refusal": None,
}
BODY = {
    "id": "gen-1",
    "model": "m",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "native_finish_reason": "stop",
            "logprobs": {"content": [LOGPROB]},
            "token_ids": [7],
            "message": MESSAGE,
        }
    ],
    "usage": USAGE,
    "prompt_token_ids": [1],
    "__verbose": {"tokens": [7]},
}
EVENT = {"id": "gen-1", "choices": [{"index": 0, "delta": {"content": "Hi"}, "logprobs": {"content": [LOGPROB]}}]}
TOOL_EVENT = {"id": "gen-1", "choices": [{"index": 0, "delta": {"tool_calls": [CALL]}, "token_ids": [7]}]}
LAST_EVENT = {"id": "gen-1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": USAGE}
LLAMA_BODY = {"content": "Hi", "tokens": [7], "stop": True, "stop_type": "eos", "tokens_predicted": 1}
SGLANG_META = {"completion_tokens": 1, "finish_reason": {"type": "stop"}, "output_token_logprobs": [[-0.1, 7, "Hi"]]}
SGLANG_BODY = {"text": "Hi", "output_ids": [7], "meta_info": SGLANG_META}


def raw(body: bytes, encoding: Encoding) -> RawReply:
    return RawReply(encoding, body, 200, "gen-1", 0.0, 0.0, None, 1.0)


def hostile_replies() -> Iterator[RawReply]:
    for document in (BODY, LLAMA_BODY, SGLANG_BODY):
        for variant in variants(document):
            yield raw(variant, "json")
    for position, event in enumerate((EVENT, EVENT, TOOL_EVENT, LAST_EVENT)):
        for variant in variants(event):
            events = [json.dumps(whole).encode() for whole in (EVENT, EVENT, TOOL_EVENT, LAST_EVENT)]
            events[position] = variant
            yield raw(b"".join(b"data: " + data + b"\n\n" for data in events), "sse")


def assert_figures_fit(reply: Reply) -> None:
    usage = reply.usage
    if usage is not None:
        assert usage.cost_pico_usd is None or 0 <= usage.cost_pico_usd <= MAX_COST_PICO
        for count in (usage.prompt_tokens, usage.completion_tokens, usage.reasoning_tokens):
            assert count is None or 0 <= count <= MAX_COUNT
    for ids in (reply.token_ids, reply.prompt_token_ids, *(delta.token_ids for delta in reply.deltas or ())):
        assert all(0 <= token_id <= MAX_COUNT for token_id in ids or ())
    for text in (reply.content, reply.reasoning, *(call.arguments for call in reply.tool_calls)):
        (text or "").encode()  # a lone surrogate would raise here, and later in the ledger


def test_a_nasty_value_anywhere_in_a_reply_is_read_or_refused_by_name() -> None:
    answers = failures = 0
    costs: set[int | None] = set()
    for reply in hostile_replies():
        try:
            assert_figures_fit(read_reply(reply))
            answers += 1
        except ProviderFailure as refusal:
            costs.add(refusal.cost_pico_usd)
            failures += 1
    assert answers > 1000
    assert failures > 1000
    assert all(cost is None or 0 <= cost <= MAX_COST_PICO for cost in costs)


def test_a_nasty_value_anywhere_in_a_refusal_still_gives_a_failure() -> None:
    refusal = {
        "error": {
            "code": 429,
            "message": "slow",
            "metadata": {"error_type": "rate_limit_exceeded", "raw": "x", "reasons": []},
            "availability": {"code": "x", "retryable": True, "retry_after": 1.5},
        }
    }
    for body in variants(refusal):
        assert from_status(429, {}, body).void
    for value in map(str, NASTY):
        failure = from_status(503, {"retry-after": value}, b"")
        assert failure.retry_after_s is None or 0 <= failure.retry_after_s <= 3600


@pytest.mark.slow
async def test_a_nasty_value_anywhere_in_the_accounts_or_the_offer_is_a_failure_or_a_figure_that_fits() -> None:
    endpoint = {
        "tag": "a/int4",
        "provider_name": "A",
        "quantization": "int4",
        "max_completion_tokens": 4096,
        "supported_parameters": ["logprobs"],
        "pricing": {"prompt": "0.000001", "completion": "0.000002", "request": "0", "overrides": [{"prompt": "0.1"}]},
    }
    documents = {
        "/generation": {"data": {"total_cost": 0.001, "native_tokens_prompt": 4, "native_tokens_completion": 5}},
        "/key": {"data": {"usage": 1.25, "limit": 5, "limit_remaining": 3.75}},
        "/models/a/m/endpoints": {"data": {"endpoints": [endpoint]}},
    }
    bodies: dict[str, bytes] = {}

    async def act(exchange: Exchange) -> None:
        path = exchange.head.split(" ")[1].split("?")[0].removeprefix("/api/v1")
        await exchange.reply(200, bodies[path], {"Content-Type": "application/json"})

    async with (
        scripted_server(act) as server,
        aclosing(OpenRouter(server.base_url, "a/m", Routing(), key=KEY, timeouts=TIMEOUTS)) as provider,
    ):
        for path, document in documents.items():
            bodies[path] = to_json(document)
        record, key, offer = await provider.generation("gen-1"), await provider.key(), await provider.endpoints()
        assert record is not None
        assert key is not None
        assert record.cost_pico_usd == usd_to_pico("0.001")
        assert key.usage_pico_usd == usd_to_pico("1.25")
        assert [found.tag for found in offer] == ["a/int4"]
        for path, document in documents.items():
            for bodies[path] in variants(document):
                try:
                    record, key = await provider.generation("gen-1"), await provider.key()
                    offer = await provider.endpoints()
                except (ProviderFailure, ConfigError):
                    continue
                assert record is None or 0 <= record.cost_pico_usd <= MAX_COST_PICO
                assert key is None or abs(key.usage_pico_usd) < 2**63
                for found in offer:
                    assert 0 <= found.price.prompt_usd_per_token <= 1
                    assert found.max_completion_tokens is None or found.max_completion_tokens <= MAX_COUNT
            bodies[path] = to_json(document)


BOMB_BYTES = 64 * 2**20


@pytest.mark.parametrize("coding", ["gzip", "deflate", "zstd", "br", "gzip, gzip"])
async def test_a_compressed_bomb_is_not_inflated(coding: str) -> None:
    blank = bytes(BOMB_BYTES)
    match coding:
        case "gzip":
            bomb = gzip.compress(blank)
        case "deflate":
            bomb = zlib.compress(blank)
        case _:
            bomb = zstandard.ZstdCompressor().compress(blank)

    async def act(exchange: Exchange) -> None:
        await exchange.reply(200, bomb, {"Content-Type": "application/json", "Content-Encoding": coding})

    async def on_headers(generation_id: str | None, status: int) -> None:
        pass

    tracemalloc.start()
    async with scripted_server(act) as server:
        transport = HttpTransport(server.base_url, key=KEY, timeouts=TIMEOUTS, headers={})
        with pytest.raises(ProviderFailure) as caught:
            await transport.post("/chat/completions", b"{}", stream=False, limit_bytes=2**20, on_headers=on_headers)
        await transport.aclose()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert caught.value.kind == ("too_large" if coding in ("gzip", "deflate") else "not_json")
    assert not caught.value.void, "it may have been billed"
    assert most < 16 * 2**20


async def test_a_compressed_reply_of_a_fair_size_is_read() -> None:
    body = json.dumps(BODY).encode()

    async def act(exchange: Exchange) -> None:
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        await exchange.reply(200, gzip.compress(body), headers)

    async def on_headers(generation_id: str | None, status: int) -> None:
        pass

    async with scripted_server(act) as server:
        transport = HttpTransport(server.base_url, key=KEY, timeouts=TIMEOUTS, headers={})
        reply = await transport.post("/c", b"{}", stream=False, limit_bytes=2**20, on_headers=on_headers)
        await transport.aclose()
    assert reply.body == body


@pytest.mark.parametrize("media_type", ["application/json", "text/event-stream", "text/html"])
async def test_a_body_without_end_is_cut_at_the_limit(media_type: str) -> None:
    async def act(exchange: Exchange) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\nTransfer-Encoding: chunked\r\n\r\n"
        await exchange.send(head.encode())
        while not exchange.writer.is_closing():
            await exchange.chunk(b": still thinking\n\n" * 1000)

    async def on_headers(generation_id: str | None, status: int) -> None:
        pass

    async with scripted_server(act) as server:
        transport = HttpTransport(server.base_url, key=KEY, timeouts=TIMEOUTS, headers={})
        with pytest.raises(ProviderFailure) as caught:
            await transport.post("/c", b"{}", stream=True, limit_bytes=2**20, on_headers=on_headers)
        await transport.aclose()
    assert caught.value.kind == ("not_json" if media_type == "text/html" else "too_large")


async def test_a_key_that_a_server_repeats_is_not_kept_with_the_reply() -> None:
    answer = {**BODY, "id": KEY, "error": {"message": f"bad key {KEY}"}}

    async def act(exchange: Exchange) -> None:
        headers = {"Content-Type": "application/json", "X-Generation-Id": f"gen-{KEY}"}
        await exchange.reply(200, json.dumps(answer).encode(), headers)

    ids: list[str | None] = []

    async def on_headers(generation_id: str | None, status: int) -> None:
        ids.append(generation_id)

    async with scripted_server(act) as server:
        transport = HttpTransport(server.base_url, key=KEY, timeouts=TIMEOUTS, headers={})
        reply = await transport.post("/c", b"{}", stream=False, limit_bytes=2**20, on_headers=on_headers)
        listed = await transport.get("/models")
        await transport.aclose()
    assert KEY.encode() not in reply.body + listed.body
    assert ids == ["gen-[key]"]
    assert reply.generation_id == "gen-[key]"
    with pytest.raises(ProviderFailure) as caught:
        read_reply(reply)
    assert KEY not in str(caught.value)
