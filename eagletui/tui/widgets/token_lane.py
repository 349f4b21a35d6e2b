"""The token stream of one sample: a scrolling view of lane lines with the current span marked."""

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from eagletui.core.text import cell_width
from eagletui.tui.lane_lines import LaneLine
from eagletui.tui.widgets.strips import paint

_GUTTER = 2
_LINES_ABOVE = 3
"""Kept above a span that was jumped to, so that its place in the text can be read."""
_CELLS_BEFORE = 24
"""The same on a line that goes on at the left."""


class TokenLane(ScrollView, can_focus=True):
    """Lines of tokens. `n` and `N` of the screen move between spans; arrows and page keys scroll."""

    DEFAULT_CSS = "TokenLane { height: 1fr; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 1; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        ("j", "scroll_down", "Down"),
        ("k", "scroll_up", "Up"),
        ("h", "scroll_along(-1)", "Left"),
        ("l", "scroll_along(1)", "Right"),
        ("g", "scroll_home", "First"),
        ("G", "scroll_end", "Last"),
        ("ctrl+d", "page_down", "Page down"),
        ("ctrl+u", "page_up", "Page up"),
    ]

    span: reactive[int | None] = reactive(None, repaint=True)

    class Resized(Message):
        """The width changed, so the lines must be laid out anew."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._lines: Sequence[LaneLine] = ()
        self._laid_out_for = 0

    @property
    def token_width(self) -> int:
        """Cells for a line."""
        return max(30, self.scrollable_content_region.width - _GUTTER)

    def show(self, lines: Sequence[LaneLine], *, wrap: bool = True, keep_place: bool = False) -> None:
        """Show other lines.

        Args:
            lines: laid out for `token_width`.
            wrap: they are no wider than that.
            keep_place: stay where the view is.
        """
        self._lines = lines
        self.styles.overflow_x = "hidden" if wrap else "auto"
        self._laid_out_for = self.token_width
        width = self.size.width if wrap else max((line.cells for line in lines), default=0) + _GUTTER
        self.virtual_size = Size(max(self.size.width, width), len(lines))
        if not keep_place:
            self.scroll_to(x=0, y=0, animate=False)
        self.refresh()

    def go_to(self, span: int | None) -> None:
        """Mark a span and bring its block into view."""
        self.span = span
        self._bring_into_view()
        # Lines that were just shown count only after the next layout.
        self.call_after_refresh(self._bring_into_view)

    def _bring_into_view(self) -> None:
        span = self.span
        y = None if span is None else next((y for y, line in enumerate(self._lines) if line.shows(span)), None)
        if span is None or y is None:
            return
        top, height = self.scroll_offset.y, self.size.height
        if not top <= y <= top + height - 4:
            self.scroll_to(y=max(0, y - max(0, min(_LINES_ABOVE, height - 3))), animate=False)
        line, left = self._lines[y], self.scroll_offset.x
        column, room = line.column(span), self.size.width - _GUTTER - line.label_cells
        if not left <= column < left + room - _CELLS_BEFORE:
            self.scroll_to(x=max(0, column - _CELLS_BEFORE), animate=False)

    def action_scroll_along(self, by: int) -> None:
        """Go along a line that is wider than the screen."""
        self.scroll_to(x=self.scroll_offset.x + by * self.size.width // 2, animate=False)

    def on_resize(self, event: events.Resize) -> None:
        """Ask for another layout when the width changed."""
        if self._laid_out_for != self.token_width:
            self.post_message(self.Resized())

    def render_line(self, y: int) -> Strip:
        """Draw one line."""
        index, left, width = y + self.scroll_offset.y, self.scroll_offset.x, self.size.width
        base = self.rich_style
        if index >= len(self._lines):
            return paint([], width, base)
        line = self._lines[index]
        mark = "> " if self.span is not None and line.is_head and line.shows(self.span) else "  "
        pieces = ((mark, "bold $primary"), *line.pieces(self.span))
        if not left:
            return paint(pieces, width, base)
        kept = pieces[: line.fixed + 1]
        room = max(0, width - sum(cell_width(text) for text, _ in kept))
        tokens = paint(pieces[line.fixed + 1 :], left + room, base).crop(left, left + room)
        return Strip.join([paint(kept, width - room, base), tokens])
