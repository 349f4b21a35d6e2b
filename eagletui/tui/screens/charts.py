"""Charts over the whole run: output tokens per second, and dollars against stop-at and cap."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from eagletui.core.money import PICO
from eagletui.ledger.rows import TickRow
from eagletui.tui import background, figures, panels
from eagletui.tui.widgets.chart import Limit, Line, TickPlot
from eagletui.tui.widgets.safe_text import SafeText, note_panel, styled
from eagletui.tui.widgets.sparkline import bucket

if TYPE_CHECKING:
    from eagletui.tui.app import EagleApp

_POINTS: Final = 400
_SKY: Final = (86, 180, 233)
_ORANGE: Final = (230, 159, 0)
_MINUTE_S: Final = 60.0


class ChartsScreen(ModalScreen[None]):
    """Two plots, one over the other."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,z,q", "dismiss", "Close", show=False),
    ]

    @property
    def eagle(self) -> "EagleApp":
        """The app, by its own type."""
        return cast("EagleApp", self.app)

    def compose(self) -> ComposeResult:
        """Lay the plots out."""
        with Vertical(id="charts"):
            yield TickPlot("Output", "tokens per second", id="tokens-plot")
            yield TickPlot("Settled", "dollars", id="money-plot")
            yield SafeText(id="charts-note")

    async def on_mount(self) -> None:
        """Read the run's ticks and keep reading them."""
        note_panel(self.query_one("#charts"), "esc close")
        self.set_interval(2.0, self._read)
        self._read()

    def _read(self) -> None:
        background.start(self, "read the charts", self._draw, group="charts")

    async def _draw(self) -> None:
        view = self.eagle.view
        if view is None:
            return
        run = view.snapshot.run
        start = run.started_at or run.created_at
        ticks = await self.eagle.reader.ticks(start)
        note = self.query_one("#charts-note", SafeText)
        if len(ticks) < 2:
            note.show(styled("No pace yet: the engine writes a tick a second while it runs."))
            return
        books = view.snapshot.spend.books
        self.query_one("#tokens-plot", TickPlot).draw((rate_line(ticks, start),))
        limits = (Limit(books.stop_at_pico / PICO), Limit(books.cap_pico / PICO))
        self.query_one("#money-plot", TickPlot).draw((money_line(ticks, start),), limits)
        note.show(
            styled(
                f"{panels.throughput(view.snapshot)} tok/s now   burn {panels.burn(view.snapshot)}"
                f"   lines: stop-at {figures.usd_short(books.stop_at_pico)}, cap {figures.usd_short(books.cap_pico)}"
            )
        )


def rate_line(ticks: Sequence[TickRow], start: float) -> Line:
    """Tokens per second over minutes since the start."""
    rates = panels.token_rates(tuple(ticks))
    times = [(tick.at - start) / _MINUTE_S for tick in ticks[1:]]
    return Line(tuple(bucket(times, _POINTS)), tuple(bucket(rates, _POINTS)), _SKY)


def money_line(ticks: Sequence[TickRow], start: float) -> Line:
    """Settled dollars over minutes since the start."""
    dollars = [tick.settled_pico / PICO for tick in ticks]
    times = [(tick.at - start) / _MINUTE_S for tick in ticks]
    return Line(tuple(bucket(times, _POINTS)), tuple(bucket(dollars, _POINTS)), _ORANGE)
