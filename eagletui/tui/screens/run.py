"""The run at a glance: generation, spend, drift, extraction, what needs a person, and events."""

from typing import Any, ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Grid, Vertical

from eagletui.ledger.reader import Attention
from eagletui.ledger.rows import EventRow
from eagletui.tui import extract_text, figures, panels
from eagletui.tui.keys import View, bindings
from eagletui.tui.run_view import RunView
from eagletui.tui.sample_order import SampleOrder
from eagletui.tui.screens.clip import copy_text
from eagletui.tui.screens.frame import FramedScreen
from eagletui.tui.theme import glyphs_of
from eagletui.tui.widgets.ledger_table import Column, LedgerTable
from eagletui.tui.widgets.meter import Level, Meter
from eagletui.tui.widgets.safe_text import Piece, name_panel, note_panel
from eagletui.tui.widgets.sparkline import bucket, sparkline
from eagletui.tui.widgets.stat import Stat

_SPARK_CELLS: Final = 24
_SHORT_SPARK_CELLS: Final = 14
_LONG_RATE: Final = 9
"""Cells of a rate beside which the long sparkline has no room."""
_LEVEL_TONES: Final = {"warn": "$warning", "error": "bold $error", "debug": "$quiet"}

_PANELS: Final[tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...]] = (
    (
        "generation",
        "Generation",
        (
            ("samples", "samples"),
            ("#meter", ""),
            ("in-flight", "in flight"),
            ("failed", "failed"),
            ("rate", "out tok/s"),
            ("latency", "latency"),
            ("tokens", "tokens"),
        ),
    ),
    (
        "spend",
        "Spend",
        (
            ("settled", "settled"),
            ("#meter", ""),
            ("projected", "projected"),
            ("held", "held"),
            ("stop-at", "stop-at"),
            ("cap", "cap"),
            ("usable", "usable"),
        ),
    ),
    (
        "drift",
        "Drift and evidence",
        (
            ("proved", "proved"),
            ("#meter", ""),
            ("proof", "proof by"),
            ("no-proof", "no proof"),
            ("resegmented", "other ids"),
            ("drift", "drift"),
            ("worst", "worst"),
        ),
    ),
    (
        "extraction",
        "Extraction",
        (
            ("features", "samples"),
            ("#meter", ""),
            ("shards", "shards"),
            ("lag", "lag"),
            ("extractor", "extractor"),
            ("gpu", "gpu"),
            ("disk", "disk"),
        ),
    ),
)
"""Panel id, title and its lines: id of the figure and label."""


