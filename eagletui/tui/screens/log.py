"""What happened: events, newest last, with a level, a text filter and follow."""

from collections.abc import Sequence
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widgets import Input

from eagletui.core.text import clean_line
from eagletui.ledger.rows import EventRow, Level
from eagletui.tui import background, figures
from eagletui.tui.keys import View, bindings
from eagletui.tui.run_view import RunView, own_events
from eagletui.tui.sample_order import SampleOrder
from eagletui.tui.screens.clip import copy_text, save_text
from eagletui.tui.screens.frame import FramedScreen
from eagletui.tui.theme import is_ascii
from eagletui.tui.widgets.entry import Entry
from eagletui.tui.widgets.ledger_table import Column, LedgerTable
from eagletui.tui.widgets.safe_text import Piece, SafeText, name_panel, styled

_LEVELS: Final[tuple[Level, ...]] = ("debug", "info", "warn", "error")
_TONES: Final = {"warn": "$warning", "error": "bold $error", "debug": "$quiet"}
_BATCH: Final = 500
_KEPT: Final = 20_000


class LogScreen(FramedScreen):
    """The log."""

    VIEW: ClassVar[View] = "log"
    BINDINGS: ClassVar[list[BindingType]] = bindings("log")

    def __init__(self) -> None:
        super().__init__()
        self._level: Level = "info"
        self._text = ""
        self._follows = True
        self._events: list[EventRow] = []
        """Oldest first, of the wanted levels, text not yet applied."""
        self._shown: list[EventRow] = []
        self._is_whole = False
        """Nothing older is left to read."""

    def compose_body(self) -> ComposeResult:
        """Lay out the state line, the filter field and the list."""
        yield SafeText(id="log-line")
        yield Entry(id="filter-input", classes="-hidden")
        yield LedgerTable[EventRow](_columns(), header=False, empty="no events", id="log", classes="panel")

    def on_mount(self) -> None:
        """Read the newest events."""
        self.table.focus()
        name_panel(self.table, "Events")
        self._reload()

    @property
    def table(self) -> LedgerTable[EventRow]:
        """The list."""
        return self.query_one("#log", LedgerTable)

    def paint_view(self, view: RunView) -> None:
        """Add what is new."""
        last_id = self._events[-1].id if self._events else 0
        new = [event for event in view.events if event.id > last_id and event.level in self._levels()]
        if self._events and new:
            self._events = [*self._events, *new][-_KEPT:]
            self._show()

    def _levels(self) -> tuple[Level, ...]:
        return _LEVELS[_LEVELS.index(self._level) :]

    def _reload(self) -> None:
        background.start(self, "read the log", self._read, group="log")

    async def _read(self) -> None:
        self._events = await self._read_before(None)
        self._is_whole = len(self._events) < _BATCH
        self._show()

    async def _read_before(self, event_id: int | None) -> list[EventRow]:
        events = await self.eagle.reader.last_events(_BATCH, self._levels(), event_id)
        folder = self.eagle.folder
        return events if folder is None else list(own_events(events, folder.argument))

    async def _read_older(self) -> None:
        if self._is_whole or not self._events:
            return
        older = await self._read_before(self._events[0].id)
        self._is_whole = len(older) < _BATCH
        before = len(self._shown)
        self._events = [*older, *self._events]
        self._show(moved_by=None)
        self.table.move_to(len(self._shown) - before)

    def _show(self, moved_by: int | None = 0) -> None:
        wanted = self._text.casefold()
        self._shown = [event for event in self._events if not wanted or wanted in _plain(event).casefold()]
        end = len(self._shown) - 1
        self.table.fill(self._shown, cursor=end if self._follows else None)
        level = f"{self._level} and above" if self._level != "error" else "error"
        pieces: list[Piece] = [
            ("t ", "bold $primary"),
            "follow on" if self._follows else "follow off",
            ("   l ", "bold $primary"),
            f"level {level}",
            ("   / ", "bold $primary"),
            f'text "{self._text}"' if self._text else "no text filter",
            f"   {len(self._shown):,} lines" + ("" if self._is_whole else ", g older"),
        ]
        self.query_one("#log-line", SafeText).show(styled(*pieces, ascii_=is_ascii(self.app)))

    def on_ledger_table_moved(self, message: LedgerTable.Moved) -> None:
        """Stop following when the cursor leaves the end; read older lines at the top."""
        if self.table.row_count == 0:
            return
        if self._follows and message.index < self.table.row_count - 1:
            self._follows = False
            self._show()
        if message.index == 0 and not self._is_whole and not self._follows:
            background.start(self, "read older events", self._read_older, group="log")

    def on_ledger_table_chosen(self, message: LedgerTable.Chosen) -> None:
        """Open the sample of the line."""
        self.action_open()

    def action_open(self) -> None:
        """Open the sample that the line is about."""
        row = self.table.current
        if row is None:
            return
        if row.sample_key is None:
            self.say(row.message)
        else:
            self.eagle.open_sample(row.sample_key, SampleOrder(keys=(row.sample_key,)), 0)

    def action_follow(self) -> None:
        """Follow the newest line, or stop."""
        self._follows = not self._follows
        self._show()

    def action_level(self) -> None:
        """Take the next level."""
        self._level = _LEVELS[(_LEVELS.index(self._level) + 1) % len(_LEVELS)]
        self._reload()

    def action_filter(self) -> None:
        """Edit the text filter."""
        self.query_one("#filter-input", Entry).edit(self._text)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Apply the text filter."""
        self._text = event.value
        self._leave_filter()
        self._show()

    def _leave_filter(self) -> None:
        self.query_one("#filter-input", Input).add_class("-hidden")
        self.table.focus()

    async def action_back(self) -> None:
        """Leave the filter field, then clear the filter, then go to the run."""
        if self.query_one("#filter-input", Input).has_focus:
            self._leave_filter()
        elif self._text:
            self._text = ""
            self._show()
        else:
            await super().action_back()

    def action_next_problem(self) -> None:
        """Go to the next warning or error."""
        self._step(range(self.table.cursor + 1, len(self._shown)))

    def action_previous_problem(self) -> None:
        """Go to the previous one."""
        self._step(range(self.table.cursor - 1, -1, -1))

    def _step(self, indexes: Sequence[int]) -> None:
        found = next((index for index in indexes if self._shown[index].level in ("warn", "error")), None)
        if found is None:
            self.say("No warning or error further on.")
        else:
            self.table.move_to(found)

    def action_copy(self) -> None:
        """Copy the line."""
        row = self.table.current
        if row is not None:
            copy_text(self, _plain(row))

    def action_save(self) -> None:
        """Save the lines that are shown."""
        save_text(self, "log", "\n".join(map(_plain, self._shown)) + "\n")


def _plain(row: EventRow) -> str:
    return clean_line(f"{figures.date_time(row.at)} {row.level} {row.source} {row.kind} {row.message}")


def _columns() -> tuple[Column[EventRow], ...]:
    return (
        Column("", 5, lambda row: (figures.day(row.at), "$quiet"), from_width=100),
        Column("", 8, lambda row: (figures.time_of_day(row.at), "$quiet")),
        Column("", 5, lambda row: (row.level, _TONES.get(row.level, ""))),
        Column("", 9, lambda row: (row.source, "$quiet")),
        Column("", 14, lambda row: (row.kind, "$quiet"), from_width=100),
        Column("", 12, lambda row: row.sample_key or "", from_width=100),
        Column("", 0, lambda row: row.message),
    )
