"""The OpenRouter-shaped API, over a real loopback server with recorded answers."""

from decimal import Decimal
from typing import Any

import httpx
import pytest
from tokenizers import Tokenizer

from eagletui.embedded.books import BookRow, open_books
from eagletui.embedded.data import tokenizer_dir
from tests.embedded.client import AUTH, ask, post, request_body, stream
from tests.provider_fixture import ProviderHandle, StartProvider

STREAM, LOGPROBS, TEXT = "embedded/stream", "embedded/logprobs", "embedded/text"


def test_the_same_seed_gives_the_same_answer_on_all_three_endpoints(replay_provider: ProviderHandle) -> None:
    streamed = stream(replay_provider, seed=11, only=STREAM)
    with_logprobs = ask(replay_provider, seed=11, only=LOGPROBS, logprobs=True)
    plain = ask(replay_provider, seed=11, only=TEXT)
    content = plain["choices"][0]["message"]["content"]
    assert "".join(streamed.texts) == content
    assert with_logprobs["choices"][0]["message"]["content"] == content
    assert plain["provider"] == "Embedded Text"
    assert plain["choices"][0]["logprobs"] is None


def test_a_stream_ends_with_finish_then_usage_without_choices_then_done(replay_provider: ProviderHandle) -> None:
    got = stream(replay_provider, only=STREAM)
    assert got.lines[0] == ": OPENROUTER PROCESSING"
    assert [line for line in got.lines if line][-1] == "data: [DONE]"
    finish, last = got.events[-2:]
    assert finish["choices"][0]["finish_reason"] in ("stop", "length")
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] > 0
    assert {event["id"] for event in got.events} == {got.generation_id}


def test_logprobs_have_one_entry_a_token_with_that_tokens_own_bytes(replay_provider: ProviderHandle) -> None:
    for seed in range(40):
        reply = ask(replay_provider, seed=seed, only=LOGPROBS, logprobs=True)
        choice = reply["choices"][0]
        entries = choice["logprobs"]["content"]
        assert len(entries) == reply["usage"]["completion_tokens"]
        if choice["finish_reason"] == "stop":
            assert entries.pop()["token"] == "<|im_end|>"
        text = b"".join(bytes(entry["bytes"]) for entry in entries).decode("utf-8", "replace")
        content = choice["message"]["content"]
        assert content in (text, text.removesuffix("\ufffd"))


def test_streamed_logprobs_are_those_of_the_whole_reply(replay_provider: ProviderHandle) -> None:
    whole = ask(replay_provider, seed=3, only=LOGPROBS, logprobs=True)["choices"][0]["logprobs"]["content"]
    got = stream(replay_provider, seed=3, only=LOGPROBS, logprobs=True)
    parts = [choice["logprobs"] for event in got.events for choice in event["choices"]]
    assert [entry for part in parts if part for entry in part["content"]] == whole


def test_the_books_hold_ids_that_decode_to_the_content(replay_provider: ProviderHandle) -> None:
    tokenizer = Tokenizer.from_file(str(tokenizer_dir() / "tokenizer.json"))
    replies = {reply["id"]: reply for reply in (ask(replay_provider, seed=seed, only=TEXT) for seed in range(20))}
    rows = replay_provider.books()["rows"]
    assert {row["id"] for row in rows} == set(replies)
    for row in rows:
        content = replies[row["id"]]["choices"][0]["message"]["content"]
        assert tokenizer.decode(row["output_ids"], skip_special_tokens=True).removesuffix("\ufffd") == content
        assert row["delivered"] is True
        assert row["completion_tokens"] == len(row["output_ids"])


def test_costs_are_exact_and_sum_to_the_key_and_the_books(replay_provider: ProviderHandle) -> None:
    costs = [stream(replay_provider, seed=n, only=STREAM).usage["cost"] for n in range(3)]
    replies = [ask(replay_provider, seed=n, only=LOGPROBS) for n in range(3)]
    for reply in replies:
        usage = reply["usage"]
        expected = usage["prompt_tokens"] * Decimal("0.00000075") + usage["completion_tokens"] * Decimal("0.0000030125")
        assert Decimal(usage["cost"]) == expected
    total = sum(costs, Decimal(0)) + sum((reply["usage"]["cost"] for reply in replies), Decimal(0))
    books = replay_provider.books()
    assert total * 10**12 == books["spent_pico"] == sum(row["cost_pico"] for row in books["rows"])
    key = httpx.get(f"{replay_provider.api_url}/key", headers=AUTH)
    assert f'"usage":{format(total.normalize(), "f")},' in key.text


def test_the_stop_token_is_billed_on_stop_and_absent_on_length(replay_provider: ProviderHandle) -> None:
    replies = [ask(replay_provider, seed=seed, only=TEXT) for seed in range(30)]
    rows = {row["id"]: row for row in replay_provider.books()["rows"]}
    reasons = set()
    for reply in replies:
        row = rows[reply["id"]]
        reasons.add(row["finish_reason"])
        assert (row["output_ids"][-1] == 2) == (row["finish_reason"] == "stop")
    assert reasons == {"stop", "length"}


