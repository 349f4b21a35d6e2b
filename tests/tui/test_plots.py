"""What the charts show, from ticks and samples that were put there by hand."""

from dataclasses import replace
from pathlib import Path

import pytest

from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.rows import TickRow
from eagletui.ledger.snapshot import RateFigures, Snapshot
from eagletui.tui import plots
from eagletui.tui.widgets.chart import round_ticks, whole_ticks
from tests.tui.driving import NARROW, WIDE, opened
from tests.tui.factory import START, Built, long_run

USD = 10**12


def snapshot_of(built: Built) -> Snapshot:
    with LedgerReader(built.ledger, built.clock) as reader:
        return reader.snapshot()


def ticks(seconds: int, *, tokens: int, pico: int) -> list[TickRow]:
    return [TickRow(int(START) + at, at, at * tokens, at * pico, 0, 4, 0) for at in range(0, seconds, 10)]


def test_throughput_is_tokens_per_second_between_ticks(busy: Built) -> None:
    drawn = plots.throughput(ticks(300, tokens=50, pico=0), snapshot_of(busy), START)
    (line,) = drawn.plot.lines
    assert set(line.ys) == {50.0}
    assert (line.xs[0], line.xs[-1]) == (10 / 60, 290 / 60)
    assert drawn.plot.x_label == "minutes since the start"
    assert plots.throughput(ticks(20_000, tokens=1, pico=0), snapshot_of(busy), START).plot.x_label.startswith("hours")


