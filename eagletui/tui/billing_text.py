"""The bill in words: three prices of the same answers, what lies between them, and what the key shows.

Pure: values in, pieces of text out.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from eagletui.core.billing import EndpointBill, Priced, priced, together
from eagletui.core.lifecycle import FINISHED_RUNS
from eagletui.core.money import format_usd
from eagletui.ledger.snapshot import Snapshot, ThrottleFigures
from eagletui.tui import figures
from eagletui.tui.widgets.safe_text import Piece

Line = tuple[Piece, ...]
_LABEL_CELLS = 13


def bill_lines(bill: EndpointBill | None, everything: Sequence[EndpointBill]) -> list[Line]:
    """Explain one endpoint's bill, and give the sum over all."""
    known = [found for found in map(priced, everything) if found is not None]
    lines: list[Line] = []
    own = None if bill is None else priced(bill)
    if bill is None:
        lines.append(("Nothing is billed by this endpoint yet.",))
    elif own is None:
        lines.append(
            (f"{figures.usd(bill.cost_pico)} billed, and no price of this endpoint is known to compare with.",)
        )
    else:
        lines.append(_three(own))
        lines += _parts(bill, own)
    if len(known) > 1:
        whole = together(known)
        lines.append((("all: ", "$quiet"), *_three(whole)))
    return lines


def throttle_lines(throttled: ThrottleFigures | None) -> list[Line]:
    """Say how often an endpoint refuses requests for their number; nothing where it did not lately."""
    if throttled is None:
        return []
    refused, asked = figures.count(throttled.refused), figures.plural(throttled.requests, "request")
    return [
        _pair(
            "HTTP 429",
            (f"{figures.rate(throttled.per_minute)} /min", "bold $warning"),
            f"   {refused} of {asked} of this run begun in the last {figures.age(throttled.window_s)},"
            f" the last {figures.age(throttled.last_age_s)} ago",
        )
    ]


def _three(own: Priced) -> Line:
    return (
        ("provider ", "$quiet"),
        (_usd(own.provider_pico), "bold"),
        ("   billed tok ", "$quiet"),
        (_usd(own.ledger_pico), "bold"),
        ("   counted tok ", "$quiet"),
        (_usd(own.counted_pico), "bold"),
    )


def _parts(bill: EndpointBill, own: Priced) -> list[Line]:
    """What lies between the bill and our count; parts of nothing are left out."""
    lines: list[Line] = [
        _pair("difference", (_signed_usd(own.difference_pico), "bold"), "   between the provider's bill and our count:")
    ]
    if own.unanswered_pico:
        attempts = figures.plural(bill.unanswered, "attempt")
        lines.append(_pair("  unanswered", _signed_usd(own.unanswered_pico), f"   {attempts} billed without an answer"))
    if own.other_prices_pico:
        several = f"; {bill.prices} prices were seen" if bill.prices > 1 else ""
        why = f"cached prompts, fees, or other prices than listed{several}"
        lines.append(_pair("  price", _signed_usd(own.other_prices_pico), f"   {why}"))
    for label, tokens, pico, why in (
        ("  prompt", own.prompt_tokens, own.prompt_pico, "prompt tokens billed beyond those counted"),
        ("  offset", own.offset_tokens, own.offset_pico, "named constants, and tails that a cut hides"),
        ("  drift", own.drift_tokens, own.drift_pico, "no cause is known"),
    ):
        if tokens:
            lines.append(_pair(label, _signed_usd(pico), f"   {figures.signed(tokens)} tok: {why}"))
    if bill.uncounted:
        lines.append(
            _pair("  no ids", "0", f"   {figures.plural(bill.uncounted, 'answer')} not counted: the bill is taken")
        )
    if len(lines) == 1:
        lines = [_pair("difference", ("none", "bold"), "   every token that was billed was counted")]
    return lines


def key_pieces(snapshot: Snapshot, now: float) -> Line:
    """Compare what the provider's key shows with the books."""
    start = snapshot.run.key_usage_at_start_pico
    if start is None:
        return ("no accounts at this provider", ("   nothing to check against", "$quiet"))
    seen = _seen(snapshot)
    if seen is None:
        ended = snapshot.run.state in FINISHED_RUNS
        return ("unknown", ("   the run ended before it was read" if ended else "   not read yet", "$quiet"))
    shown = int(seen["usage_pico"]) - start
    books = snapshot.spend.books
    excess = shown - books.committed_pico
    age = figures.age(max(0.0, now - float(seen["at"])))
    if excess > 0:
        return (figures.usd(shown), (f"   {figures.usd(excess)} more than committed", "bold $error"), f", {age} ago")
    agrees = "agrees with settled" if shown == books.spent_pico else "between settled and committed"
    if shown < books.spent_pico:
        agrees = f"{figures.usd(books.spent_pico - shown)} below settled; keys lag behind"
    return (figures.usd(shown), f"   {agrees}", (f", {age} ago", "$quiet"))


def _seen(snapshot: Snapshot) -> Mapping[str, Any] | None:
    engine = next((worker for worker in snapshot.workers if worker.role == "engine"), None)
    if engine is None:
        return None
    try:
        found = json.loads(engine.detail_json).get("key")
    except (ValueError, AttributeError):
        return None
    return found if isinstance(found, dict) and {"at", "usage_pico"} <= found.keys() else None


def _pair(label: str, *pieces: Piece) -> Line:
    return ((f"{label:<{_LABEL_CELLS}}", "$quiet"), *pieces)


def _signed_usd(pico: int) -> str:
    sign = "+" if pico > 0 else "-" if pico < 0 else ""
    return f"{sign}{_usd(abs(pico))}"


def _usd(pico: int) -> str:
    """Write dollars with six decimals: single tokens matter here."""
    return format_usd(pico, 6)
