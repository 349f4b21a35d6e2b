"""One figure with its label and unit: the leaf that a live panel is made of."""

from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from eagletui.core.text import cell_width
from eagletui.tui.theme import is_ascii
from eagletui.tui.widgets.safe_text import Piece, styled


class Stat(Widget):
    """A label and a value on one line. Setting an equal value paints nothing."""

    DEFAULT_CSS = """
    Stat { height: 1; width: 1fr; text-wrap: nowrap; text-overflow: ellipsis; }
    Stat.-hidden { display: none; }
    """

    value: reactive[tuple[Piece, ...]] = reactive(())

    def __init__(self, label: str, *, label_cells: int = 11, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes=classes, markup=False)
        self._label = label
        self._label_cells = label_cells

    def put(self, *pieces: Piece) -> None:
        """Set the figure."""
        self.value = pieces

    def render(self) -> Content:
        """Draw the label, padded, and the figure."""
        gap = " " * max(1, self._label_cells - cell_width(self._label)) if self._label else ""
        return styled((self._label + gap, "$quiet"), *self.value, ascii_=is_ascii(self.app))


def plain(pieces: tuple[Piece, ...]) -> str:
    """Give the text of pieces without their styles."""
    return "".join(piece if isinstance(piece, str) else piece[0] for piece in pieces)
