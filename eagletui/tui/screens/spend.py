"""Where the money stands, what each endpoint took and billed, and why its bill differs from our count."""

import asyncio
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Grid, Vertical, VerticalScroll

from eagletui.core.billing import EndpointBill
from eagletui.ledger.filters import Preset, SampleFilter
from eagletui.ledger.reader_spend import SpendReader
from eagletui.ledger.rebuying import Quarantined
from eagletui.ledger.rows import PriceRow
from eagletui.ledger.snapshot import EndpointFigures, Snapshot
from eagletui.tui import background, figures, orders, panels
from eagletui.tui.billing_text import bill_lines, key_pieces, throttle_lines
from eagletui.tui.keys import VIEW_KEYS, Key, View, bindings
from eagletui.tui.run_view import RunView
from eagletui.tui.screens.frame import FramedScreen
from eagletui.tui.screens.quarantine_dialog import QuarantineDialog
from eagletui.tui.screens.samples import SamplesScreen
from eagletui.tui.theme import is_ascii
from eagletui.tui.widgets.ledger_table import Column, LedgerTable
from eagletui.tui.widgets.meter import Meter
from eagletui.tui.widgets.safe_text import Piece, SafeText, name_panel, note_panel, stacked, styled
from eagletui.tui.widgets.stat import Stat

_BILLS_EVERY_S: Final = 10.0
_BOOKS = (
    ("settled", "settled"),
    ("held", "held"),
    ("unsettled", "unsettled"),
    ("unattributed", "unattributed"),
    ("committed", "committed"),
    ("key", "key shows"),
    ("stop-at", "stop-at"),
    ("cap", "cap"),
)
_USE = (
    ("projected", "projected"),
    ("usable", "usable"),
    ("wasted", "wasted"),
    ("burn", "burn"),
    ("billed-out", "billed out"),
    ("billed-in", "billed in"),
    ("attempts", "attempts"),
    ("retried", "retried"),
)


