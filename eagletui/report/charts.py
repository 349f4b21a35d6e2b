"""What the plots of a report draw, each with a sentence that says what it shows and in which unit.

Pure: a story in, figures of the page out.
"""

import itertools
from collections.abc import Sequence
from typing import Final
from xml.etree.ElementTree import Element

from eagletui.core.fidelity import EVIDENCE
from eagletui.core.lifecycle import FINISHED_RUNS
from eagletui.core.money import PICO, limit_text
from eagletui.ledger.rows import TickRow
from eagletui.report.markup import el
from eagletui.report.plots import Bar, Level, Line, Point, Share, bars_plot, lines_plot, shares_plot
from eagletui.report.story import Story
from eagletui.tui.figures import latency as latency_text
from eagletui.tui.figures import plural, round_width, usd

_GAP_TICKS: Final = 10
"""So many missing ticks mean that nobody worked."""
_RATE_POINTS: Final = 160
_HOURS_FROM_S: Final = 3 * 3_600
_MINUTES_FROM_S: Final = 3 * 60
_LATENCY_BINS: Final = 18
_DRIFT_BARS: Final = 13
_FARTHEST: Final = 1.5
"""A projection is drawn to at most so many times the time that has passed."""

EVIDENCE_CLASSES: Final[dict[str, str]] = dict(
    zip(EVIDENCE, ("green", "blue", "sky", "purple", "yellow", "grey", "red"), strict=True)
)


def throughput(story: Story) -> Element:
    """Output tokens a second over time."""
    unit, seconds = _unit(story)
    parts = []
    for run in _unbroken(story):
        step = max(1, len(run) // _RATE_POINTS)
        kept = [*run[:-1:step], run[-1]]
        points = [
            (_at(story, (one.at + two.at) / 2, seconds), (two.output_tokens - one.output_tokens) / (two.at - one.at))
            for one, two in itertools.pairwise(kept)
        ]
        if points:
            parts.append(tuple(points))
    worked = sum(run[-1].at - run[0].at for run in _unbroken(story))
    tokens = story.ticks[-1].output_tokens - story.ticks[0].output_tokens if story.ticks else 0
    mean = f", {tokens / worked:,.0f} on average while an engine ran" if worked else ""
    plot = lines_plot(
        "Output tokens per second over time", f"{unit} since the start", "tokens/s", [Line(tuple(parts), "blue")]
    )
    return _figure("Throughput", plot, f"Output tokens per second as counted by us{mean}. Gaps: no engine.")


def dollars(story: Story) -> Element:
    """Settled dollars over time against stop-at and cap, and where they go at the present pace."""
    unit, seconds = _unit(story)
    books = story.snapshot.spend.books
    points = tuple((_at(story, tick.at, seconds), tick.settled_pico / PICO) for tick in story.ticks)
    lines = [Line((points,), "orange")] if points else []
    is_same = books.cap_pico == books.stop_at_pico
    name = "stop-at and cap" if is_same else "stop-at"
    levels = [Level(books.stop_at_pico / PICO, f"{name} {limit_text(books.stop_at_pico)}")]
    above = "" if is_same else f" The cap of {limit_text(books.cap_pico)} lies above the plot."
    if not is_same and books.cap_pico <= 3 * books.stop_at_pico:
        levels.append(Level(books.cap_pico / PICO, f"cap {limit_text(books.cap_pico)}"))
        above = ""
    guess = ""
    rate, state = story.snapshot.rate, story.snapshot.run.state
    if points and rate is not None and rate.pico_per_s > 0 and state not in FINISHED_RUNS:
        crossing_s = max(0.0, (books.stop_at_pico - story.ticks[-1].settled_pico) / rate.pico_per_s)
        ahead_s = min(crossing_s, _FARTHEST * max(60.0, points[-1][0] * seconds))
        x, y = points[-1]
        end: Point = (x + ahead_s / seconds, y + rate.pico_per_s * ahead_s / PICO)
        lines.append(Line((((x, y), end),), "orange guess"))
        guess = f" At the pace of the last minute stop-at is reached in {crossing_s / 3600:,.1f} h (dashed)."
    plot = lines_plot("Dollars settled over time", f"{unit} since the start", "USD", lines, levels)
    said = f"US dollars settled, as the provider billed them: {usd(books.spent_pico)} so far.{guess}{above}"
    return _figure("Dollars", plot, said)


def latency(story: Story) -> Element:
    """How long the last answers took."""
    found, known = story.latencies_s, story.snapshot.latency
    if not found or known is None:
        return _figure("Latency", None, "No answer yet.")
    width = round_width(max(found), _LATENCY_BINS)
    counts = [0] * (int(max(found) / width) + 1)
    for value in found:
        counts[int(value / width)] += 1
    bars = [Bar(f"{index * width:g}", float(count)) for index, count in enumerate(counts)]
    plot = bars_plot("Answers by latency", f"seconds, bars of {width:g} s", "answers", bars, "green")
    said = (
        f"Seconds from the request to the end of the answer, over the last {plural(len(found), 'answer')};"
        f" p50 {latency_text(known.p50_s)}, p95 {latency_text(known.p95_s)} over the last {known.samples:,}."
    )
    return _figure("Latency", plot, said)


def drift(story: Story, endpoint: str) -> Element:
    """How far the bills of one endpoint are off, agreeing samples left out of the bars."""
    counts = story.drifts.get(endpoint, {})
    off = sum(counts.values())
    samples = next((one.samples for one in story.snapshot.endpoints if one.tag == endpoint), 0)
    common = sorted(sorted(counts, key=lambda tokens: -counts[tokens])[:_DRIFT_BARS])
    bars = [Bar(f"{tokens:+,}", float(counts[tokens])) for tokens in common]
    rest = off - sum(counts[tokens] for tokens in common)
    if rest:
        bars.append(Bar("other", float(rest)))
    plot = bars_plot(f"Samples by drift at {endpoint}", "tokens billed beyond those counted", "samples", bars, "red")
    said = f"{max(0, samples - off):,} of {plural(samples, 'answer')} agree with the bill; the bars are the others."
    return _figure(f"Drift at {endpoint}", plot, said if samples else "No answer yet.")


def evidence(name: str, by_kind: dict[str, int]) -> Element | None:
    """The evidence of some samples as one bar."""
    shares = [Share(kind, by_kind.get(kind, 0), EVIDENCE_CLASSES[kind]) for kind in EVIDENCE]
    return shares_plot(f"Evidence of {name}", shares)


def _figure(title: str, plot: Element | None, said: str) -> Element:
    nothing = el("p", "Nothing to draw.", class_="quiet") if plot is None else plot
    return el("figure", el("h3", title), nothing, el("figcaption", said))


def _unit(story: Story) -> tuple[str, float]:
    spanned_s = story.ticks[-1].at - story.ticks[0].at if story.ticks else 0
    if spanned_s > _HOURS_FROM_S:
        return "hours", 3_600.0
    return ("minutes", 60.0) if spanned_s > _MINUTES_FROM_S else ("seconds", 1.0)


def _at(story: Story, at: float, seconds: float) -> float:
    return (at - story.ticks[0].at) / seconds


def _unbroken(story: Story) -> list[Sequence[TickRow]]:
    """Cut the ticks where nobody worked."""
    parts: list[list[TickRow]] = []
    for tick in story.ticks:
        if parts and tick.at - parts[-1][-1].at <= _GAP_TICKS * story.tick_every_s:
            parts[-1].append(tick)
        else:
            parts.append([tick])
    return [part for part in parts if len(part) > 1]
