"""Two runs side by side."""

import asyncio
from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container

from eagletui.core.errors import EagleError
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.snapshot import Snapshot
from eagletui.runs.folder import RunFolder
from eagletui.tui import background
from eagletui.tui.comparing import CompareRow, compare
from eagletui.tui.keys import View, bindings
from eagletui.tui.screens.view_screen import ViewScreen
from eagletui.tui.theme import is_ascii
from eagletui.tui.widgets.key_bar import KeyBar
from eagletui.tui.widgets.ledger_table import Column, LedgerTable
from eagletui.tui.widgets.safe_text import Piece, SafeText, name_panel, styled

_READ_EVERY_S = 2.0


class CompareScreen(ViewScreen):
    """A table of figures, both runs and the difference; live runs are read again."""

    VIEW: ClassVar[View] = "compare"
    BINDINGS: ClassVar[list[BindingType]] = bindings("compare")

    def __init__(self, left: RunFolder, right: RunFolder) -> None:
        super().__init__()
        self._runs = (left, right)

    def compose(self) -> ComposeResult:
        """Lay the table out."""
        yield SafeText(id="attach-title")
        with Container(id="body"):
            yield LedgerTable[CompareRow](
                _columns(), header=False, empty="reading both runs", id="compared", classes="panel"
            )
            yield SafeText(id="attach-note")
        yield KeyBar(self.VIEW, lambda key: None)
        yield SafeText(id="too-small")

    def on_mount(self) -> None:
        """Read both runs, and again every few seconds."""
        left, right = self._runs
        pieces: tuple[Piece, ...] = (
            ("eagletui  ", "$quiet"),
            "compare ",
            (left.name, "bold"),
            " with ",
            (right.name, "bold"),
        )
        self.query_one("#attach-title", SafeText).show(styled(*pieces, ascii_=is_ascii(self.app)))
        name_panel(self.query_one("#compared"), "Two runs")
        self.query_one("#compared").focus()
        self.set_interval(_READ_EVERY_S, self._look)
        self._look()

    def _look(self) -> None:
        background.start(self, "read two runs", self._read, group="compare")

    async def _read(self) -> None:
        note = self.query_one("#attach-note", SafeText)
        try:
            left, right = await asyncio.to_thread(_both, self._runs, self.eagle.clock)
        except EagleError as error:
            note.show(styled((str(error), "$error"), ascii_=is_ascii(self.app)))
            return
        self.query_one("#compared", LedgerTable).fill(compare(left, right, self.eagle.clock()))
        same = left.run.tokenizer_hash == right.run.tokenizer_hash
        note.say("" if same else "The tokenizers differ: token counts of the two runs are not the same unit.")

    async def action_open_run(self, side: int) -> None:
        """Open one of the runs."""
        folder = self._runs[side]
        await self.app.pop_screen()
        await self.eagle.open_run(folder)

    async def action_back(self) -> None:
        """Back to the list of runs."""
        await self.app.pop_screen()


def _both(runs: tuple[RunFolder, RunFolder], clock: Callable[[], float]) -> tuple[Snapshot, Snapshot]:
    found = []
    for run in runs:
        with LedgerReader(run.ledger_path, clock) as reader:
            found.append(reader.snapshot())
    return found[0], found[1]


def _columns() -> tuple[Column[CompareRow], ...]:
    def head(text: Callable[[CompareRow], str]) -> Callable[[CompareRow], Piece]:
        return lambda row: (text(row), "bold $primary" if row.is_head else "")

    return (
        Column("", 22, head(lambda row: row.label if row.is_head else f"  {row.label}")),
        Column("", 0, head(lambda row: row.left), right=True),
        Column("", 19, head(lambda row: row.right), right=True),
        Column("", 13, lambda row: (row.difference, "$quiet"), right=True),
    )