class SpendScreen(FramedScreen):
    """The books."""

    VIEW: ClassVar[View] = "spend"
    BINDINGS: ClassVar[list[BindingType]] = bindings("spend")

    def __init__(self) -> None:
        super().__init__()
        self._prices: Mapping[str, PriceRow] = {}
        self._seen: Snapshot | None = None
        self._bills: Mapping[str, EndpointBill] = {}
        self._billed_at = float("-inf")

    def compose_body(self) -> ComposeResult:
        """Lay out the books, what the money bought, and the endpoints."""
        with Grid(id="panels"):
            with Vertical(id="books", classes="panel"):
                yield Meter(id="books-meter")
                for line, label in _BOOKS:
                    yield Stat(label, label_cells=14, id=f"books-{line}")
                yield Stat("limits", label_cells=14, id="books-limits", classes="compact")
                yield Stat("projected", label_cells=14, id="books-bought", classes="compact")
            with Vertical(id="use", classes="panel"):
                for line, label in _USE:
                    yield Stat(label, label_cells=14, id=f"use-{line}")
        yield LedgerTable[EndpointFigures](self._columns(), empty="no endpoint yet", id="endpoints", classes="panel")
        with VerticalScroll(id="bill", classes="panel", can_focus=False):
            yield SafeText(id="bill-text")

    def on_mount(self) -> None:
        """Name the panels."""
        for panel, title in (("#books", "Books"), ("#use", "What it bought"), ("#endpoints", "Endpoints")):
            name_panel(self.query_one(panel), title)
        self.table.focus()

    @property
    def table(self) -> LedgerTable[EndpointFigures]:
        """The endpoints."""
        return self.query_one("#endpoints", LedgerTable)

    def paint_view(self, view: RunView) -> None:
        """Put the figures in their places."""
        snapshot = view.snapshot
        for name, values in (("books", books_figures(snapshot)), ("use", use_figures(snapshot))):
            for line, pieces in values.items():
                self.query_one(f"#{name}-{line}", Stat).put(*pieces)
        self.query_one("#books-limits", Stat).put(*limits(snapshot))
        self.query_one("#books-bought", Stat).put(*bought(snapshot))
        self.query_one("#books-meter", Meter).level = panels.spend_level(snapshot)
        self.query_one("#books-key", Stat).put(*key_pieces(snapshot, self.eagle.clock()))
        self.table.fill(snapshot.endpoints)
        if snapshot is not self._seen:
            self._seen = snapshot
            background.start(self, "read prices", self._read_prices, group="prices")
            if self.eagle.clock() - self._billed_at >= _BILLS_EVERY_S:
                self._billed_at = self.eagle.clock()
                background.start(self, "read the bills", self._read_bills, group="bills")
        self._show_bill()

    async def _read_prices(self) -> None:
        prices = {price.endpoint: price for price in await self.eagle.reader.prices()}
        if prices != self._prices:
            self._prices = prices
            self.query_one("#endpoints").refresh()
            self._show_bill()

    async def _read_bills(self) -> None:
        folder = self.eagle.folder
        assert folder is not None
        self._bills = {bill.endpoint: bill for bill in await asyncio.to_thread(_read_bills, folder.ledger_path)}
        self._show_bill()

    def on_ledger_table_moved(self, message: LedgerTable.Moved) -> None:
        """Explain the bill of the endpoint under the cursor."""
        self._show_bill()

    def _show_bill(self) -> None:
        row = self.table.current
        panel = self.query_one("#bill")
        if row is None:
            name_panel(panel, "Bill")
            return
        ascii_ = is_ascii(self.app)
        name_panel(panel, f"Bill of {row.tag}")
        note_panel(panel, self._listed(row.tag))
        lines = throttle_lines(row.throttled) + bill_lines(self._bills.get(row.tag), tuple(self._bills.values()))
        self.query_one("#bill-text", SafeText).show(stacked([styled(*line, ascii_=ascii_) for line in lines]))

    def _listed(self, tag: str) -> str:
        """Say what the tokens are priced at, since when, and who said so."""
        price = self._prices.get(tag)
        if price is None:
            return "no price is listed"
        source = {"endpoints": "the provider's list", "config": "the config", "local": "a local server"}[price.source]
        return f"listed price of {figures.date_time(price.fetched_at)}, from {source}"

    def label(self, key: Key) -> str:
        """Say what a key does now."""
        row = self.table.current if self._is_composed else None
        if key.id == "spend.quarantine" and row is not None and _is_set_aside(row):
            return "Release"
        return super().label(key)

    def on_ledger_table_chosen(self, message: LedgerTable.Chosen) -> None:
        """Show what drifts at the endpoint."""
        background.start(self, "open the samples", self.action_drift, group="open")

    async def action_drift(self) -> None:
        """Show the endpoint's samples that drift."""
        await self._open_samples("drifting")

    async def action_samples(self) -> None:
        """Show the endpoint's samples."""
        await self._open_samples(None)

    async def _open_samples(self, preset: Preset | None) -> None:
        row = self.table.current
        if row is None:
            return
        await self.eagle.action_view("samples")
        screen = self.app.screen
        if isinstance(screen, SamplesScreen):
            screen.show_only(SampleFilter(endpoints=(row.tag,), preset=preset))

    def action_quarantine(self) -> None:
        """Set the endpoint's answers aside since a time, or undo that, after asking."""
        row, folder, view = self.table.current, self.eagle.folder, self.eagle.view
        if row is None or folder is None or view is None:
            return
        reason = self.why_not(VIEW_KEYS[self.VIEW][0])
        if reason is not None:
            self.say((f"Set aside: {reason}", "$warning"))
            return
        if _is_set_aside(row):
            orders.ask_release(self.eagle, row.tag)
            return

        def done(since: float | None) -> None:
            if since is not None:
                orders.give(self.eagle, ("quarantine", {"endpoint": row.tag, "since": since}))

        run = view.snapshot.run
        price = partial(_would_set_aside, folder.ledger_path, row.tag)
        first_at = run.started_at or run.created_at
        self.app.push_screen(QuarantineDialog(row.tag, first_at, self.eagle.clock(), price, view.folder.argument), done)

    def _columns(self) -> tuple[Column[EndpointFigures], ...]:
        return (
            Column("endpoint", 0, lambda row: row.tag),
            Column("state", 11, _state),
            Column("samples", 8, lambda row: figures.count(row.samples), right=True),
            Column("failed", 6, lambda row: figures.count(row.failures), right=True),
            Column("billed", 10, lambda row: figures.count(row.billed_output), right=True, from_width=100),
            Column("counted", 10, lambda row: figures.count(row.output), right=True, from_width=100),
            Column(
                "drift", 7, lambda row: "-" if row.drift_percent is None else figures.signed(row.drift_tokens), True
            ),
            Column("offset", 6, _offset, right=True, from_width=76),
            Column("in/out $/1M", 13, self._price, right=True, from_width=100),
            Column("cost", 10, lambda row: figures.usd(row.cost_pico), right=True),
        )

    def _price(self, row: EndpointFigures) -> str:
        price = self._prices.get(row.tag)
        if price is None:
            return figures.UNKNOWN
        return f"{_per_million(price.prompt_usd)}/{_per_million(price.completion_usd)}"


