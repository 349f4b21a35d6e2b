"""What a model's reasoning allows, held against what a run asks."""

import pytest

from eagletui.core.key_preflight import Preflight
from eagletui.core.reasoning_rule import ReasoningRule, inspect_reasoning

RULE = ReasoningRule(("high", "low"), takes_tokens=False, mandatory=True)


def test_a_model_that_always_reasons_cannot_be_asked_not_to() -> None:
    found = inspect_reasoning("a/b", RULE, {"[sampling]": "off"})
    assert found.notes == []
    (refusal,) = found.refusals
    assert refusal.startswith('[sampling] reasoning = "off": a/b always reasons')
    assert "high, low" in refusal


@pytest.mark.parametrize(("value", "words"), [("4096", "takes no number of tokens"), ("medium", "knows high, low")])
def test_what_the_router_will_take_otherwise_is_said(value: str, words: str) -> None:
    found = inspect_reasoning("a/b", RULE, {"[sampling.d]": value})
    assert found.refusals == []
    assert [words in note and "[sampling.d]" in note for note in found.notes] == [True]


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        (None, "off"),
        (RULE, "high"),
        (RULE, "default"),
        (ReasoningRule(), "off"),
        (ReasoningRule(), "medium"),
        (ReasoningRule(), "77"),
    ],
)
def test_nothing_is_said_without_a_reason(rule: ReasoningRule | None, value: str) -> None:
    assert inspect_reasoning("a/b", rule, {"[sampling]": value}) == Preflight([], [])
