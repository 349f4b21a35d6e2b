"""Every sample: a virtual list over the ledger with a filter line, presets, marks and a preview."""

from array import array
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import ClassVar, Final, get_args

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import Input

from eagletui.core.errors import LedgerError
from eagletui.ledger.async_reader import AsyncReader
from eagletui.ledger.filters import SampleFilter, Sort
from eagletui.ledger.rows import SampleRow
from eagletui.ledger.snapshot import Snapshot
from eagletui.tui import background, standing
from eagletui.tui.filter_line import (
    EXAMPLE,
    PRESETS,
    FilterLineError,
    may_go_on_as_field,
    preset_name,
    read_filter,
    write_filter,
)
from eagletui.tui.keys import View, bindings
from eagletui.tui.run_view import RunView
from eagletui.tui.sample_columns import sample_columns
from eagletui.tui.sample_export import Picked
from eagletui.tui.sample_order import SampleOrder
from eagletui.tui.sample_problems import SampleProblems
from eagletui.tui.sample_search import Listed, listed_pieces, search
from eagletui.tui.sample_text import preview_lines, row_line, row_lines
from eagletui.tui.screens.clip import copy_text
from eagletui.tui.screens.frame import FramedScreen
from eagletui.tui.screens.picked_samples import offer_export, offer_retry, save_sample
from eagletui.tui.theme import glyphs_of, is_ascii
from eagletui.tui.widgets.entry import Entry
from eagletui.tui.widgets.ledger_table import PAGE_ROWS, LedgerTable
from eagletui.tui.widgets.safe_text import SafeText, name_panel, stacked, styled

_PAINTED_EVERY_S: Final = 0.5
"""While a search goes on: its parts are faster than a line over SSH."""


