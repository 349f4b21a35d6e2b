"""Verdicts: what of each data set is in doubt, what accepting it costs, and who signed."""

import asyncio
import threading
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll

from eagletui.core.errors import EagleError
from eagletui.core.verdicts import Basis
from eagletui.ledger.filters import SampleFilter
from eagletui.ledger.rows import VerdictRow
from eagletui.ledger.snapshot import DatasetFigures, Snapshot
from eagletui.ledger.verdict_basis import read_basis
from eagletui.runs.folder import RunFolder
from eagletui.tui import background, figures
from eagletui.tui.keys import VIEW_KEYS, Key, View, bindings
from eagletui.tui.run_view import RunView
from eagletui.tui.screens.frame import FramedScreen
from eagletui.tui.screens.samples import SamplesScreen
from eagletui.tui.screens.sign_dialog import Signature, SignDialog
from eagletui.tui.theme import is_ascii
from eagletui.tui.verdict_text import basis_lines, proved_of, signature_lines, standing
from eagletui.tui.widgets.ledger_table import Column, LedgerTable
from eagletui.tui.widgets.safe_text import Piece, SafeText, name_panel, stacked, styled


class _StoppedReadingError(Exception):
    """The screen no longer wants what is being read."""


class VerdictsScreen(FramedScreen):
    """A table of data sets, and what a verdict on the one under the cursor would rest on."""

    VIEW: ClassVar[View] = "verdicts"
    BINDINGS: ClassVar[list[BindingType]] = bindings("verdicts")

    def __init__(self) -> None:
        super().__init__()
        self._verdicts: Sequence[VerdictRow] = ()
        self._bases: dict[str, tuple[int, Basis]] = {}
        """By data set: how many samples were rebuilt then, and what was found."""
        self._seen: Snapshot | None = None
        self._stop = threading.Event()

    def compose_body(self) -> ComposeResult:
        """Lay out the data sets and what is known of one."""
        yield LedgerTable[DatasetFigures](self._columns(), empty="no data set yet", id="verdicts", classes="panel")
        with VerticalScroll(id="basis", classes="panel", can_focus=False):
            yield SafeText(id="basis-text")

    def on_mount(self) -> None:
        """Name the panels."""
        name_panel(self.table, "Data sets")
        self.table.focus()

    def on_unmount(self) -> None:
        """End what is being read."""
        self._stop.set()

    @property
    def table(self) -> LedgerTable[DatasetFigures]:
        """The data sets."""
        return self.query_one("#verdicts", LedgerTable)

    def why_not(self, key: Key) -> str | None:
        """Give the reason a key cannot be used now, or None."""
        row = self.table.current if self._is_composed else None
        if key.id == "verdicts.sign" and row is not None and not sum(row.evidence.values()):
            return "nothing of it is answered yet"
        return super().why_not(key)

    def paint_view(self, view: RunView) -> None:
        """List the data sets; read verdicts where the ledger changed."""
        if view.snapshot is self._seen:
            return
        self._seen = view.snapshot
        self.table.fill(view.snapshot.datasets)
        background.start(self, "read the verdicts", self._read_verdicts, group="verdicts")

    async def _read_verdicts(self) -> None:
        verdicts = await self.eagle.reader.verdicts()
        if verdicts != self._verdicts:
            self._verdicts = verdicts
            self.table.refresh()
        self._show()

    def on_ledger_table_moved(self, message: LedgerTable.Moved) -> None:
        """Show the data set under the cursor."""
        self._show()

    def _show(self) -> None:
        row = self.table.current
        if row is None:
            return
        name_panel(self.query_one("#basis"), f"Verdict on {row.name}")
        rebuilt = sum(row.evidence.values())
        kept = self._bases.get(row.name)
        lines: list[tuple[Piece, ...]]
        if not rebuilt:
            lines = [("Nothing of it is answered yet.",)]
        elif kept is None:
            lines = [(("Reading what differs ...", "$quiet"),)]
        else:
            lines = basis_lines(kept[1])
            if kept[0] != rebuilt:
                lines.append(((f"as of {kept[0]:,} answers; {rebuilt:,} now", "$quiet"),))
        self._say(lines + signature_lines(self._verdicts, row.name))
        if rebuilt and (kept is None or kept[0] != rebuilt) and self.app.screen is self:
            self._stop.set()
            self._stop = threading.Event()
            work = partial(self._read_basis, row.name, rebuilt, self._stop)
            background.start(self, "read what differs", work, group="basis")

    async def _read_basis(self, dataset: str, rebuilt: int, stop: threading.Event) -> None:
        folder = self.eagle.folder
        assert folder is not None

        def step(_: int) -> None:
            if stop.is_set():
                raise _StoppedReadingError

        try:
            found = await asyncio.to_thread(read_basis, folder.ledger_path, dataset, step)
        except _StoppedReadingError:
            return
        except EagleError as error:
            self.say((str(error), "$error"))
            return
        self._bases[dataset] = (rebuilt, found)
        self._show()
        self.table.refresh()

    def _say(self, lines: Sequence[tuple[Piece, ...]]) -> None:
        ascii_ = is_ascii(self.app)
        self.query_one("#basis-text", SafeText).show(stacked([styled(*line, ascii_=ascii_) for line in lines]))

    def _columns(self) -> tuple[Column[DatasetFigures], ...]:
        def mismatched(row: DatasetFigures) -> Piece:
            kept = self._bases.get(row.name)
            return figures.UNKNOWN if kept is None else figures.count(kept[1].mismatched)

        def signed(row: DatasetFigures) -> Piece:
            return standing(next((one for one in reversed(self._verdicts) if one.dataset == row.name), None))

        return (
            Column("data set", 0, lambda row: row.name),
            Column("samples", 9, lambda row: figures.count(row.samples), right=True),
            Column("rebuilt", 9, lambda row: figures.count(sum(row.evidence.values())), right=True, from_width=100),
            Column("proved", 9, lambda row: figures.count(proved_of(row)), right=True),
            Column("counted", 9, lambda row: figures.count(row.evidence.get("counted", 0)), right=True, from_width=90),
            Column("other ids", 9, lambda row: figures.count(row.resegmented), right=True),
            Column("drifting", 8, lambda row: figures.count(row.drifting), right=True, from_width=90),
            Column("mismatched", 10, mismatched, right=True),
            Column("verdict", 9, signed),
        )

    def on_ledger_table_chosen(self, message: LedgerTable.Chosen) -> None:
        """Sign for the data set."""
        self.action_sign()

    def action_sign(self) -> None:
        """Ask for a signature."""
        row = self.table.current
        if row is None:
            return
        reason = self.why_not(VIEW_KEYS[self.VIEW][0])
        kept = self._bases.get(row.name)
        if reason is not None:
            self.say((f"Sign: {reason}", "$warning"))
        elif kept is None:
            self.say(("Sign: what differs is still being read", "$warning"))
        else:
            lines = [*basis_lines(kept[1]), *signature_lines(self._verdicts, row.name)[:2]]
            self.app.push_screen(SignDialog(row.name, lines), partial(self._signed, row.name))

    def _signed(self, dataset: str, signature: Signature | None) -> None:
        folder = self.eagle.folder
        if signature is not None and folder is not None:
            self.say("Signing ...")
            work = partial(self._sign, folder, dataset, signature)
            background.start(self, "sign the verdict", work, group="sign", exclusive=False)

    async def _sign(self, folder: RunFolder, dataset: str, signature: Signature) -> None:
        arguments = [f"--dataset={dataset}", f"--rule={signature.rule}", f"--by={signature.name}"]
        if signature.is_refusal:
            arguments.append("--refuse")
        ran = await self.eagle.program("accept", str(folder.path), *arguments, "--json", outlives=True)
        if ran.code != 0:
            self.say((f"Not signed: {ran.complaint}", "$error"))
            return
        did = "Refused" if signature.is_refusal else "Accepted"
        self.say((f"{did} {dataset}, signed by {signature.name}: {signature.rule}", "$primary"))
        await self._read_verdicts()

    async def action_samples(self) -> None:
        """Show the samples that differ in the browser."""
        row = self.table.current
        if row is None:
            return
        await self.eagle.action_view("samples")
        screen = self.app.screen
        if isinstance(screen, SamplesScreen):
            screen.show_only(SampleFilter(datasets=(row.name,), preset="mismatched"))
