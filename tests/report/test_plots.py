"""Plots: lengths that are in proportion to what they stand for."""

import pytest

from eagletui.report.plots import Bar, Level, Line, Share, bars_plot, lines_plot, shares_plot, ticks


@pytest.mark.parametrize(
    ("top", "expected"),
    [
        (0, [0, 1]),
        (1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (0.05, [0, 0.01, 0.02, 0.03, 0.04, 0.05]),
        (7, [0, 2, 4, 6, 8]),
        (3_284, [0, 1000, 2000, 3000, 4000]),
        (12, [0, 2.5, 5, 7.5, 10, 12.5]),
    ],
)
def test_axes_have_round_numbers_from_zero_to_at_least_the_top(top: float, expected: list[float]) -> None:
    assert ticks(top) == pytest.approx(expected)


def test_counts_have_whole_numbers_on_their_axis() -> None:
    assert ticks(1, least_step=1) == [0, 1]
    assert ticks(3, least_step=1) == [0, 1, 2, 3]


def test_bars_are_as_high_as_their_values() -> None:
    plot = bars_plot("label", "x", "y", [Bar("a", 10), Bar("b", 5), Bar("c", 0)], "red")
    assert plot is not None
    high, half, none = (float(bar.get("height", "")) for bar in plot.iter("rect"))
    assert half == pytest.approx(high / 2)
    assert none == 0


def test_shares_fill_the_whole_in_proportion() -> None:
    plot = shares_plot("label", [Share("a", 3, "red"), Share("b", 0, "blue"), Share("c", 1, "green")])
    assert plot is not None
    first, second = (float(bar.get("width", "")) for bar in plot.iter("rect"))
    assert first == pytest.approx(3 * second)
    assert first + second == pytest.approx(640)


def test_a_gap_in_a_line_stays_open_and_a_level_is_named() -> None:
    line = Line((((0, 0), (1, 2)), ((3, 2), (4, 4))), "blue")
    plot = lines_plot("label", "x", "y", [line], [Level(3, "cap")])
    assert plot is not None
    assert len(list(plot.iter("path"))) == 2
    assert "cap" in [text.text for text in plot.iter("text")]


def test_names_of_levels_close_to_each_other_or_to_the_edge_do_not_cover_each_other() -> None:
    line = Line((((0, 0), (1, 2)),), "blue")
    plot = lines_plot("label", "x", "y", [line], [Level(9.8, "stop-at"), Level(10, "cap")])
    assert plot is not None
    (cap,) = [float(text.get("y", "")) for text in plot.iter("text") if text.text == "cap"]
    (stop_at,) = [float(text.get("y", "")) for text in plot.iter("text") if text.text == "stop-at"]
    assert cap >= 11, "it is inside of the picture"
    assert abs(cap - stop_at) >= 11, "the height of their letters"


def test_nothing_to_draw_is_no_plot() -> None:
    assert lines_plot("label", "x", "y", [Line((), "blue")]) is None
    assert bars_plot("label", "x", "y", [], "red") is None
    assert shares_plot("label", [Share("a", 0, "red")]) is None
