"""Hidden states: how far extraction is, what it takes of the machine, whether the disk holds it, and its shards."""

from collections.abc import Sequence
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Grid, Vertical

from eagletui.ledger.reader_opinions import ArbiterFigures
from eagletui.ledger.rows import ShardRow
from eagletui.ledger.snapshot import DatasetFigures, Snapshot
from eagletui.tui import background, extract_text, figures
from eagletui.tui.keys import View, bindings
from eagletui.tui.run_view import RunView
from eagletui.tui.screens.frame import FramedScreen
from eagletui.tui.standing import SILENT_AFTER_S, silence
from eagletui.tui.widgets.ledger_table import Column, LedgerTable
from eagletui.tui.widgets.meter import Meter
from eagletui.tui.widgets.safe_text import name_panel, note_panel
from eagletui.tui.widgets.stat import Stat

_ALWAYS: Final = ""
_ROOMY: Final = "full"
_TIGHT: Final = "compact"
_PANELS: Final[tuple[tuple[str, str, tuple[tuple[str, str, str], ...]], ...]] = (
    (
        "features",
        "Extraction",
        (
            ("features", "samples", _ALWAYS),
            ("shards", "shards", _ALWAYS),
            ("rows", "rows", _ROOMY),
            ("lag", "lag", _ALWAYS),
            ("rate", "pace", _ROOMY),
            ("verified", "verified", _ALWAYS),
            ("arbiter", "arbiter", _ALWAYS),
        ),
    ),
    (
        "machine",
        "Machine",
        (
            ("extractor", "extractor", _ALWAYS),
            ("cpu", "cpu", _ROOMY),
            ("memory", "memory", _ROOMY),
            ("process", "cpu, memory", _TIGHT),
            ("gpu", "gpu", _ALWAYS),
            ("disk", "disk", _ROOMY),
            ("writing", "writing", _ROOMY),
            ("storage", "disk", _TIGHT),
            ("outlook", "outlook", _ALWAYS),
        ),
    ),
)
"""Panel id, title and its lines: id, label and at which sizes."""


class ExtractScreen(FramedScreen):
    """Extraction."""

    VIEW: ClassVar[View] = "extract"
    BINDINGS: ClassVar[list[BindingType]] = bindings("extract")

    def __init__(self) -> None:
        super().__init__()
        self._seen: Snapshot | None = None
        self._shards: Sequence[ShardRow] = ()
        self._arbiter: ArbiterFigures | None = None

    def compose_body(self) -> ComposeResult:
        """Lay out the figures, the shards and the data sets."""
        with Grid(id="panels"):
            for panel, _, lines in _PANELS:
                with Vertical(id=panel, classes="panel"):
                    if panel == "features":
                        yield Meter(id="features-meter", classes=_ROOMY)
                    for line, label, sizes in lines:
                        yield Stat(label, label_cells=12, id=f"{panel}-{line}", classes=sizes or None)
        yield LedgerTable[DatasetFigures](_dataset_columns(), empty="no data set", id="datasets", classes="panel")
        yield LedgerTable[ShardRow](
            _shard_columns(),
            empty="no shard is sealed yet: eagletui extract computes them",
            id="shards",
            classes="panel",
        )

    def on_mount(self) -> None:
        """Name the panels."""
        for panel, title, _ in _PANELS:
            name_panel(self.query_one(f"#{panel}"), title)
        for panel, title in (("#datasets", "Data sets"), ("#shards", "Shards")):
            name_panel(self.query_one(panel), title)
            note_panel(self.query_one(panel), "tab: the other list")
        self.query_one("#shards").focus()

    def paint_view(self, view: RunView) -> None:
        """Put the figures in their places."""
        snapshot = view.snapshot
        self._put("features", extract_text.progress(snapshot, view.ticks))
        self._put("machine", {"extractor": extract_text.extractor(snapshot)})
        self._put("machine", extract_text.machine(snapshot))
        self._put("machine", extract_text.disk(snapshot, view.free_bytes, view.ticks))
        self.query_one("#features-meter", Meter).level = extract_text.level(snapshot)
        self.query_one("#datasets", LedgerTable).fill(snapshot.datasets)
        self._put_checked(snapshot)
        if snapshot is not self._seen:
            self._seen = snapshot
            background.start(self, "read shards", self._read_shards, group="shards")

    def show_frame(self, view: RunView) -> None:
        """Say how old the figures of the machine are; also where only time has passed."""
        super().show_frame(view)
        if self._can_paint:
            note_panel(self.query_one("#machine"), _age(view.snapshot, self.eagle.clock()))

    def _put(self, panel: str, values: dict[str, extract_text.Pieces]) -> None:
        for line, pieces in values.items():
            self.query_one(f"#{panel}-{line}", Stat).put(*pieces)

    def _put_checked(self, snapshot: Snapshot) -> None:
        checked = extract_text.verified(snapshot, self._shards)
        asked = extract_text.arbiter(snapshot, self._arbiter, self.eagle.clock())
        self._put("features", {"verified": checked, "arbiter": asked})

    async def _read_shards(self) -> None:
        shards = await self.eagle.reader.shards()
        self._arbiter = await self.eagle.reader.arbiter_figures()
        if shards != self._shards:
            self._shards = shards
            self.query_one("#shards", LedgerTable).fill(shards)
        if self._seen is not None:
            self._put_checked(self._seen)

    def action_next_list(self) -> None:
        """Go to the other list; where there is room for one only, show that one."""
        to_datasets = self.query_one("#shards").has_focus
        self.set_class(to_datasets, "-datasets")
        self.query_one("#datasets" if to_datasets else "#shards").focus()


def _age(snapshot: Snapshot, now: float) -> str:
    worker = extract_text.extractor_of(snapshot)
    if worker is None or not worker.alive:
        return "disk: now"
    old_s = silence(worker, snapshot, now)
    return f"as of {figures.age(old_s)} ago" if old_s > SILENT_AFTER_S else "as of <5 s ago"


def _dataset_columns() -> tuple[Column[DatasetFigures], ...]:
    def trainable(row: DatasetFigures) -> int:
        return row.usability.get("usable", 0) + row.usability.get("resegmented", 0)

    return (
        Column("data set", 0, lambda row: row.name),
        Column("samples", 8, lambda row: figures.count(row.samples), right=True),
        Column("trainable", 9, lambda row: figures.count(trainable(row)), right=True),
        Column("other ids", 9, lambda row: figures.count(row.resegmented), right=True),
        Column("extracted", 9, lambda row: figures.count(row.extracted), right=True),
    )


def _shard_columns() -> tuple[Column[ShardRow], ...]:
    return (
        Column("shard", 0, lambda row: row.path),
        Column("samples", 8, lambda row: figures.count(row.samples), right=True),
        Column("rows", 10, lambda row: figures.count(row.rows), right=True, from_width=70),
        Column("size", 10, lambda row: figures.size(row.bytes), right=True),
        Column("sealed", 8, lambda row: figures.time_of_day(row.sealed_at)),
        Column("verified", 8, lambda row: figures.time_of_day(row.verified_at) if row.verified_at else "not yet"),
        Column("xxh3", 32, lambda row: (row.xxh3, "$quiet"), from_width=110),
    )
