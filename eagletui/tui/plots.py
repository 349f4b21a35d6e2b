"""What the charts draw, from the rows of the ledger: throughput, dollars, drift and latency.

Pure: rows and a snapshot in, plots out, each with a sentence that says what it shows.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from eagletui.core.money import PICO
from eagletui.ledger.rows import TickRow
from eagletui.ledger.snapshot import EndpointFigures, Snapshot
from eagletui.tui import figures, panels
from eagletui.tui.widgets.chart import Limit, Line, Plot
from eagletui.tui.widgets.sparkline import bucket

_POINTS: Final = 400
_HOURS_FROM_S: Final = 3 * 3_600
_FARTHEST: Final = 1.5
"""A projection is drawn to at most so many times the time that has passed."""
_LATENCY_BINS: Final = 16
_DRIFT_BARS: Final = 12


class Drawn(NamedTuple):
    """A plot and what it shows, in a sentence."""

    plot: Plot
    sentence: str


def throughput(ticks: Sequence[TickRow], snapshot: Snapshot, start: float) -> Drawn:
    """Output tokens per second over time."""
    unit, seconds = _unit(ticks, start)
    rates = panels.token_rates(tuple(ticks))
    times = [(tick.at - start) / seconds for tick in ticks[1:]]
    line = Line(tuple(bucket(times, _POINTS)), tuple(bucket(rates, _POINTS)), "primary")
    return Drawn(Plot(f"{unit} since the start", (line,)), f"Output tokens per second: {panels.throughput(snapshot)}")


def dollars(ticks: Sequence[TickRow], snapshot: Snapshot, start: float) -> Drawn:
    """Settled dollars over time, with stop-at, cap, and where the first of them is crossed at this pace."""
    unit, seconds = _unit(ticks, start)
    books = snapshot.spend.books
    settled = [tick.settled_pico / PICO for tick in ticks]
    times = [(tick.at - start) / seconds for tick in ticks]
    lines = [Line(tuple(bucket(times, _POINTS)), tuple(bucket(settled, _POINTS)), "primary")]
    crossed_at = None
    if ticks:
        guess = _projection(snapshot, times[-1], settled[-1], seconds)
        lines += guess
        if guess and guess[0].ys[-1] >= _stops_at(snapshot) * (1 - 1e-9):
            crossed_at = guess[0].xs[-1]
    cap_first = panels.cap_comes_first(snapshot)
    stop_at = f"stop-at {figures.usd_short(books.stop_at_pico)}"
    limits = [Limit(books.stop_at_pico / PICO, stop_at, "warning", None if cap_first else crossed_at)]
    above = f"; the cap of {figures.usd_short(books.cap_pico)} is above"
    if books.cap_pico <= 2 * books.stop_at_pico:
        cap = f"cap {figures.usd_short(books.cap_pico)}"
        limits.append(Limit(books.cap_pico / PICO, cap, "error", crossed_at if cap_first else None))
        above = ""
    forecast = panels.named_forecast(snapshot)
    sentence = f"Dollars: {figures.usd(books.spent_pico)} settled, {forecast}, {panels.burn(snapshot)}"
    return Drawn(Plot(f"{unit} since the start{above}", tuple(lines), tuple(limits), y_unit="$"), sentence)


def _stops_at(snapshot: Snapshot) -> float:
    """Dollars settled at which nothing more is sent: stop-at, or the cap less what is held, where that is lower."""
    books = snapshot.spend.books
    if panels.cap_comes_first(snapshot):
        return (books.cap_pico - books.open_pico) / PICO
    return books.stop_at_pico / PICO


def _projection(snapshot: Snapshot, now: float, settled: float, seconds: float) -> list[Line]:
    if snapshot.run.state != "running" or snapshot.rate is None or snapshot.rate.pico_per_s <= 0:
        return []
    per_unit = snapshot.rate.pico_per_s / PICO * seconds
    crossing = (_stops_at(snapshot) - settled) / per_unit
    end_s = panels.progress(snapshot).eta_s
    ahead = min(crossing, _FARTHEST * max(now, 1.0), *([end_s / seconds] if end_s is not None else []))
    if ahead <= 0:
        return []
    steps = range(25)
    xs = tuple(now + ahead * step / steps[-1] for step in steps)
    ys = tuple(settled + per_unit * ahead * step / steps[-1] for step in steps)
    return [Line(xs, ys, "primary", is_guess=True)]


def drift(endpoint: EndpointFigures, counts: Mapping[int, int], number: int, endpoints: int) -> Drawn:
    """How far samples of one endpoint are off, those that agree left out of the bars.

    Args:
        endpoint: which.
        counts: samples by drift other than 0, of the last ones that drift.
        number: which of the endpoints it is, from 1.
        endpoints: how many there are.
    """
    off = sum(counts.values())
    shown = _shown_drifts(counts)
    rest = off - sum(counts.get(tokens, 0) for tokens in shown)
    names = [f"{tokens:+,}" for tokens in shown] + (["other"] if rest else [])
    values = [float(counts.get(tokens, 0)) for tokens in shown] + ([float(rest)] if rest else [])
    offset = endpoint.row.offset_tokens if endpoint.row is not None else None
    named = f", offset {offset:+}" if offset else ""
    agree = f"{endpoint.samples - off:,} of {endpoint.samples:,} agree with the bill{named}"
    sentence = f"Drift, {endpoint.tag}: {agree if endpoint.samples else 'no answer yet'}"
    label = f"samples by tokens too many; endpoint {number} of {endpoints}"
    return Drawn(Plot(label, names=tuple(names), values=tuple(values), tone="error"), sentence)


def _shown_drifts(counts: Mapping[int, int]) -> list[int]:
    """Choose the drifts that get a bar: all in between where they lie close, else the commonest."""
    if not counts:
        return []
    low, high = min(-2, *counts), max(2, *counts)
    if high - low <= _DRIFT_BARS:
        return [tokens for tokens in range(low, high + 1) if tokens]
    return sorted(sorted(counts, key=lambda tokens: -counts[tokens])[:_DRIFT_BARS])


def latency(seconds: Sequence[float], snapshot: Snapshot) -> Drawn:
    """How long the last answers took."""
    known = snapshot.latency
    if not seconds or known is None:
        return Drawn(Plot("seconds"), "Latency: no answer yet")
    top = max(seconds)
    width = figures.round_width(top, _LATENCY_BINS)
    bins = [0] * (int(top / width) + 1)
    for value in seconds:
        bins[int(value / width)] += 1
    names = tuple(f"{index * width:g}" for index in range(len(bins)))
    p50, p95 = figures.latency(known.p50_s), figures.latency(known.p95_s)
    sentence = f"Latency: p50 {p50}, p95 {p95}, last {figures.plural(len(seconds), 'answer')}"
    plot = Plot(
        f"answers by seconds, bars of {width:g} s",
        names=names,
        values=tuple(map(float, bins)),
        tone="success",
        is_histogram=True,
    )
    return Drawn(plot, sentence)


def _unit(ticks: Sequence[TickRow], start: float) -> tuple[str, float]:
    """Choose minutes or hours for the axis: its name and its seconds."""
    is_long = bool(ticks) and ticks[-1].at - start > _HOURS_FROM_S
    return ("hours", 3_600.0) if is_long else ("minutes", 60.0)
