"""Charts: throughput, dollars against their limits, drift by endpoint, latency; all at once or one over the screen."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Grid, Vertical

from eagletui.core.text import shorten
from eagletui.ledger.snapshot import EndpointFigures, Snapshot
from eagletui.tui import background, plots
from eagletui.tui.keys import View, bindings
from eagletui.tui.run_view import RunView
from eagletui.tui.screens.frame import FramedScreen
from eagletui.tui.theme import is_ascii
from eagletui.tui.widgets.chart import Chart, Plot
from eagletui.tui.widgets.safe_text import SafeText, name_panel, note_panel

CHARTS: Final = ("throughput", "dollars", "drift", "latency")
_TICKS_SHOWN: Final = 2_000
_LATENCIES: Final = 2_000
_REDRAW_S: Final = 2.0


class ChartsScreen(FramedScreen):
    """Four plots in a grid, or one of them where the terminal is small or the person wants it large."""

    VIEW: ClassVar[View] = "charts"
    BINDINGS: ClassVar[list[BindingType]] = bindings("charts")

    def __init__(self) -> None:
        super().__init__()
        self._at = 0
        """Which chart is in front."""
        self._endpoint = 0
        """Whose drift is shown."""
        self._seen: Snapshot | None = None
        self._drawn_at = 0.0
        self._drift: Mapping[str, Mapping[int, int]] = {}
        self._shown: dict[str, tuple[plots.Drawn, str]] = {}
        """By chart: what is drawn, and what is said where there is nothing to draw."""

    def compose_body(self) -> ComposeResult:
        """Lay the plots out."""
        with Grid(id="charts"):
            for name in CHARTS:
                with Vertical(id=f"chart-{name}", classes="panel"):
                    yield Chart(id=name)
                    yield SafeText(id=f"{name}-empty", classes="-hidden")

    def on_mount(self) -> None:
        """Mark the chart in front."""
        self._mark()

    def paint_view(self, view: RunView) -> None:
        """Draw again where the ledger changed, every two seconds at most."""
        now = self.eagle.clock()
        if view.snapshot is self._seen or (self._seen is not None and now - self._drawn_at < _REDRAW_S):
            return
        self._seen, self._drawn_at = view.snapshot, now
        background.start(self, "read the charts", self._draw, group="charts")

    async def _draw(self) -> None:
        view = self.eagle.view
        if view is None:
            return
        snapshot, reader = view.snapshot, self.eagle.reader
        run = snapshot.run
        start = run.started_at or run.created_at
        ticks = await reader.ticks(start, await reader.tick_step(start, _TICKS_SHOWN))
        latencies = await reader.latencies(_LATENCIES)
        self._drift = await reader.drift_counts()
        self._put(
            "throughput", plots.throughput(ticks, snapshot, start), "No pace yet: the engine ticks once a second."
        )
        self._put("dollars", plots.dollars(ticks, snapshot, start), "Nothing is settled yet.")
        self._put("latency", plots.latency(latencies, snapshot), "No answer yet.")
        self._put_drift(snapshot)

    def _put_drift(self, snapshot: Snapshot) -> None:
        endpoints = self._by_drift(snapshot)
        if not endpoints:
            self._put("drift", plots.Drawn(Plot(""), "Drift"), "No endpoint yet.")
            return
        number = self._endpoint % len(endpoints)
        endpoint = endpoints[number]
        drawn = plots.drift(endpoint, self._drift.get(endpoint.tag, {}), number + 1, len(endpoints))
        self._put("drift", drawn, "Every sample of this endpoint agrees with its bill.")

    def _by_drift(self, snapshot: Snapshot) -> Sequence[EndpointFigures]:
        return sorted(snapshot.endpoints, key=lambda one: (-sum(self._drift.get(one.tag, {}).values()), one.tag))

    def _put(self, name: str, drawn: plots.Drawn, empty: str) -> None:
        panel, chart, nothing = (
            self.query_one(f"#chart-{name}"),
            self.query_one(f"#{name}", Chart),
            self.query_one(f"#{name}-empty", SafeText),
        )
        self._shown[name] = (drawn, empty)
        name_panel(panel, shorten(drawn.sentence, self._title_cells, ascii_=is_ascii(self.app)))
        chart.set_class(drawn.plot.is_empty, "-hidden")
        nothing.set_class(not drawn.plot.is_empty, "-hidden")
        nothing.say(empty)
        if not drawn.plot.is_empty:
            chart.draw(drawn.plot)

    @property
    def _title_cells(self) -> int:
        """Room for a title: one chart takes the whole width, or two share it."""
        alone = any(self.has_class(name) for name in ("-one", "-narrow", "-short", "-tiny"))
        return self.size.width // (1 if alone else 2) - 6

    def _mark(self) -> None:
        for number, name in enumerate(CHARTS):
            panel = self.query_one(f"#chart-{name}")
            panel.set_class(number == self._at, "-front")
            hint = ", e next endpoint" if name == "drift" else ""
            note_panel(panel, f"{number + 1} of {len(CHARTS)}{hint}")

    def on_resize(self, event: events.Resize) -> None:
        """Cut the titles for the new size."""
        super().on_resize(event)
        self.call_after_refresh(self._title_again)

    def _title_again(self) -> None:
        for name, (drawn, empty) in list(self._shown.items()):
            self._put(name, drawn, empty)

    def action_next_chart(self, by: int) -> None:
        """Bring the next chart to the front."""
        self._at = (self._at + by) % len(CHARTS)
        self._mark()
        self.call_after_refresh(self._title_again)

    def action_zoom(self) -> None:
        """One chart over the whole screen, or all of them."""
        self.toggle_class("-one")
        self.call_after_refresh(self._title_again)

    def action_next_endpoint(self) -> None:
        """Show the drift of the next endpoint."""
        self._endpoint += 1
        self._at = CHARTS.index("drift")
        self._mark()
        if self._seen is not None:
            self._put_drift(self._seen)
