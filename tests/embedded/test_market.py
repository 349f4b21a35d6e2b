"""Which endpoints may answer, and what they charge."""

import random
from collections import Counter
from decimal import Decimal

import pytest

from eagletui.embedded.market import ENDPOINTS, MaxPrice, NoEndpointError, ProviderRules, choose, eligible

STREAM, LOGPROBS, TEXT = ENDPOINTS
NONE: frozenset[str] = frozenset()


def tags(rules: ProviderRules, *, stream: bool = False, parameters: frozenset[str] = NONE) -> list[str]:
    return [endpoint.tag for endpoint in eligible(rules, stream=stream, parameters=parameters)]


def test_a_base_slug_names_every_variant_and_a_full_slug_one() -> None:
    assert tags(ProviderRules(only=("embedded",))) == ["embedded/stream", "embedded/logprobs", "embedded/text"]
    assert tags(ProviderRules(only=("embedded/text",))) == ["embedded/text"]


def test_ignored_endpoints_do_not_answer() -> None:
    assert tags(ProviderRules(ignore=("embedded/text", "embedded/stream"))) == ["embedded/logprobs"]


def test_a_stream_never_goes_to_the_text_endpoint() -> None:
    assert tags(ProviderRules(), stream=True) == ["embedded/stream", "embedded/logprobs"]


def test_required_parameters_leave_only_endpoints_that_support_them() -> None:
    rules = ProviderRules(require_parameters=True)
    assert tags(rules, parameters=frozenset({"logprobs", "seed"})) == ["embedded/logprobs"]


def test_a_price_ceiling_in_dollars_per_million_is_inclusive() -> None:
    assert tags(ProviderRules(max_price=MaxPrice(completion=Decimal("2.5")))) == ["embedded/stream", "embedded/text"]
    assert tags(ProviderRules(max_price=MaxPrice(prompt=Decimal("0.5")))) == ["embedded/text"]


@pytest.mark.parametrize(
    ("rules", "stream", "named"),
    [
        (ProviderRules(only=("somebody",)), False, "provider.only"),
        (ProviderRules(ignore=("embedded",)), False, "provider.ignore"),
        (ProviderRules(quantizations=("fp8",)), False, "provider.quantizations"),
        (ProviderRules(max_price=MaxPrice(completion=Decimal("0.01"))), False, "provider.max_price"),
        (ProviderRules(only=("embedded/text",)), True, "stream"),
        (ProviderRules(order=("embedded/text",), allow_fallbacks=False), True, "provider.order"),
    ],
)
def test_rules_that_leave_no_endpoint_are_named(rules: ProviderRules, stream: bool, named: str) -> None:
    with pytest.raises(NoEndpointError, match=named):
        eligible(rules, stream=stream, parameters=NONE)


def test_order_is_a_preference_when_fallbacks_are_allowed() -> None:
    dice = random.Random(1)
    rules = ProviderRules(order=("embedded/text", "embedded/logprobs"))
    assert choose(eligible(rules, stream=False, parameters=NONE), rules, dice) is TEXT
    assert choose(eligible(rules, stream=True, parameters=NONE), rules, dice) is LOGPROBS


def test_sorting_by_price_takes_the_cheapest() -> None:
    assert choose(ENDPOINTS, ProviderRules(sort="price"), random.Random(1)) is TEXT


def test_unpinned_requests_spread_by_the_inverse_square_of_the_price() -> None:
    dice = random.Random(1)
    taken = Counter(choose(ENDPOINTS, ProviderRules(), dice).tag for _ in range(20_000))
    # 1/2.0^2 : 1/2.5^2 : 1/3.0125^2 = 0.25 : 0.16 : 0.1102
    assert taken["embedded/text"] / 20_000 == pytest.approx(0.25 / 0.5202, abs=0.02)
    assert taken["embedded/logprobs"] / 20_000 == pytest.approx(0.1102 / 0.5202, abs=0.02)


def test_cost_is_tokens_times_price_to_the_picodollar() -> None:
    # 44 x $0.75/M + 120 x $3.0125/M = $0.000033 + $0.0003615
    assert LOGPROBS.cost_pico(44, 120) == 394_500_000
