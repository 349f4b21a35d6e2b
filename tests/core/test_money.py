"""Money: exact conversions, bounds that never fall short, and the verdict on one more request."""

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagletui.core.money import (
    FREE,
    PICO,
    Books,
    Overcharge,
    Price,
    admit,
    bound_pico,
    format_usd,
    hold_bound,
    overcharge_per_mille,
    pico_to_usd_string,
    usd_to_pico,
)

prices = st.decimals(min_value=0, max_value=1, allow_nan=False, allow_infinity=False, places=18)
amounts = st.integers(min_value=0, max_value=10**15)


def test_dollars_become_picodollars_exactly() -> None:
    assert usd_to_pico("0.00000000265") == 2_650
    assert usd_to_pico(Decimal("86.40")) == 86_400_000_000_000
    assert usd_to_pico("-1e-12") == -1


def test_costs_round_half_to_even_and_bounds_round_up() -> None:
    assert usd_to_pico("0.0000000000005") == 0
    assert usd_to_pico("0.0000000000015") == 2
    assert bound_pico("0.0000000000001") == 1
    assert bound_pico("0.000000000001") == 1


@pytest.mark.parametrize("text", ["", "ten", "NaN", "Infinity", "1,50", "10000000"])
def test_an_amount_that_is_no_dollar_figure_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"dollars|ledger"):
        usd_to_pico(text)


def test_a_float_is_refused_because_its_digits_are_gone() -> None:
    with pytest.raises(TypeError, match="float"):
        usd_to_pico(0.1)  # type: ignore[arg-type]


def test_a_bound_adds_prompt_completion_and_request() -> None:
    price = Price(Decimal("0.0000006"), Decimal("0.000003"), Decimal("0.01"))
    # 1000 x $0.6/M + 16384 x $3/M + $0.01 = 0.0006 + 0.049152 + 0.01
    assert hold_bound(1000, 16_384, price) == 59_752_000_000


def test_a_local_server_costs_nothing() -> None:
    assert hold_bound(10_000, 10_000, FREE) == 0
    assert FREE.is_free


@pytest.mark.parametrize("bad", [Decimal("-0.1"), Decimal("NaN"), Decimal("Infinity")])
def test_a_price_that_bounds_nothing_is_refused(bad: Decimal) -> None:
    with pytest.raises(ValueError, match="price"):
        Price(bad, Decimal(0), Decimal(0))


@given(
    prompt=st.integers(0, 2**20),
    completion=st.integers(0, 2**20),
    prompt_price=prices,
    completion_price=prices,
    request=prices,
)
def test_a_bound_is_never_below_the_exact_sum_and_less_than_one_pico_above(
    prompt: int, completion: int, prompt_price: Decimal, completion_price: Decimal, request: Decimal
) -> None:
    exact = (prompt * Fraction(prompt_price) + completion * Fraction(completion_price) + Fraction(request)) * PICO
    if exact > 2**63 - 1:
        return
    assert 0 <= hold_bound(prompt, completion, Price(prompt_price, completion_price, request)) - exact < 1


@given(pico=st.integers(min_value=-(2**63) + 1, max_value=2**63 - 1))
def test_the_json_string_gives_back_every_picodollar(pico: int) -> None:
    text = pico_to_usd_string(pico)
    assert "e" not in text.lower()
    assert Fraction(text) * PICO == pico


@pytest.mark.parametrize(
    ("pico", "places", "text"),
    [
        (21_400_000_000, 4, "$0.0214"),
        (1_234_567_890_000_000, 2, "$1,234.57"),
        (0, 4, "$0.0000"),
        (-5_000_000_000, 4, "-$0.0050"),
        (-1, 4, "$0.0000"),
    ],
)
def test_amounts_are_shown_with_fixed_places(pico: int, places: int, text: str) -> None:
    assert format_usd(pico, places) == text


BOOKS = Books(settled_pico=40, held_pico=30, unsettled_pico=10, unattributed_pico=5, stop_at_pico=60, cap_pico=100)


def test_a_request_is_admitted_up_to_the_cap_and_not_one_pico_beyond() -> None:
    assert admit(BOOKS, 15) == "admit"
    assert admit(BOOKS, 16) == "wait"


def test_a_request_too_large_for_what_is_left_of_the_cap_stops_at_the_cap() -> None:
    assert admit(BOOKS, 55) == "wait"
    assert admit(BOOKS, 56) == "cap"


def test_nothing_is_admitted_once_stop_at_is_spent_not_even_a_free_request() -> None:
    assert admit(replace(BOOKS, settled_pico=54), 0) == "admit"
    assert admit(replace(BOOKS, settled_pico=55), 0) == "stop_at"


def test_a_free_server_needs_no_budget() -> None:
    nothing = Books(0, 0, 0, 0, stop_at_pico=0, cap_pico=0)
    assert admit(nothing, 0) == "admit"
    assert admit(nothing, 1) == "stop_at"
    assert admit(replace(nothing, settled_pico=1), 0) == "stop_at"


def test_money_that_no_attempt_explains_counts_as_spent() -> None:
    assert admit(replace(BOOKS, settled_pico=40, unattributed_pico=20), 0) == "stop_at"


@given(
    settled=amounts,
    held=amounts,
    unsettled=amounts,
    unattributed=amounts,
    stop_at=amounts,
    cap=amounts,
    bound=amounts,
)
def test_the_verdict_keeps_the_worst_case_within_the_cap(
    settled: int, held: int, unsettled: int, unattributed: int, stop_at: int, cap: int, bound: int
) -> None:
    verdict = admit(Books(settled, held, unsettled, unattributed, stop_at, cap), bound)
    total = settled + held + unsettled + unattributed + bound
    spent = settled + unattributed
    reached = spent >= stop_at and (spent > 0 or bound > 0)
    assert (verdict == "stop_at") == (reached and cap >= stop_at)
    assert verdict == "cap" or not (reached and cap < stop_at)
    if verdict == "admit":
        assert total <= cap
    if verdict == "wait":
        assert spent + bound <= cap < total
    if verdict == "cap":
        assert spent + bound > cap


def test_overcharges_scale_bounds_by_the_largest_ratio_to_the_bound_as_it_was_before() -> None:
    assert overcharge_per_mille([]) == 1000
    first = Overcharge(hold_pico=100, cost_pico=250, held_at=10.0, settled_at=20.0)
    meanwhile = Overcharge(hold_pico=100, cost_pico=150, held_at=15.0, settled_at=30.0)
    assert overcharge_per_mille([meanwhile, first]) == 2500
    scaled_already = Overcharge(hold_pico=250, cost_pico=300, held_at=25.0, settled_at=40.0)
    assert overcharge_per_mille([first, meanwhile, scaled_already]) == 3000
    assert overcharge_per_mille([Overcharge(3, 4, 1.0, 2.0)]) == 1334, "rounded up"
    assert overcharge_per_mille([Overcharge(0, 4, 1.0, 2.0)]) == 1000, "nothing scales a bound of zero"
