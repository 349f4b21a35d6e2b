"""Hidden states: how far extraction is, its shards, and each data set's share."""

import json
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Grid, Vertical

from eagletui.ledger.rows import ShardRow
from eagletui.ledger.snapshot import DatasetFigures, Snapshot
from eagletui.tui import background, figures, panels
from eagletui.tui.keys import View, bindings
from eagletui.tui.run_view import RunView
from eagletui.tui.screens.frame import FramedScreen
from eagletui.tui.widgets.ledger_table import Column, LedgerTable
from eagletui.tui.widgets.meter import Meter
from eagletui.tui.widgets.safe_text import Piece, name_panel
from eagletui.tui.widgets.stat import Stat

_LINES = (
    ("features", "samples"),
    ("shards", "shards"),
    ("lag", "lag"),
    ("rows", "rows"),
    ("disk", "disk"),
    ("extractor", "extractor"),
)


class ExtractScreen(FramedScreen):
    """Extraction."""

    VIEW: ClassVar[View] = "extract"
    BINDINGS: ClassVar[list[BindingType]] = bindings("extract")

    def __init__(self) -> None:
        super().__init__()
        self._seen: Snapshot | None = None

    def compose_body(self) -> ComposeResult:
        """Lay out the figures, the shards and the data sets."""
        with Grid(id="panels"):
            with Vertical(id="features", classes="panel"):
                yield Meter(id="features-meter")
                for line, label in _LINES:
                    yield Stat(label, id=f"features-{line}")
            yield LedgerTable[DatasetFigures](_dataset_columns(), empty="no data set", id="datasets", classes="panel")
        yield LedgerTable[ShardRow](_shard_columns(), empty="no shard is sealed yet", id="shards", classes="panel")

    def on_mount(self) -> None:
        """Name the panels."""
        for panel, title in (("#features", "Extraction"), ("#datasets", "Data sets"), ("#shards", "Shards")):
            name_panel(self.query_one(panel), title)
        self.query_one("#shards").focus()

    def paint_view(self, view: RunView) -> None:
        """Put the figures in their places."""
        snapshot = view.snapshot
        values = panels.extraction(snapshot, view.free_bytes)
        values["extractor"] = (*values["extractor"], *_detail(snapshot))
        for line, pieces in values.items():
            self.query_one(f"#features-{line}", Stat).put(*pieces)
        self.query_one("#features-meter", Meter).level = panels.extract_level(snapshot)
        self.query_one("#datasets", LedgerTable).fill(snapshot.datasets)
        if snapshot is not self._seen:
            self._seen = snapshot
            background.start(self, "read shards", self._read_shards, group="shards")

    async def _read_shards(self) -> None:
        shards = await self.eagle.reader.shards()
        table = self.query_one("#shards", LedgerTable)
        if len(shards) != table.row_count or (shards and table.row_at(0) != shards[0]):
            table.fill(shards)


def _detail(snapshot: Snapshot) -> tuple[Piece, ...]:
    worker = next((worker for worker in snapshot.workers if worker.role == "extractor"), None)
    if worker is None or worker.stopped:
        return ()
    try:
        found: Any = json.loads(worker.detail_json)
    except ValueError:
        return ()
    if not isinstance(found, dict):
        return ()
    shown = [f"{name} {value}" for name, value in found.items() if isinstance(value, str | int | float)]
    return (("   " + "  ".join(shown[:4]), "$quiet"),) if shown else ()


def _dataset_columns() -> tuple[Column[DatasetFigures], ...]:
    def trainable(row: DatasetFigures) -> int:
        return row.usability.get("usable", 0) + row.usability.get("resegmented", 0)

    return (
        Column("data set", 0, lambda row: row.name),
        Column("samples", 8, lambda row: figures.count(row.samples), right=True),
        Column("trainable", 9, lambda row: figures.count(trainable(row)), right=True),
        Column("reseg.", 6, lambda row: figures.count(row.resegmented), right=True),
        Column("extracted", 9, lambda row: figures.count(row.extracted), right=True),
    )


def _shard_columns() -> tuple[Column[ShardRow], ...]:
    return (
        Column("shard", 0, lambda row: row.path),
        Column("samples", 8, lambda row: figures.count(row.samples), right=True),
        Column("rows", 10, lambda row: figures.count(row.rows), right=True),
        Column("size", 10, lambda row: figures.size(row.bytes), right=True),
        Column("sealed", 8, lambda row: figures.time_of_day(row.sealed_at)),
        Column("verified", 8, lambda row: figures.time_of_day(row.verified_at) if row.verified_at else "not yet"),
        Column("xxh3", 32, lambda row: (row.xxh3, "$quiet"), from_width=110),
    )
