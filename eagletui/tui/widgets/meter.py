"""A bar for a share of a whole, with the promised part and limits marked on it."""

from typing import NamedTuple

from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from eagletui.tui.theme import Glyphs, glyphs_of
from eagletui.tui.widgets.safe_text import Piece, styled


class Level(NamedTuple):
    """What a bar shows, as fractions of its length."""

    filled: float
    """Done or settled."""
    promised: float = 0.0
    """In flight or held, drawn after the filled part."""
    mark: float | None = None
    """A limit inside the bar."""


def bar(level: Level, cells: int, glyphs: Glyphs, tone: str = "$primary") -> tuple[Piece, ...]:
    """Draw a bar of an exact length. Anything above zero shows at least one cell, anything below one leaves one."""
    if cells <= 0:
        return ()
    filled = _cells(level.filled, cells)
    promised = min(_cells(level.promised, cells), cells - filled)
    line = glyphs.fill * filled + glyphs.promised * promised + glyphs.room * (cells - filled - promised)
    ends = (filled, filled + promised)
    tones = (tone, "$warning", "$frame")
    pieces: list[tuple[str, str]] = [
        (line[: ends[0]], tones[0]),
        (line[ends[0] : ends[1]], tones[1]),
        (line[ends[1] :], tones[2]),
    ]
    if level.mark is not None and 0 <= level.mark <= 1:
        pieces = _marked(pieces, min(cells - 1, int(level.mark * cells)), glyphs.mark)
    return tuple(piece for piece in pieces if piece[0])


def _cells(fraction: float, cells: int) -> int:
    if fraction <= 0:
        return 0
    if fraction >= 1:
        return cells
    return min(cells - 1, max(1, round(fraction * cells))) if cells > 1 else 0


def _marked(pieces: list[tuple[str, str]], at: int, mark: str) -> list[tuple[str, str]]:
    marked: list[tuple[str, str]] = []
    position = 0
    for text, style in pieces:
        if position <= at < position + len(text):
            split = at - position
            marked += [(text[:split], style), (mark, "bold $foreground"), (text[split + 1 :], style)]
        else:
            marked.append((text, style))
        position += len(text)
    return marked


class Meter(Widget):
    """A bar that fills its width."""

    DEFAULT_CSS = "Meter { height: 1; width: 1fr; }"

    level: reactive[Level] = reactive(Level(0.0))
    tone: reactive[str] = reactive("$primary")

    def render(self) -> Content:
        """Draw the bar between brackets."""
        glyphs = glyphs_of(self.app)
        return styled(("[", "$frame"), *bar(self.level, self.size.width - 2, glyphs, self.tone), ("]", "$frame"))
