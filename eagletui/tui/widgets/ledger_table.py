"""A table over rows that are mostly still in the ledger: only the visible pages are held.

The table draws what it has and asks for what it lacks (`PageWanted`); whoever owns the rows answers with `put`. A
million rows cost as much as a screenful.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, TypeVar

from rich.cells import set_cell_size
from textual import events
from textual.binding import Binding, BindingType
from textual.cache import LRUCache
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from eagletui.core.text import clean_line
from eagletui.tui.theme import is_ascii
from eagletui.tui.widgets.safe_text import Piece, note_panel
from eagletui.tui.widgets.strips import paint, rich_style

PAGE_ROWS: Final = 100
_PAGES_KEPT: Final = 64
_GUTTER: Final = 2

Row = TypeVar("Row")


@dataclass(frozen=True)
class Column(Generic[Row]):
    """One column of a table."""

    title: str
    cells: int
    """Width in terminal cells; 0 takes what the others leave."""
    cell: Callable[[Row], Piece]
    """Text of a row's cell, with a style where it needs one. The table cleans it."""
    right: bool = False
    """Align figures to the right."""
    from_width: int = 0
    """Left out where the table is narrower than this."""


class LedgerTable(ScrollView, Generic[Row], can_focus=True):
    """A scrolling table with a cursor, one header line and marks."""

    DEFAULT_CSS = """
    LedgerTable { height: 1fr; scrollbar-size-vertical: 1; overflow-x: hidden; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False, id="list.up"),
        Binding("down,j", "move(1)", "Down", show=False, id="list.down"),
        Binding("pageup,ctrl+u", "move_page(-1)", "Page up", show=False, id="list.page_up"),
        Binding("pagedown,ctrl+d", "move_page(1)", "Page down", show=False, id="list.page_down"),
        Binding("home,g", "jump(0)", "First", show=False, id="list.first"),
        Binding("end,G", "jump(-1)", "Last", show=False, id="list.last"),
        Binding("enter", "choose", "Open", show=False, id="list.open"),
    ]

    cursor: reactive[int] = reactive(0, repaint=False)

    @dataclass
    class PageWanted(Message):
        """A visible page is not there, or should be read again."""

        table: "LedgerTable[Any]"
        page: int

    @dataclass
    class Moved(Message):
        """The cursor is on another row."""

        table: "LedgerTable[Any]"
        index: int

    @dataclass
    class Chosen(Message):
        """Enter was pressed on a row."""

        table: "LedgerTable[Any]"
        index: int

    def __init__(
        self,
        columns: Sequence[Column[Row]],
        *,
        header: bool = True,
        empty: str = "nothing here",
        is_marked: Callable[[Row], bool] | None = None,
        shows_range: bool = False,
        id: str | None = None,  # noqa: A002
        classes: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self._columns = tuple(columns)
        self._header_lines = 1 if header else 0
        self._empty = empty
        self._is_marked = is_marked
        self._shows_range = shows_range
        self._pages: LRUCache[int, Sequence[Row]] = LRUCache(_PAGES_KEPT)
        self._asked: set[int] = set()
        self._filled: Sequence[Row] | None = None
        """The rows of the last `fill`."""
        self.row_count = 0

    def say_empty(self, text: str) -> None:
        """Say something else where there are no rows."""
        if text != self._empty:
            self._empty = text
            if not self.row_count:
                self.refresh()

    def reset(self, row_count: int, *, cursor: int = 0) -> None:
        """Forget all rows and show so many others."""
        self._filled = None
        self._pages.clear()
        self._asked.clear()
        self._resize_to(row_count)
        self.move_to(cursor)
        self.refresh()

    def fill(self, rows: Sequence[Row], *, cursor: int | None = None) -> None:
        """Show rows that are all here. The cursor keeps its index unless told otherwise; equal rows paint nothing."""
        if self._filled == rows and self._filled is not None:
            self.move_to(self.cursor if cursor is None else cursor)
            return
        shown = self._shown_rows()
        self._filled = rows
        self._pages.clear()
        self._asked.clear()
        self._resize_to(len(rows))
        for start in range(0, len(rows), PAGE_ROWS):
            self._pages[start // PAGE_ROWS] = rows[start : start + PAGE_ROWS]
        self.move_to(self.cursor if cursor is None else cursor)
        self._paint_changes(shown)

    def put(self, page: int, rows: Sequence[Row]) -> None:
        """Give the rows of one page. Rows equal to those shown paint nothing."""
        self._asked.discard(page)
        if self._pages.get(page) == rows:
            return
        shown, current = self._shown_rows(), self.current
        self._pages.discard(page)  # the cache keeps the first value of a key
        self._pages[page] = rows
        self._paint_changes(shown)
        if self.current != current:
            self.post_message(self.Moved(self, self.cursor))

    def grow(self, row_count: int) -> None:
        """Let more rows follow the ones there are; the page they begin on is asked for again."""
        if row_count > self.row_count:
            old = self.row_count
            self._asked.discard(old // PAGE_ROWS)
            self._resize_to(row_count)
            if old in self._lines_shown():
                self.refresh()

    def row_at(self, index: int) -> Row | None:
        """Give a row, or None while its page is not here."""
        page = self._pages.get(index // PAGE_ROWS)
        offset = index % PAGE_ROWS
        return page[offset] if page is not None and offset < len(page) else None

    @property
    def current(self) -> Row | None:
        """The row under the cursor."""
        return self.row_at(self.cursor) if self.row_count else None

    @property
    def visible_rows(self) -> range:
        """Indexes of the rows on the screen."""
        first = self.scroll_offset.y
        return range(first, min(self.row_count, first + max(0, self.size.height - self._header_lines)))

    def _shown_rows(self) -> dict[int, Row | None]:
        return {index: self.row_at(index) for index in self._lines_shown()}

    def _lines_shown(self) -> range:
        first = self.scroll_offset.y
        return range(first, first + max(0, self.size.height - self._header_lines))

    def _paint_changes(self, before: dict[int, Row | None]) -> None:
        """Paint the lines whose row is another one than before; scrolling paints everything by itself."""
        for index in self._lines_shown():
            row = self.row_at(index)
            if index not in before or row is None or row != before[index]:
                self.refresh_lines(index + self._header_lines)

    def ask_again(self) -> None:
        """Ask for the visible pages anew; what is shown stays until they come."""
        rows = self.visible_rows
        for page in sorted({index // PAGE_ROWS for index in rows}):
            self._ask(page)

    def move_to(self, index: int) -> None:
        """Put the cursor on a row and bring it into view."""
        self.cursor = max(0, min(index, self.row_count - 1))
        self._bring_into_view()
        if self.cursor not in self.visible_rows:
            # Rows that were just added count only after the next layout.
            self.call_after_refresh(self._bring_into_view)

    def _bring_into_view(self) -> None:
        shown = max(1, self.size.height - self._header_lines)
        top = self.scroll_offset.y
        if self.cursor < top:
            self.scroll_to(y=self.cursor, animate=False)
        elif self.cursor >= top + shown:
            self.scroll_to(y=self.cursor - shown + 1, animate=False)

    def watch_cursor(self, old: int, new: int) -> None:
        """Repaint the two lines that changed."""
        self.refresh_lines(old + self._header_lines)
        self.refresh_lines(new + self._header_lines)
        self.post_message(self.Moved(self, new))

    def on_resize(self, event: events.Resize) -> None:
        """Keep the cursor in view."""
        self._resize_to(self.row_count)
        self.move_to(self.cursor)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Say which rows are in view."""
        super().watch_scroll_y(old_value, new_value)
        self._say_range()

    def _say_range(self) -> None:
        if not self._shows_range:
            return
        rows = self.visible_rows
        seen = f"{rows.start + 1:,}-{rows.stop:,} of {self.row_count:,}" if len(rows) else "none"
        note_panel(self, seen)

    def on_focus(self) -> None:
        """Show the cursor."""
        self.refresh_lines(self.cursor + self._header_lines)

    def on_blur(self) -> None:
        """Show the cursor as resting."""
        self.refresh_lines(self.cursor + self._header_lines)

    def on_click(self, event: events.Click) -> None:
        """Put the cursor where the mouse is; a second click opens."""
        index = self.scroll_offset.y + event.y - self._header_lines
        if event.y >= self._header_lines and 0 <= index < self.row_count:
            if index == self.cursor and event.chain > 1:
                self.action_choose()
            self.move_to(index)

    def action_move(self, rows: int) -> None:
        """Move the cursor."""
        self.move_to(self.cursor + rows)

    def action_move_page(self, pages: int) -> None:
        """Move the cursor by a screenful."""
        self.move_to(self.cursor + pages * max(1, self.size.height - self._header_lines - 1))

    def action_jump(self, index: int) -> None:
        """Move the cursor to the first or last row."""
        self.move_to(self.row_count - 1 if index < 0 else index)

    def action_choose(self) -> None:
        """Open the row under the cursor."""
        if self.row_count:
            self.post_message(self.Chosen(self, self.cursor))

    def render_line(self, y: int) -> Strip:
        """Draw one line: the header, a row, or the placeholder of a row that is still in the ledger."""
        width = self.scrollable_content_region.width
        if y < self._header_lines:
            return self._strip([(self._header(width), "$quiet")], width)
        index = y - self._header_lines + self.scroll_offset.y
        if index >= self.row_count:
            note = f"  {self._empty}" if self.row_count == 0 and y == self._header_lines else ""
            return self._strip([(note, "$quiet")], width)
        row = self.row_at(index)
        is_cursor = index == self.cursor
        if row is None:
            self._ask(index // PAGE_ROWS)
            return self._strip([("  ...", "$quiet")], width, is_cursor=is_cursor)
        return self._strip(self._cells(row, width, is_cursor=is_cursor), width, is_cursor=is_cursor)

    def _resize_to(self, row_count: int) -> None:
        self.row_count = row_count
        size = Size(self.size.width, row_count + self._header_lines)
        old, room = self.virtual_size, self.container_size.height
        if room and size.width == old.width and (size.height > room) == (old.height > room):
            # The scroll bar stays or stays away: laying the whole screen out for its other length costs 10 ms.
            self.set_reactive(LedgerTable.virtual_size, size)
            if size.height > room:
                self._scroll_update(size)
        else:
            self.virtual_size = size
        self._say_range()

    def _ask(self, page: int) -> None:
        if page not in self._asked:
            self._asked.add(page)
            self.post_message(self.PageWanted(self, page))

    def _layout(self, width: int) -> list[tuple[Column[Row], int]]:
        shown = [column for column in self._columns if width >= column.from_width]
        fixed = sum(column.cells for column in shown) + len(shown) - 1 + _GUTTER
        return [(column, column.cells or max(4, width - fixed)) for column in shown]

    def _header(self, width: int) -> str:
        titles = [
            column.title.rjust(cells) if column.right else column.title.ljust(cells)
            for column, cells in self._layout(width)
        ]
        return " " * _GUTTER + " ".join(titles)

    def _cells(self, row: Row, width: int, *, is_cursor: bool) -> list[tuple[str, str]]:
        ascii_ = is_ascii(self.app)
        marked = self._is_marked is not None and self._is_marked(row)
        pieces: list[tuple[str, str]] = [((">" if is_cursor else " ") + ("*" if marked else " "), "bold")]
        for column, cells in self._layout(width):
            piece = column.cell(row)
            text, style = (piece, "") if isinstance(piece, str) else piece
            text = clean_line(text, cells, ascii_=ascii_)
            text = text.rjust(cells) if column.right else text
            pieces += [(set_cell_size(text, cells), style), (" ", "")]
        return pieces

    def _strip(self, pieces: list[tuple[str, str]], width: int, *, is_cursor: bool = False) -> Strip:
        base = self.rich_style
        if is_cursor:
            base += rich_style(self._cursor_style())
        return paint(pieces, width, base)

    def _cursor_style(self) -> str:
        if self.app.current_theme.ansi:
            return "reverse" if self.has_focus else "bold"
        return "bold on $cursor" if self.has_focus else "on $panel"
