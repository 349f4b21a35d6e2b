"""The figures of the dashboard, worded: one function a panel, each figure with its unit.

Pure: a snapshot in, pieces of text out. What is not known is `-` or `unknown`, never 0.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from eagletui.core.fidelity import PROVED
from eagletui.core.lifecycle import FINISHED_RUNS
from eagletui.core.money import Books
from eagletui.ledger.filters import UNPROVED
from eagletui.ledger.reader import Attention
from eagletui.ledger.rows import TickRow
from eagletui.ledger.snapshot import Snapshot
from eagletui.tui import figures
from eagletui.tui.widgets.meter import Level
from eagletui.tui.widgets.safe_text import Piece

Pieces = tuple[Piece, ...]

CAP_PASSED: Final = "cap is below what is settled"
ALARM: Final = "bold $error"
_WARN_FROM: Final = 0.8
"""Of stop-at; the same share that notify speaks up at."""
_ENDED: Final = ("answered", "tokenized", "quarantined", "failed", "refused")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far generation is."""

    ended: int
    """Samples that will not be sent again by themselves."""
    samples: int
    eta_s: float | None
    """None while the pace is unknown."""

    @property
    def fraction(self) -> float | None:
        """Share that ended."""
        return figures.share(self.ended, self.samples)


def progress(snapshot: Snapshot) -> Progress:
    """Measure generation."""
    ended = sum(snapshot.states.get(state, 0) for state in _ENDED)
    left = snapshot.samples - ended
    pace = snapshot.rate.samples_per_s if snapshot.rate is not None else 0.0
    eta_s = left / pace if pace > 0 and left and snapshot.run.state == "running" else None
    return Progress(ended, snapshot.samples, eta_s)


def generation(snapshot: Snapshot) -> dict[str, Pieces]:
    """Figures of the generation panel."""
    made = progress(snapshot)
    states = snapshot.states
    eta = f"   ETA {figures.clock(made.eta_s)}" if snapshot.run.state == "running" else ""
    latency = snapshot.latency
    return {
        "samples": (
            (figures.count(made.ended), "bold"),
            f" / {figures.count(made.samples)}   {figures.percent(made.fraction)}{eta}",
        ),
        "in-flight": (
            f"{figures.count(snapshot.in_flight)} of {figures.count(snapshot.run.max_in_flight)}",
            f"     queued {figures.count(states['queued'])}",
            (f"     limited by {snapshot.limited_by}" if snapshot.limited_by else "", "$quiet"),
        ),
        "failed": (
            (figures.count(states["failed"]), "bold $error" if states["failed"] else ""),
            f"   retried {figures.count(snapshot.retries)}",
            "" if throttled(snapshot) and not states["refused"] else f"   refused {figures.count(states['refused'])}",
            f"   set aside {figures.count(states['quarantined'])}" if states["quarantined"] else "",
            (throttled(snapshot), "$warning"),
        ),
        "latency": (
            "unknown"
            if latency is None
            else f"p50 {figures.latency(latency.p50_s)}   p95 {figures.latency(latency.p95_s)}"
            f"   {figures.plural(latency.samples, 'answer')}",
        ),
        "tokens": (
            f"{figures.count(snapshot.tokens.output)} out   {figures.count(snapshot.tokens.prompt)} prompt, counted",
        ),
    }


def throttled(snapshot: Snapshot) -> str:
    """Say how often endpoints refused requests for their number in the last minute; '' where none did."""
    found = [endpoint.throttled for endpoint in snapshot.endpoints if endpoint.throttled is not None]
    return f"   HTTP 429 {figures.rate(sum(one.per_minute for one in found))} /min" if found else ""


def throughput(snapshot: Snapshot, unit: str = "") -> str:
    """Output tokens per second: now, or from its start to its end, pauses too, once it has ended.

    Args:
        snapshot: the run.
        unit: written behind the figure; '' where a label says it.
    """
    run = snapshot.run
    unit = f" {unit}" if unit else ""
    if run.state in FINISHED_RUNS and run.started_at is not None and run.finished_at is not None:
        seconds = max(1.0, run.finished_at - run.started_at)
        return f"{figures.rate(snapshot.tokens.output / seconds)}{unit} start to end"
    return f"-{unit}" if snapshot.rate is None else f"{figures.rate(snapshot.rate.output_tokens_per_s)}{unit}"


def token_rates(ticks: tuple[TickRow, ...]) -> list[float]:
    """Output tokens per second between ticks."""
    return [max(0.0, (b.output_tokens - a.output_tokens) / (b.at - a.at)) for a, b in pairwise(ticks)]


def spend_level(snapshot: Snapshot) -> Level:
    """The bar of the money: whole is the cap, the mark is stop-at."""
    books = snapshot.spend.books
    if not books.cap_pico:
        return Level(0.0)
    return Level(
        books.spent_pico / books.cap_pico, books.open_pico / books.cap_pico, books.stop_at_pico / books.cap_pico
    )


