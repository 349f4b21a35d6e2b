"""A plot: curves with limits, or bars. Drawn by plotext, whose text is cleaned and brought to ASCII where asked."""

from dataclasses import dataclass
from typing import Any, Final

from textual_plotext import PlotextPlot

from eagletui.core.text import clean_line
from eagletui.tui.theme import is_ascii

_BOXES: Final = str.maketrans("┌┐└┘├┤┬┴┼─│█▇", "+++++++++-|##")
"""What plotext frames plots and fills bars with, in ASCII."""

_TICKS: Final = 5


@dataclass(frozen=True, slots=True)
class Line:
    """One curve."""

    xs: tuple[float, ...]
    ys: tuple[float, ...]
    color: tuple[int, int, int]
    is_guess: bool = False
    """A projection: drawn in dots."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A horizontal line with its name on it."""

    y: float
    name: str


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
    color: tuple[int, int, int] = (86, 180, 233)
    """Of the bars."""

    @property
    def is_empty(self) -> bool:
        """Tell whether there is nothing to draw."""
        return not any(line.xs for line in self.lines) and not self.values


class Chart(PlotextPlot):  # type: ignore[misc]
    """One plot. Equal data paints nothing."""

    DEFAULT_CSS = "Chart { height: 1fr; }"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._drawn: tuple[Plot, bool, bool] | None = None

    def draw(self, plot: Plot) -> None:
        """Draw a plot."""
        mono, ascii_ = bool(self.app.current_theme.ansi or self.app.no_color), is_ascii(self.app)
        if self._drawn == (plot, mono, ascii_):
            return
        self._drawn = (plot, mono, ascii_)
        self.theme = "clear" if mono else "auto"
        plt = self.plt
        plt.clear_figure()
        plt.xlabel(plot.x_label)
        if plot.values:
            names = [clean_line(name, 12, ascii_=ascii_) for name in plot.names]
            plt.bar(names, plot.values, marker="#" if ascii_ else None, color=None if mono else plot.color, width=0.6)
            plt.yticks(_whole_ticks(max(plot.values)))
        for line in plot.lines:
            marker = ("." if ascii_ else "·") if line.is_guess else "*" if ascii_ else "braille"
            plt.plot(line.xs, line.ys, marker=marker, color=None if mono else line.color)
        if plot.lines:
            self._limit(plot)
        self.refresh()

    def _limit(self, plot: Plot) -> None:
        xs = [x for line in plot.lines for x in line.xs]
        ys = [*(y for line in plot.lines for y in line.ys), *(limit.y for limit in plot.limits)]
        highest = max(ys, default=0.0)
        self.plt.ylim(0, highest * 1.05 or 1)
        for limit in plot.limits:
            self.plt.hline(limit.y)
            self.plt.text(clean_line(limit.name), x=min(xs, default=0.0), y=limit.y, alignment="left")

    def render(self) -> Any:
        """Draw the plot, in ASCII where the terminal has nothing else."""
        text = super().render()
        if is_ascii(self.app):
            text.plain = text.plain.translate(_BOXES)
        return text


def _whole_ticks(highest: float) -> list[int]:
    """Choose whole numbers for the axis of counts."""
    step = max(1, -(-int(highest) // _TICKS))
    return list(range(0, int(highest) + 1, step))
