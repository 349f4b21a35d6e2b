"""How endpoints are asked, and their shares."""

from decimal import Decimal

import pytest

from eagletui.core.money import Price
from eagletui.engine.spread import Manner, Offer, manner, spread
from eagletui.providers.base import Endpoint

PRICE = Price(Decimal("0.000001"), Decimal("0.000002"), Decimal(0))


def endpoint(*, ids: bool = False, logprobs: bool = False, stream: bool = True) -> Endpoint:
    return Endpoint("t", "T", PRICE, None, None, supports_logprobs=logprobs, supports_stream=stream, supports_ids=ids)


def test_an_endpoint_is_asked_for_its_best_evidence() -> None:
    assert manner(endpoint(ids=True, logprobs=True), "auto") == Manner("ids", stream=False, logprobs=False)
    assert manner(endpoint(ids=True, logprobs=True), "always") == Manner("logprobs", stream=True, logprobs=True)
    assert manner(endpoint(logprobs=True), "auto") == Manner("logprobs", stream=True, logprobs=True)
    assert manner(endpoint(logprobs=True), "never") == Manner("logprobs", stream=False, logprobs=True)
    assert manner(endpoint(), "auto") == Manner("stream", stream=True, logprobs=False)
    assert manner(endpoint(), "never") == Manner("text", stream=False, logprobs=False)
    assert manner(endpoint(stream=False), "always") == Manner("text", stream=False, logprobs=False)


def test_inside_a_rung_the_cheaper_endpoint_gets_the_square_of_the_price_ratio() -> None:
    weights = spread([Offer("cheap", "stream", 1.0), Offer("dear", "stream", 2.0)])
    assert weights["cheap"] / weights["dear"] == pytest.approx(4.0)


def test_evidence_far_above_the_cheapest_price_loses_its_share() -> None:
    weights = spread([Offer("text", "text", 1.0), Offer("logprobs", "logprobs", 8.0)])
    assert weights["logprobs"] == pytest.approx(5.0 / 16)
    free = [Offer("text", "text", 0.0), Offer("logprobs", "logprobs", 0.0)]
    assert spread(free) == {"logprobs": 5.0, "text": 2.0}


def test_inside_a_rung_the_faster_endpoint_gets_more_and_evidence_keeps_its_share() -> None:
    slow, fast = Offer("slow", "stream", 1.0, 30.0), Offer("fast", "stream", 1.0, 90.0)
    text, other = Offer("text", "text", 1.0, 400.0), Offer("new", "stream", 1.0)
    weights = spread([slow, fast, text])
    assert weights["fast"] / weights["slow"] == pytest.approx((90 / 60) / (30 / 60))
    assert weights["fast"] + weights["slow"] == pytest.approx(5.0)
    assert weights["text"] == 2.0
    assert spread([slow, fast, other])["new"] == pytest.approx(5.0 / 3), "one without a speed counts as the mean"
    crawling = spread([Offer("slow", "stream", 1.0, 1.0), fast._replace(tokens_per_s=999.0)])
    assert crawling["fast"] / crawling["slow"] == pytest.approx(2.0 / 0.5 * 0.999, rel=0.01), "within bounds"