def spend(snapshot: Snapshot) -> dict[str, Pieces]:
    """Figures of the spend panel."""
    books = snapshot.spend.books
    of_stop = figures.percent(figures.share(books.spent_pico, books.stop_at_pico))
    return {
        "settled": (
            (figures.usd(books.settled_pico), "bold"),
            f"   {of_stop} of stop-at {figures.usd_short(books.stop_at_pico)}",
        ),
        "projected": projected_pieces(snapshot),
        "held": (
            figures.usd(books.held_pico),
            ("   unsettled ", "$quiet"),
            (figures.usd(books.unsettled_pico), "$warning" if books.unsettled_pico else ""),
            f"   unattributed {figures.usd(books.unattributed_pico)}" if books.unattributed_pico else "",
        ),
        "stop-at": (figures.usd_short(books.stop_at_pico), f"   {stop_at_forecast(snapshot)}"),
        "cap": cap_pieces(books, f"room {figures.usd(max(0, books.cap_pico - books.committed_pico))} for new holds"),
        "usable": (
            f"{figures.usd(snapshot.spend.per_million_usable_pico)} /1M tok",
            f"   wasted {figures.usd(snapshot.spend.wasted_pico)}",
        ),
    }


def is_cap_passed(books: Books) -> bool:
    """Tell whether the cap was lowered below money that is gone already."""
    return books.cap_pico < books.spent_pico


def cap_pieces(books: Books, remark: str) -> Pieces:
    """The cap and a remark on it, or the alarm that it is passed already."""
    cap = figures.usd_short(books.cap_pico)
    return ((f"{cap}   {CAP_PASSED}", ALARM),) if is_cap_passed(books) else (cap, f"   {remark}")


def cap_comes_first(snapshot: Snapshot) -> bool:
    """Tell whether the cap ends admission before stop-at can."""
    books = snapshot.spend.books
    return books.cap_pico - books.open_pico < books.stop_at_pico


def stop_at_forecast(snapshot: Snapshot) -> str:
    """Say when stop-at, or the cap where it comes first, is reached at the present pace, against the end of the run."""
    books = snapshot.spend.books
    first = "cap first, " if cap_comes_first(snapshot) else ""
    left = (books.cap_pico - books.open_pico if first else books.stop_at_pico) - books.spent_pico
    if left <= 0:
        return f"{'cap ' if first else ''}reached" if books.stop_at_pico else "0: nothing is bought"
    if snapshot.run.state in FINISHED_RUNS:
        return "not reached"
    if snapshot.run.state != "running" or snapshot.rate is None or snapshot.rate.pico_per_s <= 0:
        return f"{first}pace unknown"
    seconds = left / snapshot.rate.pico_per_s
    eta_s = progress(snapshot).eta_s
    if eta_s is not None and eta_s <= seconds:
        return "not reached before the end"
    return f"{first}in {figures.clock(seconds)}" + ("" if first else ", before the end")


def forecast_piece(snapshot: Snapshot) -> Piece:
    """The forecast with its limit named, or the alarm that the cap is passed already."""
    return (CAP_PASSED, ALARM) if is_cap_passed(snapshot.spend.books) else named_forecast(snapshot)


def named_forecast(snapshot: Snapshot) -> str:
    """The forecast where no label names the limit: `stop-at` stands before it unless it speaks of the cap."""
    forecast = stop_at_forecast(snapshot)
    return forecast if forecast.startswith("cap ") else f"stop-at {forecast}"


def projected_pico(snapshot: Snapshot) -> int | None:
    """What the whole run costs if every sample costs as those that have ended; None before the first."""
    if snapshot.run.state in FINISHED_RUNS:
        return snapshot.spend.books.spent_pico
    made = progress(snapshot)
    return snapshot.spend.books.spent_pico * made.samples // made.ended if made.ended else None


def projected_pieces(snapshot: Snapshot) -> Pieces:
    """Say what the run will cost in all, and on what that rests."""
    pico = projected_pico(snapshot)
    if pico is None:
        return ("unknown", ("   no sample has ended yet", "$quiet"))
    if snapshot.run.state in FINISHED_RUNS:
        return (figures.usd(pico), ("   is what the run cost", "$quiet"))
    if pico > snapshot.spend.books.stop_at_pico:
        return ((f"~{figures.usd(pico)}", "$warning"), "   in all: more than stop-at allows")
    return (
        f"~{figures.usd(pico)}",
        (f"   in all, as {figures.plural(progress(snapshot).ended, 'sample')} so far", "$quiet"),
    )


def in_all(snapshot: Snapshot) -> str:
    """The projected cost as the end of a sentence about what is settled."""
    if snapshot.run.state in FINISHED_RUNS:
        return " in all"
    pico = projected_pico(snapshot)
    return "" if pico is None else f", about {figures.usd(pico)} in all"


def spend_attention(snapshot: Snapshot) -> tuple[Attention, ...]:
    """Ask for a look at the money before stop-at ends the run."""
    books = snapshot.spend.books
    used = figures.share(books.spent_pico, books.stop_at_pico) or 0.0
    if used < _WARN_FROM or snapshot.run.state not in ("running", "draining"):
        return ()
    text = f"{figures.percent(used)} of stop-at {figures.usd_short(books.stop_at_pico)}, {stop_at_forecast(snapshot)}"
    return (Attention("spend", None, text, snapshot.at, "Edit stop-at and cap."),)


