"""Three prices of the same answers: the provider's bill, its tokens at the listed price, ours, and why they differ."""

from dataclasses import dataclass

from eagletui.core.money import Price, estimate_pico


@dataclass(frozen=True, slots=True)
class EndpointBill:
    """Sums over one endpoint's answers and attempts. Money in picodollars."""

    endpoint: str
    samples: int
    """Answers with a known cost."""
    cost_pico: int
    """What the provider billed for them."""
    billed_prompt: int
    billed_output: int
    """Our count where the provider sent none; so for prompts."""
    prompt: int
    """Counted; the bill's figure where we have none."""
    output: int
    offset: int
    """Output tokens of named constants and of tails that a cut hides."""
    uncounted: int
    """Answers without ids of our own."""
    unanswered: int
    """Settled attempts that brought no answer."""
    unanswered_pico: int
    price: Price | None
    """The last one seen; None where none is known."""
    prices: int
    """How many different ones were seen."""


@dataclass(frozen=True, slots=True)
class Priced:
    """The three prices and what lies between the first and the last, part by part. The parts add up exactly."""

    provider_pico: int
    """Billed, attempts without an answer included."""
    ledger_pico: int
    """Billed tokens at the listed price."""
    counted_pico: int
    """Counted tokens at the listed price."""
    unanswered_pico: int
    other_prices_pico: int
    """Between bill and billed tokens: discounts for cached prompts, fees, a price that was another then."""
    prompt_tokens: int
    """Billed minus counted."""
    prompt_pico: int
    offset_tokens: int
    offset_pico: int
    drift_tokens: int
    """Billed minus counted minus named constants and hidden tails."""
    drift_pico: int

    @property
    def difference_pico(self) -> int:
        """What the provider billed beyond our count."""
        return self.provider_pico - self.counted_pico


def priced(bill: EndpointBill) -> Priced | None:
    """Work out the three prices; None where no price is known."""
    price = bill.price
    if price is None:
        return None
    ledger = estimate_pico(bill.billed_prompt, bill.billed_output, bill.samples, price)
    counted = estimate_pico(bill.prompt, bill.output, bill.samples, price)
    with_prompt = estimate_pico(bill.billed_prompt, bill.output, bill.samples, price)
    with_offset = estimate_pico(bill.billed_prompt, bill.output + bill.offset, bill.samples, price)
    return Priced(
        provider_pico=bill.cost_pico + bill.unanswered_pico,
        ledger_pico=ledger,
        counted_pico=counted,
        unanswered_pico=bill.unanswered_pico,
        other_prices_pico=bill.cost_pico - ledger,
        prompt_tokens=bill.billed_prompt - bill.prompt,
        prompt_pico=with_prompt - counted,
        offset_tokens=bill.offset,
        offset_pico=with_offset - with_prompt,
        drift_tokens=bill.billed_output - bill.output - bill.offset,
        drift_pico=ledger - with_offset,
    )


def together(bills: "list[Priced]") -> Priced:
    """Add endpoints up."""
    names = Priced.__dataclass_fields__
    return Priced(**{name: sum(getattr(one, name) for one in bills) for name in names})
