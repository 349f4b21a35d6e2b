"""Fault scripts: every kind over a real loopback connection, who is hit, and what the books say."""

import json
import time
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import httpx
import pytest

from eagletui.core.errors import InputError
from eagletui.embedded.asks import Ask, AskMessage
from eagletui.embedded.faults import FaultScript, load_faults
from eagletui.embedded.market import ENDPOINTS, MODEL_SLUG
from tests.embedded.client import AUTH, ask, post, request_body, stream
from tests.provider_fixture import ProviderHandle, StartProvider

STREAM, TEXT = "embedded/stream", "embedded/text"


def fault(kind: str, params: str = "{}", match: str = "{ nth = 1 }") -> str:
    return f'[[fault]]\nkind = "{kind}"\nmatch = {match}\nparams = {params}\n'


def only_row(provider: ProviderHandle) -> Any:
    rows = provider.books()["rows"]
    assert len(rows) == 1
    return rows[0]


@pytest.mark.parametrize(
    ("kind", "status", "error_type"),
    [
        ("http_402", 402, "payment_required"),
        ("http_403", 403, "forbidden"),
        ("http_429", 429, "rate_limit_exceeded"),
        ("http_500", 500, "server"),
        ("http_502", 502, "provider_unavailable"),
        ("http_503", 503, "provider_overloaded"),
    ],
)
def test_a_refusal_has_its_status_and_is_not_billed(
    start_provider: StartProvider, kind: str, status: int, error_type: str
) -> None:
    provider = start_provider(fault(kind))
    response = post(provider, request_body(provider))
    assert response.status_code == status
    assert response.json()["error"]["metadata"]["error_type"] == error_type
    assert provider.books()["rows"] == []
    ask(provider, only=TEXT)
    assert len(provider.books()["rows"]) == 1


@pytest.mark.parametrize("kind", ["http_429", "http_503"])
def test_limits_and_overload_say_when_to_come_back(start_provider: StartProvider, kind: str) -> None:
    provider = start_provider(fault(kind, "{ retry_after_s = 7 }"))
    assert post(provider, request_body(provider)).headers["Retry-After"] == "7"


@pytest.mark.parametrize("kind", ["http_500", "http_502", "html_from_edge", "error_in_200"])
def test_a_failure_after_generation_is_billed_and_not_delivered(start_provider: StartProvider, kind: str) -> None:
    provider = start_provider(fault(kind, "{ billed = true }"))
    post(provider, request_body(provider))
    row = only_row(provider)
    assert row["cost_pico"] > 0
    assert row["delivered"] is False


def test_mid_stream_error_sends_some_tokens_bills_them_and_keeps_status_200(start_provider: StartProvider) -> None:
    provider = start_provider(fault("mid_stream_error", "{ after_tokens = 4 }"))
    got = stream(provider, seed=1, only=STREAM)
    assert got.events[-1]["error"]["code"] == 502
    assert got.events[-1]["choices"][0]["finish_reason"] == "error"
    assert "data: [DONE]" not in got.lines
    assert got.texts
    row = only_row(provider)
    assert row["completion_tokens"] == 4
    assert row["finish_reason"] == "error"
    assert row["delivered"] is False


def test_mid_stream_error_of_a_body_is_an_error_beside_the_text(start_provider: StartProvider) -> None:
    provider = start_provider(fault("mid_stream_error", "{ billed = false }"))
    reply = ask(provider, only=TEXT)
    assert reply["choices"][0]["finish_reason"] == "error"
    assert reply["error"]["code"] == 502
    assert only_row(provider)["cost_pico"] == 0


@pytest.mark.parametrize("billed", [False, True])
def test_disconnect_before_headers_leaves_the_client_without_an_id(start_provider: StartProvider, billed: bool) -> None:
    provider = start_provider(fault("disconnect_before_headers", json.dumps({"billed": billed}).replace(":", " =")))
    with pytest.raises(httpx.RemoteProtocolError):
        post(provider, request_body(provider))
    rows = provider.books()["rows"]
    assert [row["delivered"] for row in rows] == ([False] if billed else [])


@pytest.mark.parametrize("streamed", [False, True])
def test_disconnect_after_headers_breaks_the_body_of_a_billed_answer(
    start_provider: StartProvider, streamed: bool
) -> None:
    provider = start_provider(fault("disconnect_after_headers"))
    body = request_body(provider, stream=streamed, only=STREAM)
    received: list[bytes] = []
    with httpx.stream("POST", f"{provider.api_url}/chat/completions", json=body, headers=AUTH) as response:
        parts = response.iter_raw()
        with pytest.raises(httpx.RemoteProtocolError):
            received.extend(parts)
    assert response.status_code == 200
    assert received
    row = only_row(provider)
    assert row["id"] == response.headers["X-Generation-Id"]
    assert row["cost_pico"] > 0
    assert row["delivered"] is False


