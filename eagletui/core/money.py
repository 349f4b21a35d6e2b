"""Money rules: picodollars, upper bounds, holds and the verdict on one more request.

All amounts are integers of 1e-12 USD, because per-token prices below one nanodollar exist and sums of floats drift.
Costs round half to even, bounds round up, so that a bound is never below what it bounds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from math import ceil
from typing import Final, Literal, NamedTuple

PICO: Final = 10**12
"""Picodollars in a dollar."""

MAX_PICO: Final = 2**63 - 1
"""The largest amount the ledger can hold: about 9.2 million dollars."""

PROMPT_MARGIN_PER_MILLE: Final = 1050
PROMPT_EXTRA_TOKENS: Final = 64
"""Provider templates differ from ours by a few tokens; 5 % and these cover every one seen."""

Verdict = Literal["admit", "stop_at", "cap", "wait"]

_EXACT: Final = Context(prec=60)
_UP: Final = Context(prec=60, rounding=ROUND_CEILING)


@dataclass(frozen=True, slots=True)
class Price:
    """What an endpoint asks, at its highest applicable rate."""

    prompt_usd_per_token: Decimal
    """USD per prompt token, zero or more."""
    completion_usd_per_token: Decimal
    """USD per completion token, reasoning included."""
    request_usd: Decimal
    """USD per request, on top of the tokens."""

    def __post_init__(self) -> None:
        """Refuse prices that would make a bound meaningless: negative, infinite or not a number."""
        for value in (self.prompt_usd_per_token, self.completion_usd_per_token, self.request_usd):
            if not value.is_finite() or value < 0:
                raise ValueError(f"a price must be a finite amount of zero or more, found {value}")

    @property
    def is_free(self) -> bool:
        """True for local servers, which run the same code path at price 0."""
        return not (self.prompt_usd_per_token or self.completion_usd_per_token or self.request_usd)


FREE: Final = Price(Decimal(0), Decimal(0), Decimal(0))
"""The price of a local server."""


class Overcharge(NamedTuple):
    """A request that cost more than its bound. Times are Unix seconds."""

    hold_pico: int
    cost_pico: int
    held_at: float
    settled_at: float


@dataclass(frozen=True, slots=True)
class Books:
    """Where the money of a run stands. All amounts in picodollars."""

    settled_pico: int
    """Known costs of settled attempts."""
    held_pico: int
    """Bounds of attempts that are held or sent."""
    unsettled_pico: int
    """Bounds of attempts that ended without a known cost; they count until the cost is known."""
    unattributed_pico: int
    """Costs the provider's key shows and no attempt explains."""
    stop_at_pico: int
    """Admission ends once this much is spent."""
    cap_pico: int
    """Never committed beyond, worst case included."""

    @property
    def spent_pico(self) -> int:
        """Money that is gone: settled and unattributed."""
        return self.settled_pico + self.unattributed_pico

    @property
    def open_pico(self) -> int:
        """Money that may still be asked for: every open hold."""
        return self.held_pico + self.unsettled_pico

    @property
    def committed_pico(self) -> int:
        """The worst case as of now; admission keeps it at or below the cap."""
        return self.spent_pico + self.open_pico


def usd_to_pico(usd: Decimal | str) -> int:
    """Convert an amount of dollars to picodollars, half to even.

    Args:
        usd: a decimal number or its text; floats are refused by type because they have lost digits already.

    Raises:
        ValueError: not a finite number, or beyond what the ledger can hold.
    """
    return _to_pico(_decimal(usd), ROUND_HALF_EVEN)


def bound_pico(usd: Decimal | str) -> int:
    """Convert an upper bound in dollars to picodollars, rounded up."""
    return _to_pico(_decimal(usd), ROUND_CEILING)