def test_dollars_are_projected_to_where_stop_at_is_crossed(busy: Built) -> None:
    snapshot = replace(snapshot_of(busy), rate=RateFigures(0.0, 0.0, 0.0, USD / 10_000, 60))
    run = ticks(310, tokens=0, pico=USD // 10_000)
    drawn = plots.dollars(run, snapshot, START)
    settled, guess = drawn.plot.lines
    assert guess.is_guess
    # $0.03 settled after 300 s at $0.006 a minute: stop-at $0.09 is 600 s ahead, and one and a half times 300 s shown.
    assert guess.xs[-1] == 5 + 7.5
    assert guess.ys[-1] == pytest.approx(0.075)
    assert settled.ys[-1] == 0.03
    assert [limit.name for limit in drawn.plot.limits] == ["stop-at $0.09", "cap $0.15"]
    assert [limit.crossed_at for limit in drawn.plot.limits] == [None, None], "the crossing lies beyond what is drawn"
    later = plots.dollars(ticks(610, tokens=0, pico=USD // 10_000), snapshot, START).plot
    # $0.06 settled after 600 s: stop-at $0.09 is 300 s ahead.
    assert [limit.crossed_at for limit in later.limits] == [pytest.approx(15.0), None]
    still = plots.dollars(run, replace(snapshot, rate=None), START)
    assert len(still.plot.lines) == 1


def test_a_cap_below_stop_at_is_what_is_crossed_and_what_is_held_counts(busy: Built) -> None:
    with busy.writer() as writer:
        writer.set_cap(8 * USD // 100)
    snapshot = replace(snapshot_of(busy), rate=RateFigures(0.0, 0.0, 0.0, USD / 10_000, 60))
    drawn = plots.dollars(ticks(610, tokens=0, pico=USD // 10_000), snapshot, START)
    # $0.06 settled after 600 s at $0.0001 a second, $0.0016 held: the cap of $0.08 leaves 184 s.
    assert [limit.crossed_at for limit in drawn.plot.limits] == [None, pytest.approx(784 / 60)]
    # In the ledger $0.0043 are settled: the cap is 741 s ahead.
    assert "settled, cap first, in 00:12:21, $" in drawn.sentence


def test_a_cap_far_above_is_named_and_does_not_flatten_the_curve(busy: Built) -> None:
    with busy.writer() as writer:
        writer.set_cap(5 * USD)
    drawn = plots.dollars(ticks(100, tokens=0, pico=1), snapshot_of(busy), START)
    assert [limit.name for limit in drawn.plot.limits] == ["stop-at $0.09"]
    assert "the cap of $5.00 is above" in drawn.plot.x_label


def test_drift_bars_leave_out_what_agrees_and_name_the_endpoint(busy: Built) -> None:
    with LedgerReader(busy.ledger, busy.clock) as reader:
        counts = reader.drift_counts()
    assert counts == {"embedded/text": {3: 1}}
    endpoint = next(one for one in snapshot_of(busy).endpoints if one.tag == "embedded/text")
    drawn = plots.drift(endpoint, counts["embedded/text"], 3, 3)
    assert drawn.sentence == "Drift, embedded/text: 10 of 11 agree with the bill"
    assert drawn.plot.x_label == "samples by tokens too many; endpoint 3 of 3"
    assert drawn.plot.names == ("-2", "-1", "+1", "+2", "+3")
    assert drawn.plot.values == (0, 0, 0, 0, 1)
    many = {tokens: tokens for tokens in range(1, 30)}
    named = plots.drift(endpoint, many, 1, 1).plot
    assert (named.names[0], named.names[-1]) == ("+18", "other")
    assert sum(named.values) == sum(many.values())


def test_latency_bars_count_every_answer_in_round_steps(busy: Built) -> None:
    drawn = plots.latency([0.4, 0.6, 1.2, 7.9, 8.0], snapshot_of(busy))
    assert drawn.plot.names == ("0", "1", "2", "3", "4", "5", "6", "7", "8")
    assert drawn.plot.values == (2, 1, 0, 0, 0, 0, 0, 1, 1)
    assert "p50 8.4 s, p95 8.4 s" in drawn.sentence
    assert plots.latency([], snapshot_of(busy)).plot.is_empty


@pytest.mark.slow
async def test_charts_are_drawn_at_both_sizes_and_in_ascii(busy: Built) -> None:
    async with opened(busy, WIDE, ascii_=True, theme="eagle-mono") as screens:
        await screens.press("z")
        for title in ("Output tokens per second", "Dollars: $", "Drift, embedded/text: ", "Latency: p50"):
            assert title in screens.text
        assert "stop-at $0.09" in screens.text
        assert [char for char in screens.text if not char.isascii()] == []
        await screens.press("e")
        assert "Drift, embedded/logprobs: 11 of 11 agree" in screens.text
        assert "Every sample of this endpoint agrees with its bill." in screens.text
        await screens.resize(NARROW)
        assert "Latency: p50" not in screens.text
        await screens.press("tab")
        assert "Latency: p50 8.4 s, p95 8.4 s, last 37 answers" in screens.text
        assert "4 of 4" in screens.text
        await screens.press("tab")
        assert "Output tokens per second" in screens.text
        await screens.press("escape")
        assert "[1 Run]" in screens.lines[1]


def test_axes_have_round_figures() -> None:
    assert round_ticks(0, 0.1575, 5) == [0, 0.05, 0.1, 0.15]
    assert round_ticks(0.3, 4.2, 4) == [1, 2, 3, 4]
    assert round_ticks(0, 1_234, 5) == [0, 500, 1_000]
    assert round_ticks(3, 3, 5) == [3]
    assert whole_ticks(3) == [0, 1, 2, 3]
    assert whole_ticks(36) == [0, 10, 20, 30]
    assert whole_ticks(0) == [0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["eagle-light", "eagle-mono"])
async def test_the_projected_crossing_is_drawn_on_a_run_with_hours_behind_it(tmp_path: Path, theme: str) -> None:
    async with opened(long_run(tmp_path / "b3-magicoder"), NARROW, theme=theme) as screens:
        await screens.press("7", "tab")
        assert "Dollars: $0.0674 settled, stop-at in 00:5" in screens.text
        assert "×" in screens.line_with("stop-at $0.09 ──")
        assert "cap $0.15 ──" in screens.text
        for figure in ("$0.00", "$0.05", "$0.10", "$0.15"):
            assert figure in screens.text
