"""A plot for a whole screen: curves over time, with limits."""

from dataclasses import dataclass
from typing import Any

from textual_plotext import PlotextPlot

from eagletui.tui.theme import is_ascii


@dataclass(frozen=True, slots=True)
class Line:
    """One curve."""

    xs: tuple[float, ...]
    ys: tuple[float, ...]
    color: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Limit:
    """A horizontal line."""

    y: float


class TickPlot(PlotextPlot):  # type: ignore[misc]
    """Curves over time. Equal data paints nothing."""

    DEFAULT_CSS = "TickPlot { height: 1fr; }"

    def __init__(self, title: str, unit: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._title = title
        self._unit = unit
        self._drawn: tuple[tuple[Line, ...], tuple[Limit, ...], bool] | None = None

    def draw(self, lines: tuple[Line, ...], limits: tuple[Limit, ...] = ()) -> None:
        """Plot the curves and limits. Horizontal values are minutes since the run began."""
        mono = self.app.current_theme.ansi or self.app.no_color
        if self._drawn == (lines, limits, mono):
            return
        self._drawn = (lines, limits, mono)
        self.theme = "clear" if mono else "auto"
        marker = "*" if is_ascii(self.app) else "braille"
        self.plt.clear_data()
        self.plt.title(f"{self._title}, {self._unit}")
        self.plt.xlabel("minutes since the start")
        highest = max([*(y for line in lines for y in line.ys), *(limit.y for limit in limits)], default=0.0)
        self.plt.ylim(0, highest or 1)
        for line in lines:
            self.plt.plot(line.xs, line.ys, marker=marker, color=None if mono else line.color)
        for limit in limits:
            self.plt.hline(limit.y)
        self.refresh()
