"""The only widget that shows text, and the only place that builds styled content.

Every string is cleaned by the one door and never parsed as markup, so a model's answer can neither drive the terminal
nor crash the app.
"""

from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from eagletui.core.text import cell_width, clean_block, clean_line
from eagletui.tui.theme import is_ascii

Piece = str | tuple[str, str]
"""Text, or text with a style such as `bold $warning`."""


def styled(*pieces: Piece, ascii_: bool = False) -> Content:
    """Build one line from pieces of text, each cleaned."""
    parts = [piece if isinstance(piece, tuple) else (piece, "") for piece in pieces]
    return Content.assemble(*((clean_line(text, ascii_=ascii_), style) for text, style in parts))


def block(*pieces: Piece, ascii_: bool = False) -> Content:
    """Build text over several lines from pieces, each cleaned; its line breaks stay."""
    parts = [piece if isinstance(piece, tuple) else (piece, "") for piece in pieces]
    return Content.assemble(*((clean_block(text, ascii_=ascii_), style) for text, style in parts))


def stacked(lines: list[Content]) -> Content:
    """Put styled lines under each other."""
    return Content("\n").join(lines)


def name_panel(panel: Widget, title: str) -> None:
    """Write a title into the upper border; an equal one paints nothing."""
    content = styled(title, ascii_=is_ascii(panel.app))
    if panel.border_title != content.markup:
        panel.border_title = content


def note_panel(panel: Widget, note: str) -> None:
    """Write a remark into the lower border; an equal one paints nothing."""
    content = styled(note, ascii_=is_ascii(panel.app))
    if panel.border_subtitle != content.markup:
        panel.border_subtitle = content


class SafeText(Static):
    """Text from anywhere, cleaned before it is painted. An equal update paints nothing."""

    DEFAULT_CSS = "SafeText { height: auto; }"

    def __init__(self, text: str = "", *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__("", markup=False, id=id, classes=classes)
        self._shown = Content("")
        self._first = text

    def on_mount(self) -> None:
        """Paint the first text once the app is known, whose glyph set decides how it is cleaned."""
        if self._first and not self._shown.plain:
            self.say(self._first)

    def say(self, text: str) -> None:
        """Show foreign text, over several lines where it has them."""
        self.show(Content(clean_block(text, ascii_=is_ascii(self.app))))

    def show(self, content: Content) -> None:
        """Show content made by `styled`. The screen is laid out anew only where the text takes other room."""
        old = self._shown
        if content == old and content.spans == old.spans:
            return
        self._shown = content
        self.update(content, layout=not self._fits(content, old))

    def _fits(self, content: Content, old: Content) -> bool:
        """Tell whether a content takes the room of the one before, so that nothing around it moves."""
        width, height = self.styles.width, self.styles.height
        if _room(content) == _room(old):
            return True
        if width is not None and width.is_auto:
            return False
        if height is not None and not height.is_auto:
            return True
        cells, lines = self.content_size
        if not cells:
            return False
        rules = self.styles.get_rules()
        before, after = old.get_height(rules, cells), content.get_height(rules, cells)
        # Shorter than its room, a text has a least height and may take all of it.
        return after <= lines if before < lines else after == before

    @property
    def plain(self) -> str:
        """What is shown, without styles."""
        return self._shown.plain


def _room(content: Content) -> tuple[int, ...]:
    return tuple(cell_width(line) for line in content.plain.split("\n"))