def test_max_tokens_cuts_an_answer_with_finish_reason_length(replay_provider: ProviderHandle) -> None:
    reply = ask(replay_provider, seed=1, only=TEXT, max_tokens=3)
    assert reply["usage"]["completion_tokens"] == 3
    assert reply["choices"][0]["finish_reason"] == "length"


def test_a_prompt_asked_again_without_seed_gets_another_answer(replay_provider: ProviderHandle) -> None:
    contents = {ask(replay_provider, only=TEXT)["choices"][0]["message"]["content"] for _ in range(4)}
    assert len(contents) > 1


def test_prompt_tokens_are_those_of_the_rendered_conversation(replay_provider: ProviderHandle) -> None:
    # llama.cpp's own count for this conversation
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "yo "},
        {"role": "user", "content": [{"type": "text", "text": "🎉 x"}]},
    ]
    assert ask(replay_provider, only=TEXT, messages=messages)["usage"]["prompt_tokens"] == 35


def test_generation_tells_what_one_answer_cost(replay_provider: ProviderHandle) -> None:
    got = stream(replay_provider, only=STREAM)
    data = replay_provider.get(f"/api/v1/generation?id={got.generation_id}")["data"]
    assert data["native_tokens_completion"] == got.usage["completion_tokens"]
    assert Decimal(str(data["total_cost"])) == got.usage["cost"]
    assert data["provider_name"] == "Embedded Stream"
    missing = httpx.get(f"{replay_provider.api_url}/generation?id=gen-none", headers=AUTH)
    assert missing.status_code == 404


def test_models_and_endpoints_state_prices_as_strings(replay_provider: ProviderHandle) -> None:
    assert replay_provider.get("/api/v1/models")["data"][0]["id"] == replay_provider.model
    endpoints = replay_provider.get(f"/api/v1/models/{replay_provider.model}/endpoints")["data"]["endpoints"]
    assert [endpoint["tag"] for endpoint in endpoints] == [STREAM, LOGPROBS, TEXT]
    assert endpoints[1]["pricing"]["completion"] == "0.0000030125"
    assert ["logprobs" in endpoint["supported_parameters"] for endpoint in endpoints] == [False, True, False]
    assert [endpoint["supports_streaming"] for endpoint in endpoints] == [True, True, False]


@pytest.mark.parametrize(
    ("fields", "status", "error_type"),
    [
        ({"model": "openai/gpt-4o"}, 400, "model_not_found"),
        ({"messages": []}, 400, "invalid_request"),
        ({"messages": "hi"}, 400, "invalid_request"),
        ({"max_tokens": 0}, 400, "invalid_request"),
        ({"temperature": 3}, 400, "invalid_request"),
        ({"top_p": 0}, 400, "invalid_request"),
        ({"messages": [{"role": "user", "content": "word " * 2000}]}, 400, "context_length_exceeded"),
        ({"stream": True, "only": TEXT}, 404, "constraint_filtered"),
        ({"provider": {"max_price": {"completion": "0.5"}}}, 404, "constraint_filtered"),
        ({"provider": {"quantizations": ["fp8"]}}, 404, "constraint_filtered"),
    ],
)
def test_requests_that_cannot_be_served_are_refused_and_not_billed(
    replay_provider: ProviderHandle, fields: dict[str, Any], status: int, error_type: str
) -> None:
    response = post(replay_provider, request_body(replay_provider, **fields))
    assert response.status_code == status
    assert response.json()["error"]["metadata"]["error_type"] == error_type
    assert response.headers["X-Generation-Id"].startswith("gen-")
    assert replay_provider.books() == {"spent_pico": 0, "rows": []}
    if status == 404:
        assert response.json()["error"]["availability"]["retryable"] is False


def test_a_key_is_required(replay_provider: ProviderHandle) -> None:
    for headers in ({}, {"Authorization": "Bearer"}, {"Authorization": "Basic dGVzdA=="}):
        response = post(replay_provider, request_body(replay_provider), headers=headers)
        assert response.status_code == 401
    assert httpx.get(f"{replay_provider.api_url}/key").status_code == 401


def test_a_spent_key_is_refused_with_403(start_provider: StartProvider) -> None:
    provider = start_provider(key_limit_pico=1_000_000)
    ask(provider, only=TEXT)
    response = post(provider, request_body(provider))
    assert response.status_code == 403
    assert "Key limit exceeded" in response.json()["error"]["message"]
    key = provider.get("/api/v1/key")["data"]
    assert key["limit"] == 1e-06
    assert key["limit_remaining"] == 0


def test_a_client_that_goes_away_is_billed_and_not_delivered(start_provider: StartProvider) -> None:
    provider = start_provider(tokens_per_s=200.0)
    body = request_body(provider, stream=True, seed=5, only=STREAM)
    with httpx.stream("POST", f"{provider.api_url}/chat/completions", json=body, headers=AUTH) as response:
        generation_id = response.headers["X-Generation-Id"]
        next(response.iter_lines())
    ask(provider, seed=6, only=TEXT)
    provider.stop()
    rows = {row.id: row for row in _books_on_disk(provider)}
    assert rows[generation_id].cost_pico > 0
    assert rows[generation_id].delivered is False
    assert sum(row.delivered for row in rows.values()) == 1


def _books_on_disk(provider: ProviderHandle) -> list[BookRow]:
    return list(open_books(provider.books_path).rows.values())