class RunScreen(FramedScreen):
    """The dashboard."""

    VIEW: ClassVar[View] = "run"
    BINDINGS: ClassVar[list[BindingType]] = bindings("run")

    def compose_body(self) -> ComposeResult:
        """Lay out four panels and two lists."""
        with Grid(id="panels"):
            for panel, _, lines in _PANELS:
                with Vertical(id=panel, classes="panel"):
                    for line, label in lines:
                        if line == "#meter":
                            yield Meter(id=f"{panel}-meter", classes="full")
                        else:
                            yield Stat(label, id=f"{panel}-{line}", classes="full")
                    if panel != "extraction":
                        yield Stat("", id=f"{panel}-compact-1", classes="compact")
                        yield Stat("", id=f"{panel}-compact-2", classes="compact")
        yield LedgerTable[Attention](
            self._attention_columns(), header=False, empty="nothing needs you", id="attention", classes="panel"
        )
        yield LedgerTable[EventRow](
            self._event_columns(), header=False, empty="no events yet", id="events", classes="panel"
        )

    def on_mount(self) -> None:
        """Name the panels and put the cursor on what needs a person."""
        for panel, title, _ in _PANELS:
            name_panel(self.query_one(f"#{panel}"), title)
        self.query_one("#attention").focus()

    @property
    def attention(self) -> LedgerTable[Attention]:
        """The list of what needs a person."""
        return self.query_one("#attention", LedgerTable)

    @property
    def events(self) -> LedgerTable[EventRow]:
        """The newest events."""
        return self.query_one("#events", LedgerTable)

    def paint_view(self, view: RunView) -> None:
        """Put every figure in its place."""
        snapshot = view.snapshot
        self._put("generation", panels.generation(snapshot))
        self._put("generation", {"rate": self._rate(view)})
        self._put("spend", panels.spend(snapshot))
        self._put("drift", panels.drift(snapshot))
        beside = self.query_one("#extraction").display
        name_panel(self.query_one("#drift"), "Drift and evidence" if beside else "Drift, evidence and features")
        outlook = extract_text.disk_outlook(snapshot, view.free_bytes, view.ticks)
        self._put("extraction", _extraction(view, outlook))
        for name, pieces in panels.compact_lines(snapshot, outlook).items():
            panel, number = name.rsplit("-", 1)
            self.query_one(f"#{panel}-compact-{number}", Stat).put(*pieces)
        made = panels.progress(snapshot)
        in_flight = figures.share(snapshot.in_flight, made.samples) or 0.0
        exact, total = panels.proved_level(snapshot)
        self._level("generation", Level(made.fraction or 0.0, in_flight))
        self._level("spend", panels.spend_level(snapshot))
        self._level("drift", Level(exact / total if total else 0.0))
        self._level("extraction", extract_text.level(snapshot))
        self._list_attention(view)
        self._list_events(view)

    def _put(self, panel: str, values: dict[str, tuple[Piece, ...]]) -> None:
        for line, pieces in values.items():
            self.query_one(f"#{panel}-{line}", Stat).put(*pieces)

    def _level(self, panel: str, level: Level) -> None:
        self.query_one(f"#{panel}-meter", Meter).level = level

    def _rate(self, view: RunView) -> tuple[Piece, ...]:
        rates = panels.token_rates(view.ticks[-61:])
        is_long = len(shown := panels.throughput(view.snapshot)) > _LONG_RATE
        cells = _SPARK_CELLS if self.app.size.width >= 120 and not is_long else _SHORT_SPARK_CELLS
        spark = sparkline(bucket(rates, cells), cells, glyphs_of(self.app))
        seconds = view.ticks[-1].at - view.ticks[-61:][0].at if view.ticks else 0
        return (
            (shown, "bold"),
            "   ",
            (spark, "$primary"),
            f"   {figures.age(seconds)}" if rates else "   no pace yet",
        )

    def _list_attention(self, view: RunView) -> None:
        table = self.attention
        table.fill(view.attention)
        name_panel(table, f"Needs attention ({len(view.attention)})")

    def _list_events(self, view: RunView) -> None:
        table = self.events
        follows = table.cursor >= table.row_count - 1
        table.fill(view.events, cursor=len(view.events) - 1 if follows else None)
        name_panel(table, "Events")
        note_panel(table, "5 for all" + (", follows" if follows else ""))

    def _attention_columns(self) -> tuple[Column[Attention], ...]:
        def kind(row: Attention) -> Piece:
            glyphs = glyphs_of(self.app)
            failed = row.kind in ("failed", "refused")
            mark = glyphs.failed if failed else glyphs.warning
            return (f"{mark} {row.kind}", "bold $error" if failed else "bold $warning")

        return (
            Column("", 10, kind),
            Column("", 12, lambda row: row.sample_key or "-"),
            Column("", 0, lambda row: row.text),
            Column("", 36, lambda row: (row.action, "$quiet"), from_width=100),
        )

    def _event_columns(self) -> tuple[Column[EventRow], ...]:
        return (
            Column("", 8, lambda row: (figures.time_of_day(row.at), "$quiet")),
            Column("", 5, lambda row: (row.level, _LEVEL_TONES.get(row.level, ""))),
            Column("", 9, lambda row: (row.source, "$quiet"), from_width=60),
            Column("", 0, lambda row: row.message),
        )

    def on_ledger_table_chosen(self, message: LedgerTable.Chosen) -> None:
        """Open what the line is about."""
        row: Any = message.table.row_at(message.index)
        self._open(row)

    def action_open(self) -> None:
        """Open the line under the cursor of the list in front."""
        table = self.events if self.events.has_focus else self.attention
        self._open(table.current)

    def _open(self, row: Attention | EventRow | None) -> None:
        if row is None:
            return
        if row.sample_key:
            found = [item.sample_key for item in self.attention_rows() if item.sample_key]
            keys = list(dict.fromkeys([*found, row.sample_key]))
            self.eagle.open_sample(row.sample_key, SampleOrder(keys=keys), keys.index(row.sample_key))
        elif isinstance(row, Attention) and row.kind == "spend":
            self.eagle.action_limits()
        elif isinstance(row, Attention):
            self.say(row.text, "   ", (row.action, "$quiet"))
        else:
            self.say(row.message)

    def attention_rows(self) -> tuple[Attention, ...]:
        """What needs a person now."""
        return () if self.eagle.view is None else self.eagle.view.attention

    def action_next_problem(self) -> None:
        """Put the cursor on the next line that needs a person."""
        self._step(1)

    def action_previous_problem(self) -> None:
        """Put the cursor on the one before."""
        self._step(-1)

    def _step(self, by: int) -> None:
        table = self.attention
        if not table.row_count:
            self.say("Nothing needs you.")
            return
        table.move_to((table.cursor + by) % table.row_count if table.has_focus else table.cursor)
        table.focus()

    def action_next_panel(self) -> None:
        """Move between the two lists."""
        (self.attention if self.events.has_focus else self.events).focus()

    async def action_zoom(self) -> None:
        """Show the charts."""
        await self.eagle.action_view("charts")

    def action_copy(self) -> None:
        """Copy the line under the cursor."""
        row = (self.events if self.events.has_focus else self.attention).current
        if row is not None:
            text = row.message if isinstance(row, EventRow) else f"{row.kind} {row.sample_key or ''} {row.text}"
            copy_text(self, text)


def _extraction(view: RunView, outlook: extract_text.Pieces) -> dict[str, extract_text.Pieces]:
    """The lines of the extraction screen that matter at a glance."""
    snapshot = view.snapshot
    made = extract_text.progress(snapshot, view.ticks)
    return {
        **{line: made[line] for line in ("features", "shards", "lag")},
        "extractor": extract_text.extractor(snapshot),
        "gpu": extract_text.machine(snapshot)["gpu"],
        "disk": outlook,
    }