def test_a_slow_answer_is_whole_and_late(start_provider: StartProvider) -> None:
    provider = start_provider(fault("slow", "{ first_token_s = 0.3, tokens_per_s = 1000.0 }"))
    began = time.monotonic()
    got = stream(provider, seed=1, only=STREAM)
    assert time.monotonic() - began >= 0.3 + got.usage["completion_tokens"] / 1000 * 0.9
    assert only_row(provider)["delivered"] is True


@pytest.mark.parametrize("streamed", [False, True])
def test_empty_choices_bring_usage_and_no_choice(start_provider: StartProvider, streamed: bool) -> None:
    provider = start_provider(fault("empty_choices"))
    if streamed:
        events = stream(provider, only=STREAM).events
        assert [event["choices"] for event in events] == [[]]
    else:
        assert ask(provider)["choices"] == []
    assert only_row(provider)["cost_pico"] == 0


def test_an_edge_page_is_html_without_a_generation_id(start_provider: StartProvider) -> None:
    provider = start_provider(fault("html_from_edge", "{ status = 524 }"))
    response = post(provider, request_body(provider))
    assert response.status_code == 524
    assert response.headers["Content-Type"].startswith("text/html")
    assert "X-Generation-Id" not in response.headers


@pytest.mark.parametrize("streamed", [False, True])
def test_an_error_in_a_200_has_no_choices(start_provider: StartProvider, streamed: bool) -> None:
    provider = start_provider(fault("error_in_200", "{ code = 503 }"))
    reply = stream(provider, only=STREAM).events[0] if streamed else ask(provider)
    assert reply["error"]["code"] == 503
    assert not reply.get("choices")


@pytest.mark.parametrize("streamed", [False, True])
def test_an_answer_without_usage_is_whole_and_billed(start_provider: StartProvider, streamed: bool) -> None:
    provider = start_provider(fault("no_usage"))
    if streamed:
        got = stream(provider, only=STREAM)
        assert all("usage" not in event for event in got.events)
        assert got.texts
        assert "data: [DONE]" in got.lines
    else:
        reply = ask(provider)
        assert "usage" not in reply
        assert reply["choices"][0]["finish_reason"]
    row = only_row(provider)
    assert row["cost_pico"] > 0
    assert row["delivered"] is True


@pytest.mark.parametrize("streamed", [False, True])
def test_a_cut_answer_without_generation_id_is_billed(start_provider: StartProvider, streamed: bool) -> None:
    provider = start_provider(fault("no_generation_id"))
    body = request_body(provider, stream=streamed, only=STREAM)
    received: list[bytes] = []
    with httpx.stream("POST", f"{provider.api_url}/chat/completions", json=body, headers=AUTH) as response:
        parts = response.iter_raw()
        with pytest.raises(httpx.RemoteProtocolError):
            received.extend(parts)
    assert "X-Generation-Id" not in response.headers
    row = only_row(provider)
    assert row["id"].encode() not in b"".join(received)
    assert row["cost_pico"] > 0


def test_a_late_bill_may_be_that_of_a_request_without_an_answer(start_provider: StartProvider) -> None:
    provider = start_provider(fault("late_bill", "{ after_s = 0.1, named = false }"))
    with pytest.raises(httpx.RemoteProtocolError):
        post(provider, request_body(provider))
    assert provider.books()["rows"] == []
    deadline = time.monotonic() + 10
    while not provider.books()["rows"]:
        assert time.monotonic() < deadline
    assert only_row(provider)["cost_pico"] > 0


def test_a_late_bill_appears_in_the_books_after_the_failure(start_provider: StartProvider) -> None:
    provider = start_provider(fault("late_bill", "{ after_s = 0.3 }"))
    response = post(provider, request_body(provider))
    generation = f"/api/v1/generation?id={response.headers['X-Generation-Id']}"
    assert response.status_code == 500
    assert provider.books()["rows"] == []
    with pytest.raises(HTTPError, match="404"):
        provider.get(generation)
    deadline = time.monotonic() + 10
    while not provider.books()["rows"]:
        assert time.monotonic() < deadline
    row = only_row(provider)
    assert row["cost_pico"] > 0
    assert row["delivered"] is False
    assert provider.get(generation)["data"]["id"] == row["id"]