def burn(snapshot: Snapshot) -> str:
    """Dollars an hour."""
    if snapshot.rate is None:
        return "- /h"
    return f"{figures.usd(round(snapshot.rate.pico_per_s * 3_600))} /h"


def proved_level(snapshot: Snapshot) -> tuple[int, int]:
    """Samples with proved ids, and all with ids."""
    return sum(snapshot.evidence.get(kind, 0) for kind in PROVED), sum(snapshot.evidence.values())


def drift(snapshot: Snapshot) -> dict[str, Pieces]:
    """Figures of the drift and evidence panel."""
    exact, total = proved_level(snapshot)
    percent = snapshot.drift.percent
    known = percent is not None
    worst = max(
        (endpoint for endpoint in snapshot.endpoints if endpoint.drift_percent),
        key=lambda endpoint: abs(endpoint.drift_percent or 0),
        default=None,
    )
    offsets = [
        f"{endpoint.tag} {endpoint.row.offset_tokens:+d} ({endpoint.row.offset_cause})"
        for endpoint in snapshot.endpoints
        if endpoint.row is not None and endpoint.row.offset_tokens
    ]
    return {
        "drift": (
            (f"{figures.signed(snapshot.drift.tokens)} tok" if known else "unknown", "bold"),
            f"   {figures.signed_percent(None if percent is None else percent / 100)}" if known else "",
            f"   {figures.plural(snapshot.drift.samples, 'sample')}" if known else "",
        ),
        "worst": (
            "none" if worst is None else f"{worst.tag} {figures.signed_percent((worst.drift_percent or 0) / 100)}",
            f"   offset {', '.join(offsets)}" if offsets else "",
        ),
        "proved": (
            (figures.count(exact), "bold"),
            f" of {figures.count(total)} with ids    {figures.percent(figures.share(exact, total))}",
        ),
        "proof": evidence_pieces(snapshot, PROVED),
        "no-proof": evidence_pieces(snapshot, UNPROVED),
        "resegmented": (f"{figures.plural(snapshot.resegmented, 'sample')}, same bytes cut otherwise",),
    }


def evidence_pieces(snapshot: Snapshot, kinds: tuple[str, ...]) -> Pieces:
    """Samples by evidence, in the order of the kinds."""
    found = [(kind, snapshot.evidence[kind]) for kind in kinds if snapshot.evidence.get(kind)]
    pieces: list[Piece] = []
    for kind, samples in found:
        tone = "$error" if kind == "conflict" else "" if kind in PROVED else "$warning"
        pieces.append((f"{'  ' if pieces else ''}{kind} {samples:,}", tone))
    return tuple(pieces) or ("none",)


def compact_lines(snapshot: Snapshot, outlook: Pieces) -> dict[str, Pieces]:
    """The same in two lines a panel, for small terminals."""
    made = progress(snapshot)
    books = snapshot.spend.books
    exact, total = proved_level(snapshot)
    p95 = "-" if snapshot.latency is None else figures.latency(snapshot.latency.p95_s)
    failed = snapshot.states["failed"]
    drift_text = "unknown" if snapshot.drift.percent is None else f"{figures.signed(snapshot.drift.tokens)} tok"
    extract = snapshot.extract
    return {
        "generation-1": (
            (figures.count(made.ended), "bold"),
            f" / {figures.count(made.samples)}  {figures.percent(made.fraction)}",
            f"   ETA {figures.clock(made.eta_s)}" if snapshot.run.state == "running" else "",
        ),
        "generation-2": (
            f"{throughput(snapshot, 'tok/s')}   ",
            f"{figures.count(snapshot.in_flight)} in flight   " if snapshot.run.state not in FINISHED_RUNS else "",
            (f"{figures.count(failed)} failed", "bold $error" if failed else ""),
            f"   p95 {p95}",
            (throttled(snapshot), "$warning"),
        ),
        "spend-1": (
            (figures.usd(books.settled_pico), "bold"),
            f" settled{in_all(snapshot)}, {figures.percent(figures.share(books.spent_pico, books.stop_at_pico))}",
            f" of stop-at {figures.usd_short(books.stop_at_pico)}, cap {figures.usd_short(books.cap_pico)}",
        ),
        "spend-2": (
            f"held {figures.usd(books.held_pico)}   ",
            (f"unsettled {figures.usd(books.unsettled_pico)}   " if books.unsettled_pico else "", "$warning"),
            f"{figures.usd(snapshot.spend.per_million_usable_pico)} /1M usable",
            "   ",
            forecast_piece(snapshot),
        ),
        "drift-1": (
            f"drift {drift_text}   proved {figures.count(exact)} of {figures.count(total)}",
            f"   other ids {figures.count(snapshot.resegmented)}",
        ),
        "drift-2": (
            f"features {figures.count(extract.samples)}, {figures.size(extract.bytes)}",
            f"   waiting {figures.count(extract.pending)}   disk ",
            *outlook,
        ),
    }
