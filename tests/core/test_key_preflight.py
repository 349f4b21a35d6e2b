"""The provider's key against what a run may ask of it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from eagletui.core.key_preflight import CREDITS_PAGE, KEYS_PAGE, KeyFacts, RunNeeds, fee_note, inspect_key
from eagletui.core.money import PICO

NOW = datetime(2026, 9, 1, tzinfo=UTC)
NEEDS = RunNeeds("b3", cap_pico=150 * PICO, worst_case_pico=120 * PICO, largest_hold_pico=PICO // 20)


def key(limit: int | None = 150, remaining: int | None = 150, **changes: object) -> KeyFacts:
    amounts = [None if usd is None else usd * PICO for usd in (limit, remaining)]
    return KeyFacts(amounts[0], amounts[1], **changes)  # type: ignore[arg-type]


def test_a_key_with_the_caps_limit_and_enough_credits_needs_no_word() -> None:
    assert inspect_key(key(balance_pico=200 * PICO), NEEDS, NOW) == ([], [])


def test_an_unlimited_key_is_refused_with_the_page_the_command_and_the_override() -> None:
    refusals, notes = inspect_key(key(None, None), NEEDS, NOW)
    assert notes == []
    assert "Set a limit of $150.00 at " + KEYS_PAGE in refusals[0]
    assert '-d \'{"name": "b3", "limit": 150.00}\'' in refusals[0]
    assert "--unlimited-key" in refusals[0]


def test_a_server_of_another_address_is_named_in_place_of_pages_that_do_not_know_its_keys() -> None:
    elsewhere = replace(NEEDS, base_url="http://user:secret@127.0.0.1:8080/api/v1")
    for facts in (key(None, None), key(900, 900), key(150, 0), key(limit_reset="daily"), key(is_free_tier=True)):
        (sentence,) = [*inspect_key(facts, elsewhere, NOW).refusals, *inspect_key(facts, elsewhere, NOW).notes]
        assert "at the provider, 127.0.0.1:8080" in sentence
        assert "openrouter.ai" not in sentence
    own = replace(NEEDS, base_url="https://openrouter.ai/api/v1")
    assert KEYS_PAGE in inspect_key(key(900, 900), own, NOW).notes[0]


def test_amounts_below_a_cent_are_not_shown_as_nothing() -> None:
    small = RunNeeds("b3", cap_pico=PICO // 200)
    assert "Set its limit to $0.005 at" in inspect_key(key(), small, NOW).notes[0]
    assert "with --cap 0.001." in inspect_key(KeyFacts(PICO, PICO // 1000), small, NOW).notes[0]
    assert "may commit $0.005:" in inspect_key(key(150, 1, balance_pico=PICO), small, NOW).notes[0]


def test_an_unlimited_key_that_was_allowed_is_named() -> None:
    allowed = RunNeeds("b3", 150 * PICO, unlimited_key=True)
    refusals, notes = inspect_key(key(None, None), allowed, NOW)
    assert refusals == []
    assert "You allowed that: [spend] unlimited_key." in notes[0]


def test_a_limit_below_the_cap_names_both_ways_out() -> None:
    refusals, notes = inspect_key(key(150, 40), NEEDS, NOW)
    assert refusals == []
    assert "has $40.00 left of its limit, and the run may commit $120.0000" in notes[0]
    assert f"Raise the limit at {KEYS_PAGE}, or start with --cap 40.00." in notes[0]


def test_a_cap_that_is_advised_is_never_more_than_what_the_key_has_left() -> None:
    left = 36_397_200_000
    needs = RunNeeds("b3", 40_000_000_000, spent_pico=0)
    (note,) = inspect_key(KeyFacts(PICO, left), needs, NOW).notes
    assert "The key has $0.0363 left of its limit, and the run may commit $0.0400" in note
    assert note.endswith("or start with --cap 0.0363.")
    (spent,) = inspect_key(KeyFacts(PICO, left), RunNeeds("b3", PICO, spent_pico=PICO // 2), NOW).notes
    assert spent.endswith("or start with --cap 0.5363."), "the cap covers what is spent"
    (gone,) = inspect_key(KeyFacts(PICO, 0), needs, NOW).notes
    assert gone.endswith(f"Raise the limit at {KEYS_PAGE}.")


def test_what_the_run_spent_already_is_not_asked_of_the_key_again() -> None:
    resumed = RunNeeds("b3", 150 * PICO, spent_pico=120 * PICO)
    assert inspect_key(key(150, 30), resumed, NOW).notes == []


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (key(150, 0), f"raise its limit at {KEYS_PAGE}"),
        (key(balance_pico=0), f"buy credits at {CREDITS_PAGE}"),
        (key(expires_at=NOW - timedelta(hours=1)), "The key expired on 2026-08-31: make a new one"),
    ],
)
def test_a_key_that_cannot_pay_one_request_is_refused(facts: KeyFacts, words: str) -> None:
    refusals, _ = inspect_key(facts, NEEDS, NOW)
    assert len(refusals) == 1
    assert words in refusals[0]


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (key(balance_pico=100 * PICO), f"Buy $30.00 at {CREDITS_PAGE}"),
        (key(900, 900), "does not stand behind the cap. Set its limit to $150.00"),
        (key(limit_reset="daily"), "comes back daily"),
        (key(expires_at=NOW + timedelta(hours=3)), "expires in 3.0 hours"),
        (key(is_free_tier=True), "free tier"),
    ],
)
def test_what_weakens_the_second_wall_is_noted_with_what_to_do(facts: KeyFacts, words: str) -> None:
    refusals, notes = inspect_key(facts, NEEDS, NOW)
    assert refusals == []
    assert len(notes) == 1
    assert words in notes[0]


def test_the_fee_of_a_purchase_is_named_and_not_added() -> None:
    assert "5.5 %" in fee_note()
    assert "at least $0.80" in fee_note()