def test_an_overbilled_answer_costs_a_multiple_of_the_published_price(start_provider: StartProvider) -> None:
    provider = start_provider(fault("overbilled", "{ factor = 7 }"))
    for _ in range(2):
        ask(provider, only=TEXT, seed=1)
    first, second = provider.books()["rows"]
    assert first["cost_pico"] == 7 * second["cost_pico"]


def test_a_change_of_price_takes_effect_after_so_many_requests(start_provider: StartProvider) -> None:
    provider = start_provider('[[price]]\nafter = 2\nfactor = "1.5"\nendpoint = "embedded/text"\n')
    path = f"/api/v1/models/{MODEL_SLUG}/endpoints"
    before = {row["tag"]: row["pricing"]["completion"] for row in provider.get(path)["data"]["endpoints"]}
    for _ in range(3):
        ask(provider, only=TEXT, seed=1)
    after = {row["tag"]: row["pricing"]["completion"] for row in provider.get(path)["data"]["endpoints"]}
    assert (before[TEXT], after[TEXT]) == ("0.000002", "0.000003")
    assert before[STREAM] == after[STREAM]
    costs = [row["cost_pico"] for row in provider.books()["rows"]]
    assert costs[0] == costs[1]
    assert costs[2] * 2 == costs[0] * 3


def script(text: str, tmp_path: Path) -> FaultScript:
    path = tmp_path / "faults.toml"
    path.write_text(text, encoding="utf-8")
    return load_faults(path)


def hits(faults: FaultScript, requests: int, prompt: str = "hi", endpoint: int = 0) -> list[int]:
    """Numbers, from 1, of the requests that some fault took."""
    request = Ask(model=MODEL_SLUG, messages=(AskMessage("user", prompt),))
    return [number + 1 for number in range(requests) if faults.pick(request, ENDPOINTS[endpoint]) is not None]


@pytest.mark.parametrize(
    ("match", "expected"),
    [("{ nth = 3 }", [3]), ("{ every = 4 }", [4, 8]), ("{}", [*range(1, 10)]), ("{ every = 2, nth = 6 }", [6])],
)
def test_requests_are_chosen_by_number(tmp_path: Path, match: str, expected: list[int]) -> None:
    assert hits(script(fault("http_500", match=match), tmp_path), 9) == expected


def test_times_bounds_how_often_a_fault_fires(tmp_path: Path) -> None:
    assert hits(script(fault("http_500", match="{ every = 2 }") + "times = 2\n", tmp_path), 9) == [2, 4]


def test_probability_takes_the_same_requests_in_every_run(tmp_path: Path) -> None:
    text = fault("http_500", match="{ probability = 0.25, seed = 3 }")
    first = hits(script(text, tmp_path), 400)
    assert first == hits(script(text, tmp_path), 400)
    assert 60 <= len(first) <= 140
    assert first != hits(script(text.replace("seed = 3", "seed = 4"), tmp_path), 400)


def test_only_requests_that_pass_the_filters_are_counted(tmp_path: Path) -> None:
    faults = script(
        fault("http_500", match='{ nth = 2, prompt_contains = "cat", endpoint = "embedded/text" }'), tmp_path
    )
    assert hits(faults, 3, "a dog", endpoint=2) == []
    assert hits(faults, 3, "a cat", endpoint=0) == []
    assert hits(faults, 3, "a cat", endpoint=2) == [2]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('[[fault]]\nkind = "http_501"\n', r"faults\.toml:1: field kind: found 'http_501', expected 'http_50"),
        (
            '\n[[fault]]\nkind = "slow"\nparams = { first_tokens_s = 1 }\n',
            r":2: field params.first_tokens_s: .*'first_token_s'",
        ),
        ('[[fault]]\nkind = "slow"\nparams = { first_token_s = "x" }\n', "found 'x', expected a value such as 5.0"),
        ('[[fault]]\nkind = "slow"\nmatch = { nht = 1 }\n', "unknown field `nht`"),
        ('[[fault]]\nkind = "slow"\nmatch = { nth = 0 }\n', ">= 1"),
        ("[fault\n", "not a fault script"),
        ('[[price]]\nafter = 1\nfactor = "-2"\n', "price.factor"),
    ],
)
def test_a_wrong_script_names_file_line_and_field(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(InputError, match=named):
        script(text, tmp_path)


def test_the_example_script_is_valid() -> None:
    example = Path(__file__).parents[2] / "configs" / "faults.toml"
    assert len(load_faults(example).faults) == 11
