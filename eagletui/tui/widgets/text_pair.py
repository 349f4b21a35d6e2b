"""Two texts side by side, each scrolling by itself."""

from collections.abc import Sequence
from typing import Final

from textual.app import ComposeResult
from textual.containers import Container, VerticalScroll

from eagletui.tui.theme import is_ascii
from eagletui.tui.widgets.safe_text import SafeText, block, name_panel

LONGEST: Final = 40_000
"""Characters painted of one side."""


class TextPair(Container):
    """A left and a right text with marked pieces. Tab moves between them."""

    DEFAULT_CSS = """
    TextPair { height: 1fr; layout: horizontal; }
    TextPair > VerticalScroll { width: 1fr; height: 1fr; scrollbar-size-vertical: 1; }
    """

    def compose(self) -> ComposeResult:
        """Lay both sides out."""
        for side in ("left", "right"):
            with VerticalScroll(id=f"pair-{side}", classes="panel"):
                yield SafeText(id=f"pair-{side}-text")

    def show(self, side: str, title: str, pieces: Sequence[tuple[str, str]]) -> None:
        """Show one side."""
        name_panel(self.query_one(f"#pair-{side}"), title)
        self.query_one(f"#pair-{side}-text", SafeText).show(block(*_cut(pieces), ascii_=is_ascii(self.app)))

    def focus_left(self) -> None:
        """Let the arrows scroll the left side."""
        self.query_one("#pair-left").focus()


def _cut(pieces: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Keep as many characters as are painted, and say how many more there are."""
    left = LONGEST
    kept: list[tuple[str, str]] = []
    for text, style in pieces:
        kept.append((text[:left], style))
        left -= len(text)
        if left <= 0:
            break
    total = sum(len(text) for text, _ in pieces)
    if total > LONGEST:
        kept.append((f"\n({total - LONGEST:,} characters more; Y saves all of it)", "$quiet"))
    return kept
