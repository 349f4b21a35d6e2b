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

from eagletui.tui.lane_lines import LaneLine
from eagletui.tui.widgets.strips import paint, rich_style

_GUTTER = 2


class TokenLane(ScrollView, can_focus=True):
    """Lines of tokens. `n` and `N` of the screen move between spans; arrows and page keys scroll."""

    DEFAULT_CSS = "TokenLane { height: 1fr; scrollbar-size-vertical: 1; overflow-x: hidden; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        ("j", "scroll_down", "Down"),
        ("k", "scroll_up", "Up"),
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

    def show(self, lines: Sequence[LaneLine], *, keep_place: bool = False) -> None:
        """Show other lines."""
        self._lines = lines
        self._laid_out_for = self.token_width
        self.virtual_size = Size(self.size.width, len(lines))
        if not keep_place:
            self.scroll_to(y=0, animate=False)
        self.refresh()

    def go_to(self, span: int | None) -> None:
        """Mark a span and bring its block into view."""
        self.span = span
        heads = (y for y, line in enumerate(self._lines) if line.span == span and span is not None)
        y = next(heads, None)
        if y is None:
            return
        top, height = self.scroll_offset.y, self.size.height
        if not top <= y <= top + height - 4:
            self.scroll_to(y=max(0, y - 2), animate=False)

    def on_resize(self, event: events.Resize) -> None:
        """Ask for another layout when the width changed."""
        if self._laid_out_for != self.token_width:
            self.post_message(self.Resized())

    def render_line(self, y: int) -> Strip:
        """Draw one line."""
        index = y + self.scroll_offset.y
        base = self.rich_style
        if index >= len(self._lines):
            return paint([], self.size.width, base)
        line = self._lines[index]
        current = line.span is not None and line.span == self.span
        mark = ("> " if line.is_head else "  ") if current else "  "
        base = base + rich_style("bold") if current else base
        return paint([(mark, "bold $primary"), *line.pieces], self.size.width, base)
