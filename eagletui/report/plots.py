"""Plots as SVG: lines over time, bars, and shares of a whole. Colours are classes of the style sheet."""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element

from eagletui.report.markup import el

Point = tuple[float, float]

_WIDTH: Final = 640
_HEIGHT: Final = 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 14, 42
_TICKS: Final = 5
_SHARE_HEIGHT: Final = 26
_NAME_HEIGHT: Final = 13
"""From one level's name to the next."""
_LEAST_BARS: Final = 6
"""Fewer bars leave room to the right, so that one alone does not fill the plot."""


class Line(NamedTuple):
    """A line; a gap in it is a part that ends."""

    parts: tuple[tuple[Point, ...], ...]
    class_: str
    """`blue`, `orange`, `green`, `red`; with `guess` for what is not measured."""


class Level(NamedTuple):
    """A horizontal line with a name."""

    value: float
    name: str


class Bar(NamedTuple):
    """One bar with its name below and its value above."""

    name: str
    value: float


class Share(NamedTuple):
    """A part of a whole."""

    name: str
    value: int
    class_: str


def lines_plot(
    label: str, x_name: str, y_name: str, lines: Sequence[Line], levels: Sequence[Level] = ()
) -> Element | None:
    """Draw lines over a common axis that starts at 0; None where there is nothing to draw.

    Args:
        label: what the plot shows, for those who cannot see it.
        x_name: name and unit of the horizontal axis.
        y_name: name and unit of the vertical axis.
        lines: what was measured or guessed.
        levels: limits to compare with.
    """
    points = [point for line in lines for part in line.parts for point in part]
    if len(points) < 2:
        return None
    ys = ticks(max([y for _, y in points] + [level.value for level in levels] + [0.0]))
    xs = ticks(max(x for x, _ in points))
    plot = _frame(label, x_name, y_name, ys)
    for x in xs:
        plot.append(el("text", f"{x:g}", x=_x(x, xs[-1]), y=float(_HEIGHT - _BOTTOM + 16), class_="tick middle"))
    lowest = 0.0
    for level in sorted(levels, key=lambda level: -level.value):
        y = _y(level.value, ys[-1])
        plot.append(el("line", x1=float(_LEFT), x2=float(_WIDTH - _RIGHT), y1=y, y2=y, class_="level"))
        # A name stands above its line, or below it, and below the name before, where there is no room.
        lowest = y - 5 if y - 5 >= lowest + _NAME_HEIGHT else max(y, lowest) + _NAME_HEIGHT
        plot.append(el("text", level.name, x=float(_WIDTH - _RIGHT - 4), y=lowest, class_="levelname end"))
    for line in lines:
        for part in line.parts:
            path = "M" + " L".join(f"{_x(x, xs[-1]):.1f} {_y(y, ys[-1]):.1f}" for x, y in part)
            drawn = el("path", class_=f"line {line.class_}")
            drawn.set("d", path)  # our own numbers: long, and nothing to clean
            plot.append(drawn)
    return plot


def bars_plot(label: str, x_name: str, y_name: str, bars: Sequence[Bar], class_: str) -> Element | None:
    """Draw bars; None where there are none."""
    if not bars:
        return None
    ys = ticks(max(bar.value for bar in bars), least_step=1)
    plot = _frame(label, x_name, y_name, ys)
    step = (_WIDTH - _LEFT - _RIGHT) / max(len(bars), _LEAST_BARS)
    every = math.ceil(len(bars) / 12)
    for index, bar in enumerate(bars):
        left, top = _LEFT + index * step, _y(bar.value, ys[-1])
        height = _HEIGHT - _BOTTOM - top
        plot.append(el("rect", x=left + step * 0.1, y=top, width=step * 0.8, height=height, class_=f"bar {class_}"))
        if bar.value and len(bars) <= 24:
            plot.append(el("text", f"{bar.value:,.0f}", x=left + step / 2, y=top - 3, class_="tick middle"))
        if index % every == 0:
            y = float(_HEIGHT - _BOTTOM + 16)
            plot.append(el("text", bar.name, x=left + step / 2, y=y, class_="tick middle"))
    return plot


def shares_plot(label: str, shares: Sequence[Share]) -> Element | None:
    """Draw one bar that is a whole, cut into its parts; None where the whole is 0."""
    whole = sum(share.value for share in shares)
    if not whole:
        return None
    plot = el("svg", el("title", label), role="img", class_="shares", preserveAspectRatio="none")
    plot.set("viewBox", f"0 0 {_WIDTH} {_SHARE_HEIGHT}")
    left = 0.0
    for share in shares:
        width = _WIDTH * share.value / whole
        if width:
            tip = el("title", f"{share.name}: {share.value:,} of {whole:,}")
            plot.append(
                el("rect", tip, x=left, y=0.0, width=width, height=float(_SHARE_HEIGHT), class_=f"bar {share.class_}")
            )
        left += width
    return plot


def ticks(top: float, least_step: float = 0.0) -> list[float]:
    """Give the round numbers of an axis from 0 to at least `top`, no closer than `least_step`."""
    if top <= 0:
        return [0.0, 1.0]
    rough = top / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    step = max(step, least_step)
    return [round(step * index, 12) for index in range(math.ceil(top / step - 1e-9) + 1)]


def _frame(label: str, x_name: str, y_name: str, ys: Sequence[float]) -> Element:
    plot = el("svg", el("title", label), role="img", class_="plot")
    plot.set("viewBox", f"0 0 {_WIDTH} {_HEIGHT}")
    for value in ys:
        y = _y(value, ys[-1])
        plot.append(el("line", x1=float(_LEFT), x2=float(_WIDTH - _RIGHT), y1=y, y2=y, class_="grid"))
        plot.append(el("text", _number(value), x=float(_LEFT - 6), y=y + 4, class_="tick end"))
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    plot.append(el("text", x_name, x=middle, y=float(_HEIGHT - 6), class_="axis middle"))
    height = (_TOP + _HEIGHT - _BOTTOM) / 2
    plot.append(el("text", y_name, x=14.0, y=height, transform=f"rotate(-90 14 {height:g})", class_="axis middle"))
    return plot


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 else f"{value:g}"


def _x(value: float, top: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * value / top


def _y(value: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * value / top
