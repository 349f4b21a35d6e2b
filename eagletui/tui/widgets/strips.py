"""Turn styled pieces of cleaned text into a strip of cells, for widgets that draw line by line."""

from collections.abc import Iterable

from rich.segment import Segment
from rich.style import Style as RichStyle
from textual.strip import Strip
from textual.style import Style


def paint(pieces: Iterable[tuple[str, str]], width: int, base: RichStyle) -> Strip:
    """Make a strip of an exact width. The text must have passed the one door."""
    segments = [Segment(text, base + rich_style(style) if style else base) for text, style in pieces if text]
    return Strip(segments).adjust_cell_length(width, base)


def rich_style(style: str) -> RichStyle:
    """Resolve a style such as `bold $warning` with the colours of the theme, leaving the rest to what is under it."""
    parsed = Style.parse(style)
    return RichStyle(
        color=parsed.foreground.rich_color if parsed.foreground is not None else None,
        bgcolor=parsed.background.rich_color if parsed.background is not None else None,
        bold=parsed.bold,
        dim=parsed.dim,
        underline=parsed.underline,
        reverse=parsed.reverse,
    )
