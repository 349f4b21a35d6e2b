"""What is asked of the router, and what is read from its accounting."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from eagletui.core.chat import Message, Prompt, ToolCall
from eagletui.core.errors import ConfigError
from eagletui.core.money import Price
from eagletui.core.reasoning_rule import ReasoningRule
from eagletui.providers.base import ChatRequest, GenerationRecord, KeyStatus, ProviderFailure, Sampling, Timeouts
from eagletui.providers.offer import Routing
from eagletui.providers.openrouter import OpenRouter
from tests.providers.scripted_server import Exchange, scripted_server

TIMEOUTS = Timeouts(connect_s=5.0, first_event_s=5.0, event_s=5.0, total_s=10.0)
PRICE = Price(Decimal("0.0000006"), Decimal("0.0000025"), Decimal("0"))
PROMPT = Prompt(
    messages=(
        Message("user", "What is in Paris?"),
        Message("assistant", None, reasoning="look", tool_calls=(ToolCall("c1", "find", '{"q": "Paris"}'),)),
        Message("tool", "a tower", tool_call_id="c1"),
    ),
    tools_json='[{"type":"function","function":{"name":"find","parameters":{"b":1,"a":2}}}]',
)
REQUEST = ChatRequest(
    prompt=PROMPT,
    model_id="moonshotai/kimi-k2.5",
    endpoint="moonshotai/int4",
    sampling=Sampling(temperature=1.0, top_p=0.95),
    max_tokens=100,
    stream=True,
    logprobs=False,
    max_price=PRICE,
)


def router(base_url: str = "http://127.0.0.1:1/api/v1", routing: Routing | None = None) -> OpenRouter:
    return OpenRouter(base_url, "moonshotai/kimi-k2.5", routing or Routing(), key="k", timeouts=TIMEOUTS)


def endpoint(tag: str, **changes: object) -> dict[str, object]:
    return {
        "tag": tag,
        "provider_name": tag.split("/")[0].title(),
        "quantization": "int4",
        "max_completion_tokens": 16384,
        "supported_parameters": ["temperature"],
        "pricing": {"prompt": "0.0000006", "completion": "0.0000025", "request": "0", "discount": 0.5},
        **changes,
    }


async def listed(records: Sequence[Mapping[str, object]], routing: Routing) -> list[str]:
    async def act(exchange: Exchange) -> None:
        assert exchange.head.startswith("GET /api/v1/models/moonshotai/kimi-k2.5/endpoints ")
        await exchange.reply(200, json.dumps({"data": {"id": "m", "endpoints": records}}).encode())

    async with scripted_server(act) as server:
        client = router(server.base_url, routing)
        try:
            return [e.tag for e in await client.endpoints()]
        finally:
            await client.aclose()


async def answered(status: int, body: bytes, ask: str) -> object:
    async def act(exchange: Exchange) -> None:
        await exchange.reply(status, body)

    async with scripted_server(act) as server:
        client = router(server.base_url)
        try:
            if ask == "balance":
                return await client.balance()
            return await (client.key() if ask == "key" else client.generation("gen-1"))
        finally:
            await client.aclose()


async def test_a_request_pins_its_endpoint_and_carries_the_price_ceiling() -> None:
    body = router().request_body(REQUEST)
    assert body["provider"] == {
        "only": ["moonshotai/int4"],
        "allow_fallbacks": False,
        "require_parameters": True,
        "max_price": {"prompt": Decimal("0.6"), "completion": Decimal("2.5"), "request": Decimal(0)},
        "enforce_distillable_text": True,
    }
    assert body["plugins"] == [{"id": "context-compression", "enabled": False}]
    assert body["usage"] == {"include": True}
    assert body["max_tokens"] == 100
    assert "reasoning" not in body
    assert "seed" not in body
    assert "session_id" not in body


async def test_the_override_of_the_distillable_rule_is_obeyed() -> None:
    body = router(routing=Routing(distillable_text=False)).request_body(REQUEST)
    assert "enforce_distillable_text" not in body["provider"]


async def test_a_body_on_the_wire_keeps_tools_and_arguments_as_given() -> None:
    async def act(exchange: Exchange) -> None:
        await exchange.open_stream()
        await exchange.chunk(b"data: [DONE]\n\n")
        await exchange.chunk(b"")

    async def on_headers(generation_id: str | None, status: int) -> None:
        pass

    async with scripted_server(act) as server:
        client = router(server.base_url)
        await client.send(REQUEST, on_headers)
        await client.aclose()
        wire = server.received[0]
    assert wire.head.startswith("POST /api/v1/chat/completions ")
    assert PROMPT.tools_json is not None
    assert PROMPT.tools_json.encode() in wire.body
    assert b'"max_price":{"prompt":0.6' in wire.body
    sent = json.loads(wire.body)
    assert sent["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"q": "Paris"}'
    assert sent["messages"][1]["reasoning"] == "look"
    assert sent["messages"][2] == {"role": "tool", "content": "a tower", "tool_call_id": "c1"}


async def test_an_endpoint_is_left_out_by_each_rule_of_the_config() -> None:
    records = [
        endpoint("deepinfra"),
        endpoint("deepinfra/turbo"),
        endpoint("novita", quantization="fp8"),
        endpoint("tiny", max_completion_tokens=4096),
    ]
    assert await listed(records, Routing()) == ["deepinfra", "deepinfra/turbo", "novita", "tiny"]
    assert await listed(records, Routing(only=("deepinfra",))) == ["deepinfra", "deepinfra/turbo"]
    assert await listed(records, Routing(ignore=("deepinfra/turbo",))) == ["deepinfra", "novita", "tiny"]
    assert await listed(records, Routing(quantizations=("fp8",))) == ["novita"]
    assert await listed(records, Routing(max_tokens=8192)) == ["deepinfra", "deepinfra/turbo", "novita"]
    with pytest.raises(ConfigError, match=r"None of the endpoints .* deepinfra \(int4"):
        await listed(records, Routing(only=("nobody",)))


async def test_the_bound_price_is_the_highest_override_and_ignores_discounts() -> None:
    pricing = {
        "prompt": "0.0000006",
        "completion": "0.0000025",
        "request": "0",
        "discount": 0.5,
        "overrides": [
            {"prompt": "0.0000012", "min_prompt_tokens": 200000},
            {"completion": "0.000005", "utc_start": "08:00"},
        ],
    }

    async def act(exchange: Exchange) -> None:
        await exchange.reply(200, json.dumps({"data": {"endpoints": [endpoint("a", pricing=pricing)]}}).encode())

    async with scripted_server(act) as server:
        client = router(server.base_url)
        (found,) = await client.endpoints()
        await client.aclose()
    assert found.price == Price(Decimal("0.0000012"), Decimal("0.000005"), Decimal("0"))


@pytest.mark.parametrize(
    ("pricing", "prompt", "completion"),
    [
        ({"internal_reasoning": "0.00001", "input_cache_write": "0.00000075"}, "0.00000075", "0.00001"),
        ({"internal_reasoning": "0", "input_cache_write": "0"}, "0.0000006", "0.0000025"),
        ({"overrides": [{"input_cache_write": "0.000002", "internal_reasoning": "0.000007"}]}, "0.000002", "0.000007"),
    ],
)
async def test_the_bound_price_counts_cache_writes_and_reasoning_where_they_are_dearer(
    pricing: dict[str, Any], prompt: str, completion: str
) -> None:
    record = endpoint("a", pricing={"prompt": "0.0000006", "completion": "0.0000025", **pricing})

    async def act(exchange: Exchange) -> None:
        await exchange.reply(200, json.dumps({"data": {"endpoints": [record]}}).encode())

    async with scripted_server(act) as server:
        client = router(server.base_url)
        (found,) = await client.endpoints()
        await client.aclose()
    assert found.price == Price(Decimal(prompt), Decimal(completion), Decimal(0))


async def test_a_rate_for_reasoning_that_is_no_price_makes_no_bound() -> None:
    records = [endpoint("a", pricing={"prompt": "0.1", "completion": "0.1", "internal_reasoning": "-1"})]
    with pytest.raises(ConfigError, match="a states no price"):
        await listed(records, Routing())


async def test_an_endpoint_without_a_price_does_not_run_unless_a_price_is_typed() -> None:
    records = [endpoint("a", pricing={"prompt": "-1", "completion": "-1"})]
    with pytest.raises(ConfigError, match="a states no price"):
        await listed(records, Routing())
    assert await listed(records, Routing(typed_price=PRICE)) == ["a"]


async def test_costs_are_read_to_the_last_picodollar() -> None:
    body = b'{"data":{"id":"gen-1","total_cost":0.002154000000123,"native_tokens_completion":690}}'
    record = await answered(200, body, "generation")
    assert getattr(record, "cost_pico_usd", None) == 2_154_000_000_123 // 1000
    body = b'{"data":{"usage":86.000000000001,"limit":100,"limit_remaining":13.999999999999}}'
    status = await answered(200, body, "key")
    assert getattr(status, "usage_pico_usd", None) == 86_000_000_000_001
    assert getattr(status, "remaining_pico_usd", None) == 13_999_999_999_999


async def test_a_generation_that_is_not_known_yet_is_none() -> None:
    assert await answered(404, b'{"error":{"code":404,"message":"not found"}}', "generation") is None
    assert await answered(200, b'{"data":{"id":"gen-1","total_cost":null}}', "generation") is None


async def test_an_accounting_answer_that_cannot_be_read_is_a_failure() -> None:
    with pytest.raises(ProviderFailure) as caught:
        await answered(200, b"<html>", "key")
    assert caught.value.kind == "not_json"
    with pytest.raises(ProviderFailure) as caught:
        await answered(429, b"", "generation")
    assert caught.value.kind == "rate_limited"


async def test_template_kwargs_go_only_to_endpoints_that_take_them_and_are_refused_by_name_where_none_does() -> None:
    taking = endpoint("taking", supported_parameters=["temperature", "chat_template_kwargs"])
    routing = Routing(template_kwargs={"preserve_thinking": True})
    assert await listed([endpoint("other"), taking], routing) == ["taking"]
    with pytest.raises(ConfigError, match=r"template_kwargs of.*found preserve_thinking = true.*kind vllm"):
        await listed([endpoint("other")], routing)


async def test_every_request_asks_for_the_routers_own_account_of_what_it_did() -> None:
    async def act(exchange: Exchange) -> None:
        await exchange.reply(404, b"{}")

    async with scripted_server(act) as server:
        client = router(server.base_url)
        await client.generation("gen-1")
        await client.aclose()
        assert "x-openrouter-metadata: enabled" in server.received[0].head.lower()
        assert "x-session-id" not in server.received[0].head.lower()


@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        ("default", None),
        ("off", {"enabled": False}),
        ("high", {"effort": "high"}),
        ("minimal", {"effort": "minimal"}),
        ("2048", {"max_tokens": 2048}),
    ],
)
async def test_reasoning_is_switched_off_set_by_effort_or_bounded_in_tokens(asked: str, sent: object) -> None:
    request = replace(REQUEST, sampling=Sampling(temperature=1.0, top_p=1.0, reasoning=asked))
    assert router().request_body(request).get("reasoning") == sent


async def test_an_endpoint_that_would_refuse_a_parameter_is_left_out_and_says_which() -> None:
    records = [endpoint("a", supported_parameters=["temperature", "top_k"]), endpoint("b"), endpoint("c")]
    records[2]["supported_parameters"] = []
    routing = Routing(parameters=frozenset({"temperature", "top_k"}))
    assert await listed(records, routing) == ["a", "c"]
    with pytest.raises(ConfigError, match="without top_k"):
        await listed(records[1:2], routing)


async def test_ones_own_provider_key_counts_its_bill_beside_the_routers_and_only_then() -> None:
    for is_byok, cost in ((True, 3_000_000), (False, 1_000_000)):
        record = {"total_cost": 0.000001, "upstream_inference_cost": 0.000002, "is_byok": is_byok}
        generation = await answered(200, json.dumps({"data": record}).encode(), "generation")
        assert isinstance(generation, GenerationRecord)
        assert generation.cost_pico_usd == cost
    key = await answered(200, b'{"data":{"usage":1.5,"byok_usage":0.25,"limit":null}}', "key")
    assert isinstance(key, KeyStatus)
    assert key.usage_pico_usd == 1_750_000_000_000


async def test_what_a_key_may_and_until_when_is_read_and_odd_values_are_unknown() -> None:
    data = {
        "usage": 1,
        "limit": 5,
        "limit_reset": "monthly",
        "expires_at": "2027-01-02T03:04:05Z",
        "is_free_tier": True,
    }
    key = await answered(200, json.dumps({"data": data}).encode(), "key")
    assert isinstance(key, KeyStatus)
    assert (key.limit_reset, key.is_free_tier) == ("monthly", True)
    assert key.expires_at == datetime(2027, 1, 2, 3, 4, 5, tzinfo=UTC)
    odd = await answered(200, b'{"data":{"usage":1,"limit_reset":7,"expires_at":"soon","is_free_tier":"no"}}', "key")
    assert isinstance(odd, KeyStatus)
    assert (odd.limit_reset, odd.expires_at, odd.is_free_tier) == (None, None, False)


@pytest.mark.parametrize(
    ("status", "body", "left"),
    [
        (200, b'{"data":{"total_credits":12.5,"total_usage":2.25}}', 10_250_000_000_000),
        (403, b'{"error":{"code":403,"message":"Only management keys can perform this operation"}}', None),
    ],
)
async def test_the_balance_is_known_to_management_keys_only(status: int, body: bytes, left: int | None) -> None:
    assert await answered(status, body, "balance") == left


@pytest.mark.parametrize(
    ("status", "body", "rule"),
    [
        (
            200,
            {
                "data": [
                    {"id": "other/x", "reasoning": 7},
                    {
                        "id": "moonshotai/kimi-k2.5",
                        "reasoning": {
                            "supported_efforts": ["high", "low"],
                            "default_effort": "high",
                            "supports_max_tokens": False,
                            "mandatory": True,
                        },
                    },
                ]
            },
            ReasoningRule(("high", "low"), takes_tokens=False, mandatory=True),
        ),
        (200, {"data": [{"id": "moonshotai/kimi-k2.5", "reasoning": None}]}, None),
        (200, {"data": []}, None),
        (404, {"error": {"message": "no such page"}}, None),
    ],
)
async def test_the_list_of_models_says_what_reasoning_allows(
    status: int, body: object, rule: ReasoningRule | None
) -> None:
    async def act(exchange: Exchange) -> None:
        assert exchange.head.startswith("GET /api/v1/models ")
        await exchange.reply(status, json.dumps(body).encode())

    async with scripted_server(act) as server:
        client = router(server.base_url)
        try:
            assert await client.reasoning() == rule
        finally:
            await client.aclose()