class SamplesScreen(FramedScreen):
    """The browser."""

    VIEW: ClassVar[View] = "samples"
    BINDINGS: ClassVar[list[BindingType]] = bindings("samples")

    def __init__(self) -> None:
        super().__init__()
        self._wanted = SampleFilter()
        self._ids: Sequence[int] = ()
        self._problems = SampleProblems()
        self._marked: dict[str, int] = {}
        """Row ids by sample key."""
        self._loaded_at_event = -1
        self._search: AsyncReader | None = None
        """A reader of its own for lists, which may take long: the screen and the rest of the app read on meanwhile."""
        self._is_searching = False
        self._looked_at: int | None = None
        """Samples that a search for a text has looked at so far; None: all of them."""
        self._before_typing: SampleFilter | None = None
        """The filter to go back to while another one is typed."""
        self._seen: Snapshot | None = None

    def compose_body(self) -> ComposeResult:
        """Lay out the filter line, the list and the preview."""
        yield SafeText(id="filter-line")
        yield Entry(id="filter-input", classes="-hidden")
        with Horizontal(id="samples-body"):
            yield LedgerTable[SampleRow](
                sample_columns(lambda: glyphs_of(self.app)),
                empty="no sample fits",
                is_marked=lambda row: row.sample_key in self._marked,
                shows_range=True,
                id="samples",
                classes="panel",
            )
            with VerticalScroll(id="preview", classes="panel", can_focus=False):
                yield SafeText(id="preview-text")

    def on_mount(self) -> None:
        """Load the list."""
        name_panel(self.query_one("#preview"), "Preview")
        name_panel(self.table, "Samples")
        self.table.focus()
        self._load()

    async def on_unmount(self) -> None:
        """Close the reader."""
        if self._search is not None:
            await self._search.close()

    @property
    def table(self) -> LedgerTable[SampleRow]:
        """The list."""
        return self.query_one("#samples", LedgerTable)

    def paint_view(self, view: RunView) -> None:
        """Read the visible rows again where the ledger changed."""
        if view.snapshot is not self._seen:
            self._seen = view.snapshot
            if self._ids:
                self.table.ask_again()
        self._say_filter(view)

    def show_only(self, wanted: SampleFilter) -> None:
        """Filter as another screen asks."""
        self._wanted = wanted
        self._load()

    def _load(self, keep: int | None = None) -> None:
        if self._search is not None and self._is_searching:
            self._search.interrupt()
        background.start(self, "list the samples", partial(self._read_list, keep), group="list")

    async def _read_list(self, keep: int | None) -> None:
        """Show the first page at once, then everything; put the cursor back on the sample it was on."""
        self._problems.forget()
        wanted = self._wanted
        folder = self.eagle.folder
        assert folder is not None
        self._is_searching, self._looked_at = True, None
        self._say_searching()
        try:
            if self._search is None:
                self._search = await AsyncReader.open(folder.ledger_path, self.eagle.clock)
            if keep is None and wanted.text:
                await self._search_text(self._search, wanted)
            elif keep is None:
                page = await self._search.page(wanted, None, PAGE_ROWS)
                self._ids = [row.id for row in page]
                self.table.reset(len(page))
                self.table.put(0, page)
            if keep is not None or not wanted.text:
                ids = await self._search.sample_ids(wanted)
                if wanted == self._wanted:
                    self._show_ids(ids, keep)
        except LedgerError as error:
            if wanted == self._wanted:
                self.say((f"The list was not read: {error}", "$warning"))
        else:
            if wanted == self._wanted and self.eagle.view is not None:
                self._loaded_at_event = self.eagle.view.snapshot.samples
        finally:
            self._is_searching = wanted != self._wanted
            if not self._is_searching:
                self.table.say_empty("no sample fits")
            self._say_searching()

    def _show_ids(self, ids: "array[int]", keep: int | None) -> None:
        self._ids = ids
        if keep is None:
            self.table.grow(len(ids))
        else:
            self.table.reset(len(ids), cursor=ids.index(keep) if keep in ids else 0)

    async def _search_text(self, reader: AsyncReader, wanted: SampleFilter) -> None:
        """Look through all samples, showing hits as they come, until `esc` ends it or another search begins."""
        self._ids = ()
        self.table.say_empty("nothing found so far")
        self.table.reset(0)
        self._preview()
        painted_at = 0.0
        async for found in search(reader, wanted):
            if wanted != self._wanted:
                return
            self._looked_at = found.looked_at
            is_first = bool(found.ids) and not self.table.row_count
            if is_first or found.looked_at is None or monotonic() - painted_at >= _PAINTED_EVERY_S:
                painted_at = monotonic()
                self._ids = found.ids
                self.table.grow(len(found.ids))
                self._say_searching()

    def _say_searching(self) -> None:
        if self.eagle.view is not None:
            self._say_filter(self.eagle.view)

    def on_ledger_table_page_wanted(self, message: LedgerTable.PageWanted) -> None:
        """Read a page that came into view."""
        background.start(
            self,
            "read a page of samples",
            partial(self._read_page, message.page),
            group=f"page-{message.page}",
            exclusive=False,
        )

    async def _read_page(self, page: int) -> None:
        start = page * PAGE_ROWS
        ids = list(self._ids[start : start + PAGE_ROWS])
        rows = await self.eagle.reader.rows(ids)
        # A list that a search has made longer meanwhile still begins with these.
        if ids == list(self._ids[start : start + len(ids)]):
            self.table.put(page, rows)

    def _say_filter(self, view: RunView) -> None:
        listed = Listed(
            found=len(self._ids),
            samples=view.snapshot.samples,
            new=view.snapshot.samples - self._loaded_at_event if self._loaded_at_event >= 0 else 0,
            looked_at=self._looked_at,
            is_searching=self._is_searching,
            marked=len(self._marked),
        )
        pieces = listed_pieces(self._wanted, listed, wide=self.app.size.width >= 100)
        self.query_one("#filter-line", SafeText).show(styled(*pieces, ascii_=is_ascii(self.app)))

    def on_ledger_table_moved(self, message: LedgerTable.Moved) -> None:
        """Show the sample under the cursor."""
        self._preview()
        if self.eagle.view is not None:
            self._say_filter(self.eagle.view)

    def _preview(self) -> None:
        row = self.table.current
        text = self.query_one("#preview-text", SafeText)
        if row is None:
            text.say("")
            return
        if self.app.size.width >= 100 and not self.query_one("#preview").has_class("-hidden"):
            background.start(self, "read a sample", partial(self._read_preview, row.sample_key), group="preview")
        else:
            text.show(stacked(row_lines(row, ascii_=is_ascii(self.app))))

    async def _read_preview(self, key: str) -> None:
        detail = await self.eagle.reader.sample(key)
        row = self.table.current
        if detail is not None and row is not None and row.sample_key == key:
            lines = preview_lines(detail, ascii_=is_ascii(self.app))
            self.query_one("#preview-text", SafeText).show(stacked(lines))

    def on_ledger_table_chosen(self, message: LedgerTable.Chosen) -> None:
        """Open the inspector."""
        self.action_open()

    def action_open(self) -> None:
        """Open the inspector on the sample under the cursor."""
        row = self.table.current
        if row is not None:
            self.eagle.open_sample(row.sample_key, SampleOrder(ids=self._ids), self.table.cursor)

    def action_filter(self) -> None:
        """Edit the filter line."""
        self._before_typing = self._wanted
        self.query_one("#filter-input", Entry).edit(write_filter(self._wanted))
        self.say((EXAMPLE, "$quiet"))

    def on_input_changed(self, event: Input.Changed) -> None:
        """Search for the text as it is typed; other conditions wait for enter, since half of one fits nothing."""
        before, line = self._before_typing, event.value
        if before is None:
            return
        if may_go_on_as_field(line):
            line = " ".join(line.split()[:-1])
        with suppress(FilterLineError):
            wanted = replace(before, text=read_filter(line, before).text)
            if wanted != self._wanted:
                self._wanted = wanted
                self._load()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Apply the filter line, or say what is wrong with it."""
        try:
            wanted = read_filter(event.value, self._wanted)
        except FilterLineError as error:
            self.say((f"Filter: {error}", "$warning"))
            return
        self._leave_filter()
        if wanted != self._wanted or not wanted.text:
            self._wanted = wanted
            self._load()

    def _leave_filter(self) -> None:
        self._before_typing = None
        self.query_one("#filter-input", Input).add_class("-hidden")
        self.table.focus()

    async def action_back(self) -> None:
        """Leave the filter line, then clear the filter, then go to the run."""
        if self.query_one("#filter-input", Input).has_focus:
            before = self._before_typing
            self._leave_filter()
            if before is not None and before != self._wanted:
                self._wanted = before
                self._load()
        elif self._is_searching and self._search is not None:
            self._search.interrupt()
            if self._looked_at is not None:
                self.workers.cancel_group(self, "list")
        elif preset_name(self._wanted) != "all":
            self._wanted = SampleFilter(sort=self._wanted.sort, reverse=self._wanted.reverse)
            self._load()
        else:
            await super().action_back()

    def action_preset(self) -> None:
        """Take the next ready-made filter."""
        names = list(PRESETS)
        now = preset_name(self._wanted)
        following = names[(names.index(now) + 1) % len(names) if now in names else 0]
        self._wanted = replace(PRESETS[following], sort=self._wanted.sort, reverse=self._wanted.reverse)
        self._load()

    def action_sort(self) -> None:
        """Sort by the next figure."""
        sorts: tuple[Sort, ...] = get_args(Sort)
        following = sorts[(sorts.index(self._wanted.sort) + 1) % len(sorts)]
        self._wanted = replace(self._wanted, sort=following, reverse=following != "id")
        self._load()

    def action_reverse(self) -> None:
        """Turn the order around."""
        self._wanted = replace(self._wanted, reverse=not self._wanted.reverse)
        self._load()

    def action_reload(self) -> None:
        """Read the list anew, with the cursor on the same sample."""
        if self.eagle.view is not None and standing.can_start(self.eagle.view.snapshot):
            self.eagle.action_refresh_now()
            return
        row = self.table.current
        self._load(keep=None if row is None else row.id)

    def action_preview(self) -> None:
        """Show or hide the preview."""
        self.query_one("#preview").toggle_class("-hidden")
        self._preview()

    def action_mark(self) -> None:
        """Mark the sample and go to the next."""
        row = self.table.current
        if row is not None:
            if self._marked.pop(row.sample_key, None) is None:
                self._marked[row.sample_key] = row.id
            self.table.refresh_lines(self.table.cursor + 1)
            self.table.move_to(self.table.cursor + 1)

    def action_unmark(self) -> None:
        """Take every mark away."""
        self._marked.clear()
        self.table.refresh()
        self._say_searching()

    def action_export(self) -> None:
        """Write the marked samples, or all of the filter, after saying how many and where."""
        offer_export(self, Picked(tuple(sorted(self._marked)), self._wanted, len(self._ids)))

    def action_retry(self) -> None:
        """Queue failed, refused or set-aside samples again, after saying what that costs at most."""
        row = self.table.current
        ids = list(self._marked.values()) or ([row.id] if row is not None else [])
        offer_retry(self, ids, self.action_unmark)

    def action_next_problem(self) -> None:
        """Go to the next sample with a mismatch, drift or failure."""
        self._step_problem(1)

    def action_previous_problem(self) -> None:
        """Go to the previous one."""
        self._step_problem(-1)

    def _step_problem(self, by: int) -> None:
        background.start(self, "find the next problem", partial(self._find_problem, by), group="problem")

    async def _find_problem(self, by: int) -> None:
        found = await self._problems.step(self.eagle.reader, self._ids, self.table.cursor, by)
        if found is not None:
            self.table.move_to(found)
        elif self._problems.are_there:
            self.say("No problem further on.")
        else:
            self.say("No sample here has a mismatch, drift or a failure.")

    def action_copy(self) -> None:
        """Copy the sample's key and figures."""
        row = self.table.current
        if row is not None:
            copy_text(self, row_line(row))

    def action_save(self) -> None:
        """Save everything about the sample."""
        row = self.table.current
        if row is not None:
            save_sample(self, row.sample_key)
