"""The two lines at the top of every screen: which run, how it stands, how fresh that is, and where to go."""

from dataclasses import dataclass
from typing import Final

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.widget import Widget

from eagletui.core.text import cell_width, shorten
from eagletui.tui.keys import View
from eagletui.tui.theme import glyphs_of, is_ascii
from eagletui.tui.widgets.pill import RunStatus, StatusPill, pill
from eagletui.tui.widgets.safe_text import Piece, SafeText, styled

TABS: Final[tuple[tuple[View, str], ...]] = (
    ("run", "1 Run"),
    ("samples", "2 Samples"),
    ("spend", "3 Spend"),
    ("extract", "4 Extract"),
    ("log", "5 Log"),
    ("verdicts", "6 Verdicts"),
    ("charts", "7 Charts"),
)
_WIDE_CELLS: Final = 100
_GAPS: Final = 9
"""Margins between the parts and at the ends."""
_BRAND_CELLS: Final = 10
_ROOM_FOR_BRAND: Final = 50
_NAME_CELLS: Final = 12
"""The run's name is never cut below this."""
_SHORTEST_SUBJECT: Final = 8


@dataclass(frozen=True, slots=True)
class TopFigures:
    """What the top line says."""

    run: str
    """Name of the run."""
    subject: str
    """Model and data sets."""
    status: RunStatus
    elapsed: str
    workers: tuple[Piece, ...]
    """Each worker with its state."""
    ledger: Piece
    """Age of what is shown."""
    read_only: bool = False
    """The app changes nothing."""


class Tabs(Widget):
    """The screens, the current one in brackets."""

    DEFAULT_CSS = "Tabs { height: 1; }"

    def __init__(self, current: View) -> None:
        super().__init__(markup=False)
        self._current = current

    def render(self) -> Content:
        """Draw the tabs and the two keys that explain everything else."""
        pieces: list[Piece] = []
        cells = 0
        for view, title in TABS:
            text = f"[{title}]" if view == self._current else f" {title} "
            pieces.append((text, "bold $primary" if view == self._current else ""))
            cells += len(text)
        more = ": commands   ? help" if self.app.size.width >= _WIDE_CELLS else "? help"
        gap = max(1, self.size.width - cells - len(more))
        return styled(*pieces, " " * gap, (more, "$quiet"))

    async def on_click(self, event: events.Click) -> None:
        """Go to the screen under the mouse."""
        start = 0
        for view, title in TABS:
            if start <= event.x < start + len(title) + 2:
                await self.run_action(f"app.view('{view}')")
            start += len(title) + 2


class TopBar(Widget):
    """Two lines."""

    DEFAULT_CSS = """
    TopBar { height: 2; dock: top; padding: 0 1; layout: vertical; }
    TopBar Horizontal { height: 1; }
    TopBar .title { width: auto; height: 1; margin-right: 2; }
    TopBar StatusPill { margin-right: 2; }
    TopBar .elapsed { width: auto; height: 1; min-width: 8; margin-right: 2; }
    TopBar .gap { width: 1fr; height: 1; }
    TopBar .right { width: auto; height: 1; }
    """

    def __init__(self, current: View) -> None:
        super().__init__(markup=False)
        self._current = current
        self._figures: TopFigures | None = None

    def compose(self) -> ComposeResult:
        """Lay the lines out."""
        with Horizontal():
            yield SafeText(classes="title")
            yield StatusPill()
            yield SafeText(classes="elapsed")
            yield SafeText(classes="gap")
            yield SafeText(classes="right")
        yield Tabs(self._current)

    def on_mount(self) -> None:
        """Show what was said before the parts were there."""
        if self._figures is not None:
            self.show(self._figures)

    def show(self, figures: TopFigures) -> None:
        """Put the figures in their places; what did not change is not painted."""
        self._figures = figures
        if not self.query(".right"):
            return
        width = self.app.size.width
        wide = width >= _WIDE_CELLS
        ascii_ = is_ascii(self.app)
        shown = figures.workers if wide else ()
        if figures.read_only:
            shown = (("read-only", "bold $warning"), *shown)
        right = _right(shown, figures.ledger)
        mark = styled(pill(figures.status, glyphs_of(self.app)))
        fixed = mark.cell_length + len(figures.elapsed) + _GAPS
        while len(shown) > 1 and fixed + right.cell_length + len(figures.run) + len("run ") > width:
            shown = shown[:-1]
            right = _right(shown, figures.ledger)
        taken = fixed + right.cell_length
        brand: list[Piece] = [("eagletui  ", "$quiet")] if wide and width - taken > _ROOM_FOR_BRAND else []
        room = width - taken - (_BRAND_CELLS if brand else 0) - len("run ")
        name = shorten(figures.run, max(_NAME_CELLS, room), ascii_=ascii_)
        room -= cell_width(name) + 2
        subject = shorten(figures.subject, room, ascii_=ascii_) if room > _SHORTEST_SUBJECT else ""
        title = styled(*brand, "run ", (name, "bold"), f"  {subject}" if subject else "", ascii_=ascii_)
        self.query_one(".title", SafeText).show(title)
        self.query_one(StatusPill).status = figures.status
        self.query_one(".elapsed", SafeText).show(styled(figures.elapsed))
        self.query_one(".right", SafeText).show(right)


def _right(workers: tuple[Piece, ...], ledger: Piece) -> Content:
    pieces: list[Piece] = []
    for piece in workers:
        pieces += [piece, "  "]
    return styled(*pieces, ledger)