def prompt_bound(counted: int, per_mille: int = PROMPT_MARGIN_PER_MILLE) -> int:
    """Return the most prompt tokens a provider may bill for a prompt that we count.

    Args:
        counted: length of the rendered prompt in our tokenizer.
        per_mille: the margin; at least the largest ratio of billed to counted seen at the endpoint.
    """
    return -(-counted * per_mille // 1000) + PROMPT_EXTRA_TOKENS


def hold_bound(prompt_upper: int, max_tokens: int, price: Price) -> int:
    """Compute the most one request can cost, in picodollars, rounded up.

    Args:
        prompt_upper: upper count of prompt tokens.
        max_tokens: the completion limit sent with the request; reasoning counts inside it.
        price: the highest price among the endpoints that may answer.
    """
    if prompt_upper < 0 or max_tokens < 0:
        raise ValueError(f"token counts must be zero or more, found {prompt_upper} and {max_tokens}")
    prompt_usd = _UP.multiply(Decimal(prompt_upper), price.prompt_usd_per_token)
    completion_usd = _UP.multiply(Decimal(max_tokens), price.completion_usd_per_token)
    return bound_pico(_UP.add(_UP.add(prompt_usd, completion_usd), price.request_usd))


def hold_elsewhere(hold_pico: int, held_at: Price, price: Price) -> int | None:
    """Return a bound of the same request at another price, from its bound at one price.

    Args:
        hold_pico: what was reserved for the request.
        held_at: the price it was reserved at.
        price: the other price.

    Returns:
        Picodollars, rounded up; None where one part was free and is not there: nothing tells how much of it there is.
    """
    ratios = [Fraction(0)]
    for old, new in (
        (held_at.prompt_usd_per_token, price.prompt_usd_per_token),
        (held_at.completion_usd_per_token, price.completion_usd_per_token),
        (held_at.request_usd, price.request_usd),
    ):
        if new and not old:
            return None
        if new:
            ratios.append(Fraction(new) / Fraction(old))
    return ceil(hold_pico * max(ratios))


def overcharge_per_mille(overcharges: Sequence[Overcharge]) -> int:
    """Return by how much an endpoint's bounds must be scaled, per mille, so that none of these passes its own.

    Args:
        overcharges: of one endpoint. A hold made after an overcharge was known was scaled already; its own excess comes
            on top of that.
    """
    steps: list[tuple[float, int]] = [(0.0, 1000)]
    for overcharge in sorted(overcharges, key=lambda it: it.settled_at):
        if overcharge.hold_pico <= 0:
            continue
        scaled_by = max(per_mille for known_at, per_mille in steps if known_at <= overcharge.held_at)
        per_mille = -(-overcharge.cost_pico * scaled_by // overcharge.hold_pico)
        steps.append((overcharge.settled_at, max(steps[-1][1], per_mille)))
    return steps[-1][1]


def estimate_pico(prompt_tokens: int, completion_tokens: int, requests: int, price: Price) -> int:
    """Return what tokens cost at a price, half to even, in picodollars.

    Args:
        prompt_tokens: as billed, over all requests.
        completion_tokens: the same.
        requests: how many.
        price: of an endpoint.
    """
    tokens = _EXACT.multiply(Decimal(prompt_tokens), price.prompt_usd_per_token)
    tokens = _EXACT.add(tokens, _EXACT.multiply(Decimal(completion_tokens), price.completion_usd_per_token))
    return usd_to_pico(_EXACT.add(tokens, _EXACT.multiply(Decimal(requests), price.request_usd)))


def admit(books: Books, bound_pico: int) -> Verdict:
    """Say whether one more request may be sent.

    Args:
        books: the money as of now.
        bound_pico: the most this request can cost.

    Returns:
        `admit`: the worst case stays within the cap and less than stop-at is spent. A request that costs nothing is
            admitted while nothing is spent, whatever the limits: a free server needs no budget.
        `stop_at`: stop-at is reached; nothing more is admitted.
        `cap`: this request would not fit even if every open hold came back free. It is named too where stop-at is
            reached but the cap was lowered below it: to raise stop-at alone would not help.
        `wait`: it would fit once enough open holds (held, sent or unsettled) are released.
    """
    if books.spent_pico >= books.stop_at_pico and (books.spent_pico or bound_pico):
        return "cap" if books.cap_pico < books.stop_at_pico else "stop_at"
    if books.committed_pico + bound_pico <= books.cap_pico:
        return "admit"
    if books.spent_pico + bound_pico > books.cap_pico:
        return "cap"
    return "wait"


def format_usd(pico: int, places: int = 4) -> str:
    """Show an amount for people, as `$0.0214`; negative as `-$0.0214`."""
    usd = _EXACT.divide(Decimal(abs(pico)), Decimal(PICO)).quantize(Decimal(1).scaleb(-places), ROUND_HALF_EVEN)
    sign = "-" if pico < 0 and usd else ""
    return f"{sign}${usd:,f}"


def limit_text(pico: int) -> str:
    """Write an amount that a person gave, to its last digit and with cents at least: `$12.50`, `$0.0001`."""
    _, _, fraction = pico_to_usd_string(pico).partition(".")
    return format_usd(pico, max(2, len(fraction)))


def cap_text(books: Books) -> str:
    """Say what the cap is, and that nothing is sent under it where less is allowed than is gone or promised already."""
    cap = f"The cap is {limit_text(books.cap_pico)}"
    if books.cap_pico < books.spent_pico:
        return f"{cap}, below the {limit_text(books.spent_pico)} already settled: nothing new is sent."
    if books.cap_pico < books.committed_pico:
        committed = f"below the {limit_text(books.committed_pico)} that requests under way may come to"
        return f"{cap}, {committed}: nothing new is sent until enough of them are settled."
    return f"{cap}."


def stop_at_text(books: Books) -> str:
    """Say what stop-at is, and that nothing is sent under it where as much is settled already."""
    stop_at = f"Stop-at is {limit_text(books.stop_at_pico)}"
    if books.spent_pico and books.spent_pico >= books.stop_at_pico:
        return f"{stop_at}, and {limit_text(books.spent_pico)} is settled already: nothing new is sent."
    return f"{stop_at}: nothing more is asked once as much is settled."


def other_limit_text(books: Books, changed: Literal["cap", "stop_at"]) -> str:
    """Say how the limit which was not changed stands to the other: in the way too, or not reached; empty where neither.

    Args:
        books: after the change.
        changed: the limit that somebody changed.
    """
    if changed == "cap" and books.spent_pico and books.stop_at_pico <= books.spent_pico < books.cap_pico:
        also = f"Stop-at, {limit_text(books.stop_at_pico)}, is reached as well"
        return f" {also}: to go on, raise it too with `eagletui ctl RUN stop-at USD`."
    if changed == "cap" and books.spent_pico < books.cap_pico < books.stop_at_pico:
        return f" It comes before stop-at, {limit_text(books.stop_at_pico)}."
    if changed == "stop_at" and books.cap_pico < books.stop_at_pico:
        first = f"The cap, {limit_text(books.cap_pico)}, comes first"
        return f" {first}: raise it too with `eagletui ctl RUN cap USD`."
    return ""


def pico_to_usd_string(pico: int) -> str:
    """Give the exact amount as a plain decimal string without exponent or trailing zeros, for JSON."""
    whole, fraction = divmod(abs(pico), PICO)
    digits = f"{fraction:012d}".rstrip("0")
    sign = "-" if pico < 0 else ""
    return f"{sign}{whole}.{digits}" if digits else f"{sign}{whole}"


def _decimal(usd: Decimal | str) -> Decimal:
    if isinstance(usd, Decimal):
        value = usd
    elif not isinstance(usd, str):
        raise TypeError(f"expected a decimal number or its text, found {type(usd).__name__}")
    else:
        try:
            value = Decimal(usd)
        except ArithmeticError:
            raise ValueError(f"expected an amount in dollars such as 12.50, found {usd!r}") from None
    if not value.is_finite():
        raise ValueError(f"expected a finite amount in dollars, found {usd}")
    return value


def _to_pico(usd: Decimal, rounding: str) -> int:
    if usd.adjusted() > 18:
        raise ValueError(f"{usd} USD is more than the ledger can hold")
    pico = int(_EXACT.multiply(usd, Decimal(PICO)).to_integral_value(rounding))
    if abs(pico) > MAX_PICO:
        raise ValueError(f"{usd} USD is more than the ledger can hold")
    return pico
