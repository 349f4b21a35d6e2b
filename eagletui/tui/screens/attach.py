"""The runs that are here, live and finished; open one."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container

from eagletui.core.errors import EagleError
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.snapshot import Snapshot
from eagletui.runs.find import list_runs
from eagletui.runs.folder import RunFolder, runs_root
from eagletui.tui import background, figures, panels, standing
from eagletui.tui.keys import Key, View, bindings
from eagletui.tui.screens.compare import CompareScreen
from eagletui.tui.screens.view_screen import ViewScreen
from eagletui.tui.theme import glyphs_of
from eagletui.tui.widgets.key_bar import KeyBar
from eagletui.tui.widgets.ledger_table import Column, LedgerTable
from eagletui.tui.widgets.pill import pill
from eagletui.tui.widgets.safe_text import Piece, SafeText, name_panel, styled

_RELIST_S = 2.0


@dataclass(frozen=True, slots=True)
class RunLine:
    """One run of the picker."""

    folder: RunFolder
    snapshot: Snapshot | None
    trouble: str
    """Why it cannot be read; '' when it can."""


def read_runs(clock: Callable[[], float]) -> list[RunLine]:
    """Read a snapshot of every run, the youngest first."""
    lines: list[RunLine] = []
    for folder in list_runs():
        try:
            with LedgerReader(folder.ledger_path, clock) as reader:
                lines.append(RunLine(folder, reader.snapshot(), ""))
        except EagleError as error:
            lines.append(RunLine(folder, None, str(error)))
    return sorted(lines, key=lambda line: -(line.snapshot.run.created_at if line.snapshot else 0.0))


class AttachScreen(ViewScreen):
    """The picker."""

    VIEW: ClassVar[View] = "attach"
    BINDINGS: ClassVar[list[BindingType]] = bindings("attach")

    def __init__(self) -> None:
        super().__init__()
        self._marked: list[RunFolder] = []
        """For a comparison, the last two."""

    def compose(self) -> ComposeResult:
        """Lay the list out."""
        yield SafeText(id="attach-title")
        with Container(id="body"):
            yield LedgerTable[RunLine](
                self._columns(),
                empty="no runs yet",
                is_marked=lambda line: line.folder in self._marked,
                id="runs",
                classes="panel",
            )
            yield SafeText(id="attach-note")
        yield KeyBar(self.VIEW, self.why_not)
        yield SafeText(id="too-small")

    def on_mount(self) -> None:
        """List the runs, and again every few seconds."""
        name_panel(self.table, "Runs")
        self.query_one("#attach-title", SafeText).show(
            styled(("eagletui  ", "$quiet"), ("runs", "bold"), f"  in {runs_root().resolve()}")
        )
        self.table.focus()
        self.set_interval(_RELIST_S, self._list)
        self._list()

    @property
    def table(self) -> LedgerTable[RunLine]:
        """The list."""
        return self.query_one("#runs", LedgerTable)

    def why_not(self, key: Key) -> str | None:
        """Give the reason a key cannot be used now, or None."""
        if key.id == "go.back" and not self.eagle.has_run:
            return "no run is open"
        return None

    def on_screen_resume(self) -> None:
        """List what is there now."""
        if self.is_mounted:
            self._list()

    def _list(self) -> None:
        if self.is_current:
            background.start(self, "list the runs", self._read, group="runs")

    async def _read(self) -> None:
        lines = await asyncio.to_thread(read_runs, self.eagle.clock)
        row = self.table.current
        names = [line.folder for line in lines]
        at = names.index(row.folder) if row is not None and row.folder in names else None
        self.table.fill(lines, cursor=at)
        if lines:
            note = "enter opens a run. Workers go on whether or not anyone looks."
        else:
            note = "n starts one here, as does: eagletui run CONFIG.toml   To try everything out: eagletui demo"
        if self.eagle.trouble is not None:
            note = f"{self.eagle.trouble}"
        self.query_one("#attach-note", SafeText).say(note)
        self.query_one(KeyBar).look_again()

    async def on_ledger_table_chosen(self, message: LedgerTable.Chosen) -> None:
        """Open the run."""
        await self.action_open()

    async def action_open(self) -> None:
        """Open the run under the cursor."""
        row = self.table.current
        if row is not None:
            self.eagle.trouble = None
            await self.eagle.open_run(row.folder)

    def action_mark(self) -> None:
        """Mark the run, or take its mark away."""
        row = self.table.current
        if row is None or row.snapshot is None:
            return
        if row.folder in self._marked:
            self._marked.remove(row.folder)
        else:
            self._marked = [*self._marked, row.folder][-2:]
        self.table.refresh()

    def action_compare(self) -> None:
        """Compare two runs."""
        row = self.table.current
        chosen = list(self._marked)
        if len(chosen) < 2 and row is not None and row.snapshot is not None and row.folder not in chosen:
            chosen.append(row.folder)
        if len(chosen) == 2:
            self.app.push_screen(CompareScreen(chosen[0], chosen[1]))
        else:
            self.query_one("#attach-note", SafeText).say("Mark two runs with space, or mark one and go to another.")

    async def action_back(self) -> None:
        """Back to the run that was open."""
        if self.eagle.has_run:
            await self.eagle.action_view("run")

    def _columns(self) -> tuple[Column[RunLine], ...]:
        def known(value: Callable[[Snapshot], Piece]) -> Callable[[RunLine], Piece]:
            return lambda line: figures.UNKNOWN if line.snapshot is None else value(line.snapshot)

        def state(line: RunLine) -> Piece:
            if line.snapshot is None:
                return ("unreadable", "bold $error")
            return pill(standing.run_status(line.snapshot, self.eagle.clock()), glyphs_of(self.app))

        def made(line: RunLine) -> Piece:
            if line.snapshot is None:
                return (line.trouble, "$error")
            return f"{figures.age(self.eagle.clock() - line.snapshot.run.created_at)} ago"

        def workers(snapshot: Snapshot) -> Piece:
            alive = [f"{worker.role} {worker.pid}" for worker in snapshot.workers if worker.alive]
            return ", ".join(alive) or ("none", "$quiet")

        def share(snapshot: Snapshot) -> Piece:
            made = panels.progress(snapshot)
            return f"{figures.count(made.ended)} / {figures.count(made.samples)}"

        return (
            Column("run", 16, lambda line: line.folder.name),
            Column("state", 21, state),
            Column("samples", 15, known(share), right=True),
            Column("settled", 9, known(lambda snapshot: figures.usd(snapshot.spend.books.settled_pico)), right=True),
            Column("workers", 26, known(workers), from_width=100),
            Column("made", 0, made),
        )
