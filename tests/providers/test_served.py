"""Who answered, held against who was asked."""

from dataclasses import replace
from decimal import Decimal

import pytest

from eagletui.core.money import Price
from eagletui.core.reply import Reply, Routed
from eagletui.engine.market import unlisted
from eagletui.providers.base import Endpoint, Stranger
from eagletui.providers.parse import parse_body, parse_stream
from eagletui.providers.served import stranger

ASKED = Endpoint(
    "deepinfra/fp8",
    "DeepInfra",
    Price(Decimal(0), Decimal(0), Decimal(0)),
    "fp8",
    None,
    supports_logprobs=False,
    supports_stream=True,
    model_names=("qwen/qwen3-235b-a22b-07-25",),
)
TAGS = {"deepinfra": {"deepinfra/fp8"}, "novita": {"novita/bf16"}, "google": {"google-vertex", "google-vertex/eu"}}
MODEL = "qwen/qwen3-235b-a22b-2507"


def reply(provider: str | None, model: str | None = MODEL, routed: Routed | None = None) -> Reply:
    return Reply("g", model, provider, "a", None, None, (), "stop", "stop", None, routed=routed)


@pytest.mark.parametrize("provider", ["DeepInfra", "deepinfra", "Deep Infra", None])
@pytest.mark.parametrize("model", [MODEL, "qwen/qwen3-235b-a22b-07-25", "Qwen3-235B-A22B-2507", f"{MODEL}:free", None])
def test_no_spelling_of_the_asked_one_is_a_stranger(provider: str | None, model: str | None) -> None:
    assert stranger(reply(provider, model), ASKED, MODEL, TAGS) is None


@pytest.mark.parametrize(
    ("asked", "served"),
    [
        ("anthropic/claude-sonnet-4.5", "anthropic/claude-4.5-sonnet-20250929"),
        ("openai/gpt-4o-mini", "openai/gpt-4o-mini-2024-07-18"),
        ("moonshotai/kimi-k2.5", "moonshotai/kimi-k2.5-0127"),
    ],
)
def test_a_dated_name_of_a_model_is_the_model(asked: str, served: str) -> None:
    assert stranger(reply("DeepInfra", served), replace(ASKED, model_names=()), asked, TAGS) is None


@pytest.mark.parametrize(
    ("asked", "served"),
    [
        ("mistralai/mistral-large-2411", "mistralai/mistral-large-2407"),
        ("qwen/qwen3-235b-a22b-2507", "qwen/qwen3-235b-a22b"),
        ("moonshotai/kimi-k2.5", "moonshotai/kimi-k2"),
        ("qwen/qwen3-32b", "qwen/qwen3-8b"),
    ],
)
def test_another_model_is_a_stranger_that_is_filed_apart(asked: str, served: str) -> None:
    found = stranger(reply("DeepInfra", served), replace(ASKED, model_names=()), asked, TAGS)
    assert found == Stranger(f"deepinfra/fp8 ({served})", "DeepInfra", is_other_model=True)


def test_another_endpoint_is_filed_under_its_tag_where_its_name_tells_it() -> None:
    assert stranger(reply("Novita"), ASKED, MODEL, TAGS) == Stranger("novita/bf16", "Novita", is_other_model=False)
    assert stranger(reply("Google"), ASKED, MODEL, TAGS) == Stranger("Google", "Google", is_other_model=False)
    assert stranger(reply("Nobody\x1b[1m"), ASKED, MODEL, TAGS) == Stranger("Nobody", "Nobody", is_other_model=False)


def test_a_slug_that_differs_from_the_name_is_no_stranger() -> None:
    asked = replace(ASKED, tag="google-vertex/eu", provider_name="Google")
    assert stranger(reply("Google"), asked, MODEL, TAGS) is None
    assert stranger(reply("Google Vertex"), asked, MODEL, TAGS) is None


def test_an_endpoint_that_is_no_longer_on_offer_has_no_name_to_hold_against() -> None:
    assert stranger(reply("Whoever"), replace(ASKED, tag="gone/x", provider_name=""), MODEL, {}) is None


def test_what_the_router_selected_counts_where_the_reply_names_nobody() -> None:
    body = (
        b'{"id":"g","model":"m","choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"}],'
        b'"openrouter_metadata":{"requested":"m","attempt":2,"attempts":[{"provider":"DeepInfra","status":503},'
        b'{"provider":"Novita","status":200}],"endpoints":{"total":2,"available":['
        b'{"provider":"DeepInfra","model":"m","selected":false},{"provider":"Novita","model":"m","selected":true}]}}}'
    )
    whole = parse_body(body)
    assert whole.routed == Routed("Novita", "m")
    assert stranger(whole, ASKED, "m", TAGS) == Stranger("novita/bf16", "Novita", is_other_model=False)
    first = b'data: {"id":"g","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}\n\n'
    last = b'data: {"choices":[{"index":0,"delta":{"content":"b"}}],"openrouter_metadata":{"endpoints":{"available":['
    last += b'{"provider":"Novita","model":"m","selected":true}]}}}\n\n'
    assert parse_stream(first + last).routed == Routed("Novita", "m")


@pytest.mark.parametrize("metadata", ["null", "7", "[]", '{"endpoints":[]}', '{"endpoints":{"available":[1,{}]}}'])
def test_metadata_of_another_shape_says_nothing(metadata: str) -> None:
    body = f'{{"choices":[{{"message":{{"content":"a"}}}}],"openrouter_metadata":{metadata}}}'
    assert parse_body(body.encode()).routed is None


def test_an_endpoint_that_is_on_offer_no_longer_is_no_stranger_by_a_name_of_the_model_that_it_alone_gave() -> None:
    assert stranger(reply("DeepInfra", "qwen/qwen3-235b-instruct"), unlisted("deepinfra/fp8"), MODEL, TAGS) is None