def _read_bills(path: Path) -> list[EndpointBill]:
    with SpendReader(path) as reader:
        return reader.bills()


def _would_set_aside(path: Path, endpoint: str, since: float) -> Quarantined:
    with SpendReader(path) as reader:
        return reader.would_set_aside(endpoint, since)


def _is_set_aside(row: EndpointFigures) -> bool:
    return row.row is not None and row.row.state == "quarantined"


def books_figures(snapshot: Snapshot) -> dict[str, tuple[Piece, ...]]:
    """Where the money stands."""
    books = snapshot.spend.books
    room = books.cap_pico - books.committed_pico
    side = "above" if room < 0 else "below"
    return {
        "settled": ((figures.usd(books.settled_pico), "bold"), "   known costs"),
        "held": (figures.usd(books.held_pico), f"   {figures.count(snapshot.in_flight)} in flight, worst case"),
        "unsettled": (figures.usd(books.unsettled_pico), "   worst case, cost not known yet"),
        "unattributed": (figures.usd(books.unattributed_pico), "   seen on the key, in sum"),
        "committed": (figures.usd(books.committed_pico), f"   all of it; {figures.usd(abs(room))} {side} the cap"),
        "stop-at": (figures.usd_short(books.stop_at_pico), f"   {panels.stop_at_forecast(snapshot)}"),
        "cap": panels.cap_pieces(books, "never committed beyond"),
    }


def limits(snapshot: Snapshot) -> tuple[Piece, ...]:
    """Both limits, on one line."""
    books = snapshot.spend.books
    stop_at = f"stop-at {figures.usd_short(books.stop_at_pico)}"
    cap = f"cap {figures.usd_short(books.cap_pico)}"
    if panels.is_cap_passed(books):
        return (f"{cap}   {stop_at}   ", (panels.CAP_PASSED, panels.ALARM))
    return (f"{cap}   {stop_at}   {panels.stop_at_forecast(snapshot)}",)


def bought(snapshot: Snapshot) -> tuple[Piece, ...]:
    """What the money bought, on one line."""
    return (
        *panels.projected_pieces(snapshot)[:1],
        f" in all   {figures.usd(snapshot.spend.per_million_usable_pico)} per 1M usable tok",
        f"   {figures.usd(snapshot.spend.wasted_pico)} wasted",
    )


def use_figures(snapshot: Snapshot) -> dict[str, tuple[Piece, ...]]:
    """What the money bought."""
    tokens = snapshot.tokens
    return {
        "projected": panels.projected_pieces(snapshot),
        "usable": (
            f"{figures.usd(snapshot.spend.per_million_usable_pico)} per 1M usable tok",
            f"   {figures.count(tokens.trainable)} tok",
        ),
        "wasted": (figures.usd(snapshot.spend.wasted_pico), "   settled without an answer"),
        "burn": (panels.burn(snapshot),),
        "billed-out": (f"{figures.count(tokens.billed_output)} tok", f"   counted {figures.count(tokens.output)}"),
        "billed-in": (f"{figures.count(tokens.billed_prompt)} tok", f"   counted {figures.count(tokens.prompt)}"),
        "attempts": (
            f"{figures.count(sum(snapshot.attempts.values()))}",
            f"   settled {figures.count(snapshot.attempts.get('settled'))}"
            f"   void {figures.count(snapshot.attempts.get('void'))}"
            f"   unsettled {figures.count(snapshot.attempts.get('unsettled'))}",
        ),
        "retried": (figures.count(snapshot.retries), f"   {figures.plural(snapshot.failures, 'error')}"),
    }


def _state(row: EndpointFigures) -> Piece:
    if row.row is None:
        return ("unlisted", "$warning")
    return row.row.state if row.row.state == "open" else (row.row.state, "bold $warning")


def _offset(row: EndpointFigures) -> str:
    return figures.signed(row.row.offset_tokens) if row.row is not None and row.row.offset_tokens else "none"


def _per_million(usd_per_token: str) -> str:
    return f"{float(usd_per_token) * 1_000_000:.2f}"
