"""A plot: curves with limits, or bars. Drawn by plotext, whose text is cleaned and brought to ASCII where asked."""

import math
from dataclasses import dataclass
from typing import Any, Final, Literal

from textual.color import Color
from textual_plotext import PlotextPlot

from eagletui.core.text import clean_line
from eagletui.tui.theme import is_ascii

Tone = Literal["primary", "warning", "error", "success"]
"""A colour of the theme."""

_BOXES: Final = str.maketrans("┌┐└┘├┤┬┴┼─│█▇", "+++++++++-|##")
"""What plotext frames plots and fills bars with, in ASCII."""

_TICKS: Final = 5
_CELLS_PER_TICK: Final = 12
_ABOVE: Final = 1.05
"""Room over the highest point."""


@dataclass(frozen=True, slots=True)
class Line:
    """One curve."""

    xs: tuple[float, ...]
    ys: tuple[float, ...]
    tone: Tone
    is_guess: bool = False
    """A projection: drawn in dots."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A horizontal line with its name on it."""

    y: float
    name: str
    tone: Tone
    crossed_at: float | None = None
    """Where a projection meets it, on the x axis; marked with a cross."""


@dataclass(frozen=True, slots=True)
class Plot:
    """What is drawn: curves and limits, or bars."""

    x_label: str
    lines: tuple[Line, ...] = ()
    limits: tuple[Limit, ...] = ()
    names: tuple[str, ...] = ()
    """Of the bars."""
    values: tuple[float, ...] = ()
    """Of the bars."""
    tone: Tone = "primary"
    """Of the bars."""
    is_histogram: bool = False
    """The bars are ranges of one figure: they touch."""
    y_unit: str = ""
    """Written before each figure of the y axis."""

    @property
    def is_empty(self) -> bool:
        """Tell whether there is nothing to draw."""
        return not any(line.xs for line in self.lines) and not self.values


class Chart(PlotextPlot):  # type: ignore[misc]
    """One plot. Equal data paints nothing."""

    DEFAULT_CSS = "Chart { height: 1fr; }"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._wanted: Plot | None = None
        self._drawn: tuple[object, ...] = ()
        """What the figure was built from."""

    def draw(self, plot: Plot) -> None:
        """Draw a plot."""
        if plot != self._wanted:
            self._wanted = plot
            self.refresh()

    def render(self) -> Any:
        """Draw the plot, in ASCII where the terminal has nothing else."""
        ascii_ = is_ascii(self.app)
        wanted = (self._wanted, self.app.theme, self._is_mono, ascii_, self.size)
        if self._wanted is not None and wanted != self._drawn:
            self._drawn = wanted
            self.theme = "clear" if self._is_mono else "auto"
            self._build(self._wanted, ascii_=ascii_)
        text = super().render()
        if ascii_:
            text.plain = text.plain.translate(_BOXES)
        return text

    @property
    def _is_mono(self) -> bool:
        return bool(self.app.current_theme.ansi or self.app.no_color)

    def _color(self, tone: Tone | Literal["surface"]) -> tuple[int, int, int] | str:
        return "default" if self._is_mono else Color.parse(self.app.theme_variables[tone]).rgb

    def _build(self, plot: Plot, *, ascii_: bool) -> None:
        plt = self.plt
        plt.clear_figure()
        plt.xlabel(plot.x_label)
        if plot.values:
            names = [clean_line(name, 12, ascii_=ascii_) for name in plot.names]
            width = 1.0 if plot.is_histogram else 0.6
            plt.bar(names, plot.values, marker="#" if ascii_ else None, color=self._color(plot.tone), width=width)
            plt.yticks(whole_ticks(max(plot.values)))
        for line in plot.lines:
            marker = ("." if ascii_ else "·") if line.is_guess else "*" if ascii_ else "braille"
            plt.plot(line.xs, line.ys, marker=marker, color=self._color(line.tone))
        if plot.lines:
            self._axes(plot)
            for limit in plot.limits:
                self._limit(plot, limit)

    def _axes(self, plot: Plot) -> None:
        xs = [x for line in plot.lines for x in line.xs]
        ys = [*(y for line in plot.lines for y in line.ys), *(limit.y for limit in plot.limits)]
        highest = max(ys, default=0.0) * _ABOVE or 1.0
        self.plt.ylim(0, highest)
        for set_ticks, low, high, unit, most in (
            (self.plt.yticks, 0.0, highest, plot.y_unit, max(2, min(_TICKS, self.size.height // 3))),
            (
                self.plt.xticks,
                min(xs, default=0.0),
                max(xs, default=1.0),
                "",
                max(2, self.size.width // _CELLS_PER_TICK),
            ),
        ):
            ticks = round_ticks(low, high, most)
            set_ticks(ticks, [f"{unit}{tick:,.{_decimals(ticks)}f}" for tick in ticks])

    def _limit(self, plot: Plot, limit: Limit) -> None:
        plt = self.plt
        plt.hline(limit.y, self._color(limit.tone))
        first = min((x for line in plot.lines for x in line.xs), default=0.0)
        background = self._color("surface")
        written = {"color": self._color(limit.tone), "background": background}
        plt.text(f" {clean_line(limit.name)} ", x=first, y=limit.y, alignment="left", **written)
        if limit.crossed_at is not None:
            plt.text("x" if is_ascii(self.app) else "×", x=limit.crossed_at, y=limit.y, alignment="center", **written)


def round_ticks(low: float, high: float, most: int) -> list[float]:
    """Choose round figures for an axis: steps of 1, 2 or 5 times a power of ten, at most so many and two."""
    if high <= low:
        return [low]
    least = (high - low) / most
    power = 10.0 ** math.floor(math.log10(least))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def _decimals(ticks: list[float]) -> int:
    """So many that neighbours differ."""
    return max(0, -math.floor(math.log10(ticks[1] - ticks[0]) + 1e-9)) if len(ticks) > 1 else 2


def whole_ticks(highest: float) -> list[float]:
    """Choose whole numbers for the axis of counts."""
    return [tick for tick in round_ticks(0.0, max(1.0, highest), _TICKS) if tick == int(tick)]
