"""A direct server is asked at start how it gives ids; its version is never asked."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from eagletui.core.errors import ConfigError
from eagletui.providers.base import ChatRequest, Endpoint, ProviderFailure, Timeouts
from eagletui.providers.id_ways import ServerKind
from eagletui.providers.openai_compatible import OpenAiCompatible
from tests.providers.scripted_server import Exchange, scripted_server
from tests.providers.test_openrouter import REQUEST

RAW = Path(__file__).parents[1] / "data" / "raw"
TIMEOUTS = Timeouts(connect_s=5.0, first_event_s=5.0, event_s=5.0, total_s=10.0)
ENTRY = {"token": "Hi", "bytes": [72, 105], "logprob": -0.1, "top_logprobs": []}
SGLANG_IDS = {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop", "token_ids": [9]}


def recorded(name: str) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(re.split(rb"\r?\n\r?\n", (RAW / name).read_bytes(), maxsplit=1)[1])
    return decoded


def plain(logprobs: bool = False) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
    if logprobs:
        choice["logprobs"] = {"content": [ENTRY]}
    return {"id": "1", "choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 1}}


async def probed(
    kind: ServerKind, knows: dict[str, dict[str, Any]], *, refuses: bool, models: list[str] | None = None
) -> tuple[Endpoint, list[dict[str, Any]], dict[str, Any]]:
    """Ask a server that knows some fields; it refuses, or ignores, the others."""
    posts: list[dict[str, Any]] = []

    async def act(exchange: Exchange) -> None:
        if exchange.head.startswith("GET"):
            listed = {"data": [{"id": name} for name in models or []]}
            return await exchange.reply(200, json.dumps(listed).encode())
        post = json.loads(exchange.body)
        posts.append(post)
        extra = sorted(set(post) - {"model", "messages", "max_tokens", "temperature", "top_p", "stream"})
        answer = next((body for name, body in knows.items() if name in extra), None)
        if answer is None and extra and refuses:
            return await exchange.reply(400, b'{"error": {"message": "Extra inputs are not permitted"}}')
        return await exchange.reply(200, json.dumps(answer or plain()).encode())

    async with scripted_server(act) as server:
        client = OpenAiCompatible(kind, server.base_url, model_id="m", key="", timeouts=TIMEOUTS, typed_price=None)
        try:
            await client.endpoints()
            (endpoint,) = await client.endpoints()
        finally:
            await client.aclose()
    return endpoint, posts, client.request_body(_direct())


def _direct() -> ChatRequest:
    return ChatRequest(
        REQUEST.prompt, "m", None, REQUEST.sampling, max_tokens=9, stream=False, logprobs=False, max_price=None
    )


@pytest.mark.parametrize(
    ("kind", "knows", "asked"),
    [
        ("vllm", {"return_token_ids": "vllm/nonstream_return_token_ids.resp.txt"}, {"return_token_ids": True}),
        ("sglang", {"return_token_ids": None}, {"return_token_ids": True}),
        ("llama.cpp", {"verbose": "llamacpp/nonstream_verbose.resp.txt"}, {"return_tokens": True, "verbose": True}),
    ],
)
async def test_a_server_that_knows_the_best_way_is_asked_once_and_then_always_so(
    kind: ServerKind, knows: dict[str, str | None], asked: dict[str, object]
) -> None:
    bodies = {
        name: plain() | {"choices": [SGLANG_IDS]} if file is None else recorded(file) for name, file in knows.items()
    }
    endpoint, posts, body = await probed(kind, bodies, refuses=True)
    assert endpoint.supports_ids
    assert [post["max_tokens"] for post in posts] == [4]
    assert asked.items() <= body.items()


@pytest.mark.parametrize("refuses", [True, False])
async def test_an_older_server_falls_back_to_logprobs(refuses: bool) -> None:
    for kind in ("vllm", "sglang", "llama.cpp"):
        endpoint, posts, body = await probed(kind, {"logprobs": plain(logprobs=True)}, refuses=refuses)
        assert (endpoint.supports_ids, endpoint.supports_logprobs) == (False, True), kind
        assert len(posts) == 2
        assert "return_token_ids" not in body


async def test_a_server_that_knows_neither_gives_text_only() -> None:
    endpoint, posts, _ = await probed("sglang", {}, refuses=False)
    assert (endpoint.supports_ids, endpoint.supports_logprobs) == (False, False)
    assert len(posts) == 3


async def test_another_model_than_the_servers_is_named_before_anything_is_asked() -> None:
    with pytest.raises(
        ConfigError, match=r"\[model\] id: found m, expected a name that the vllm server .* Qwen/Qwen3-8B"
    ):
        await probed("vllm", {}, refuses=False, models=["Qwen/Qwen3-8B"])


async def test_a_server_that_refuses_even_a_plain_request_is_told_in_its_words() -> None:
    async def act(exchange: Exchange) -> None:
        body = b'{"data": []}' if exchange.head.startswith("GET") else b'{"error": {"message": "no such model"}}'
        await exchange.reply(200 if exchange.head.startswith("GET") else 404, body)

    async with scripted_server(act) as server:
        client = OpenAiCompatible("vllm", server.base_url, model_id="m", key="", timeouts=TIMEOUTS, typed_price=None)
        with pytest.raises(ProviderFailure, match="no such model"):
            await client.endpoints()
        await client.aclose()
