"""Three prices of the same answers, and parts that add up to the last picodollar."""

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from eagletui.core.billing import EndpointBill, priced, together
from eagletui.core.money import Price

PRICE = Price(Decimal("0.0000002"), Decimal("0.0000006"), Decimal(0))


def bill(**changes: object) -> EndpointBill:
    figures: dict[str, object] = {
        "endpoint": "x",
        "samples": 10,
        "cost_pico": 10 * 200_000 + 90 * 600_000,
        "billed_prompt": 10,
        "billed_output": 90,
        "prompt": 10,
        "output": 90,
        "offset": 0,
        "uncounted": 0,
        "unanswered": 0,
        "unanswered_pico": 0,
        "price": PRICE,
        "prices": 1,
    }
    return EndpointBill(**{**figures, **changes})  # type: ignore[arg-type]


def test_an_honest_bill_has_three_equal_prices() -> None:
    found = priced(bill())
    assert found is not None
    # 10 x $0.20 and 90 x $0.60 a million.
    assert (found.provider_pico, found.ledger_pico, found.counted_pico) == (56_000_000,) * 3
    assert found.difference_pico == 0


def test_each_part_of_a_difference_is_named() -> None:
    # 3 prompt tokens too many, 10 end tokens not billed, 14 output tokens too many, half a cent off, one lost answer.
    figures = bill(
        billed_prompt=13,
        billed_output=94,
        offset=-10,
        cost_pico=13 * 200_000 + 94 * 600_000 - 5_000,
        unanswered=1,
        unanswered_pico=700,
    )
    found = priced(figures)
    assert found is not None
    assert (found.prompt_tokens, found.prompt_pico) == (3, 600_000)
    assert (found.offset_tokens, found.offset_pico) == (-10, -6_000_000)
    assert (found.drift_tokens, found.drift_pico) == (14, 8_400_000)
    assert (found.other_prices_pico, found.unanswered_pico) == (-5_000, 700)


def test_without_a_price_there_is_nothing_to_compare() -> None:
    assert priced(bill(price=None)) is None


tokens = st.integers(0, 10**9)


@given(tokens, tokens, tokens, tokens, st.integers(-1000, 1000), st.integers(0, 10**15), st.integers(0, 10**12))
def test_the_parts_always_add_up(
    billed_prompt: int, billed_output: int, prompt: int, output: int, offset: int, cost: int, unanswered: int
) -> None:
    price = Price(Decimal("0.000000123457"), Decimal("0.00000076543"), Decimal("0.0001"))
    found = priced(
        bill(
            billed_prompt=billed_prompt,
            billed_output=billed_output,
            prompt=prompt,
            output=output,
            offset=offset if output + offset >= 0 else 0,
            cost_pico=cost,
            unanswered_pico=unanswered,
            price=price,
        )
    )
    assert found is not None
    parts = found.unanswered_pico + found.other_prices_pico + found.prompt_pico + found.offset_pico + found.drift_pico
    assert parts == found.difference_pico == found.provider_pico - found.counted_pico
    assert together([found, found]).difference_pico == 2 * found.difference_pico
