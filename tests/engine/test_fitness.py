"""Which endpoints a request fits, and what is said where it fits none."""

from dataclasses import replace
from decimal import Decimal

import pytest

from eagletui.core.money import Price
from eagletui.engine.fitness import Needs, fits, why_none
from eagletui.providers.base import Endpoint

ANY = Endpoint("a", "A", Price(Decimal(0), Decimal(0), Decimal(0)), None, None, False, True)
NEEDS = Needs(frozenset({"temperature", "tools"}), 900, 100)


@pytest.mark.parametrize(
    ("endpoint", "needs", "does_fit"),
    [
        (ANY, NEEDS, True),
        (replace(ANY, parameters=frozenset({"temperature", "tools", "seed"})), NEEDS, True),
        (replace(ANY, parameters=frozenset({"temperature"})), NEEDS, False),
        (replace(ANY, context_tokens=1000), NEEDS, True),
        (replace(ANY, context_tokens=999), NEEDS, False),
        (replace(ANY, max_prompt_tokens=900), NEEDS, True),
        (replace(ANY, max_prompt_tokens=899), NEEDS, False),
        (replace(ANY, max_prompt_tokens=1, context_tokens=1), replace(NEEDS, prompt_tokens=None), True),
    ],
)
def test_an_endpoint_is_asked_only_for_what_it_takes(endpoint: Endpoint, needs: Needs, does_fit: bool) -> None:
    assert fits(endpoint, needs) == does_fit


def test_the_reason_names_every_endpoint_and_its_limit() -> None:
    endpoints = {
        "b": replace(ANY, tag="b", context_tokens=999),
        "c": replace(ANY, tag="c", parameters=frozenset({"temperature"})),
    }
    assert why_none(endpoints, NEEDS) == (
        "No endpoint can be asked for this prompt of 900 tokens with max_tokens = 100: "
        "b has a context of 999 tokens; c takes no tools."
    )
