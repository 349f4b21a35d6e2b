"""What is billed for a request that is broken off."""

import pytest

from eagletui.core.broken_off import FULL, STOPS, BrokenOff, broken_off_words, cancel_bill


@pytest.mark.parametrize(
    ("provider", "streamed", "bill"),
    [
        ("DeepInfra", True, "stops"),
        ("xAI", True, "stops"),
        ("DeepInfra", False, "full"),
        ("Groq", True, "full"),
        ("Nebius AI Studio", True, "full"),
        ("Google AI Studio", True, "full"),
        ("Inference.net", True, "full"),
        ("Moonshot AI", True, "unknown"),
        ("Parasail", True, "unknown"),
        ("", True, "unknown"),
    ],
)
def test_what_a_cancelled_request_costs_is_known_by_its_provider(provider: str, streamed: bool, bill: str) -> None:
    assert cancel_bill(BrokenOff("tag", provider, streamed)) == bill


def test_no_provider_is_on_both_lists() -> None:
    assert not [name for name in STOPS if name.startswith(tuple(FULL))]
    assert not [name for name in FULL if name.startswith(tuple(STOPS))]


def test_people_are_told_who_bills_in_full() -> None:
    broken = [BrokenOff("groq", "Groq", True), BrokenOff("deepinfra/fp4", "DeepInfra", True)]
    broken += [BrokenOff("moonshotai", "Moonshot AI", True)] * 2
    assert broken_off_words(broken) == "Billed in full all the same: groq (1). Perhaps billed in full: moonshotai (2)."
    assert broken_off_words(broken[1:2]) == ""
