"""The footer: the keys that matter on this screen, dimmed where they cannot be used now."""

from collections.abc import Callable
from typing import Final

from textual import events
from textual.content import Content
from textual.widget import Widget

from eagletui.core.text import cell_width
from eagletui.tui.keymap import keymap_of
from eagletui.tui.keys import Key, View, footer_keys
from eagletui.tui.theme import is_ascii
from eagletui.tui.widgets.safe_text import Piece, styled

_WIDE_CELLS: Final = 100
_GAP: Final = 2


class KeyBar(Widget):
    """One line of keys, drawn from the key table."""

    DEFAULT_CSS = "KeyBar { height: 1; dock: bottom; padding: 0 1; }"

    def __init__(
        self, view: View, why_not: Callable[[Key], str | None], label: Callable[[Key], str] = lambda key: key.label
    ) -> None:
        """Show the keys of a screen.

        Args:
            view: whose keys.
            why_not: the reason a key cannot be used now, or None.
            label: what a key does now.
        """
        super().__init__(markup=False)
        self._view = view
        self._why_not = why_not
        self._label = label
        self._actions: list[tuple[int, int, str]] = []
        self._drawn: str | None = None

    def look_again(self) -> None:
        """Repaint if a key became usable or stopped being so."""
        keys = [key for side in self._keys() for key in side]
        state = " ".join(f"{self._why_not(key) is None} {self._label(key)}" for key in keys)
        if state != self._drawn:
            self._drawn = state
            self.refresh()

    def render(self) -> Content:
        """Draw the left keys, the room between, and the right ones."""
        left, right = self._keys()
        room = self.size.width
        right_pieces = self._pieces(right)
        right_cells = _cells(right_pieces)
        while left and _cells(self._pieces(left)) + right_cells + _GAP > room:
            left = left[:-1]
        left_pieces = self._pieces(left)
        gap = max(0, room - _cells(left_pieces) - right_cells)
        self._remember(left, 0)
        self._remember(right, room - right_cells)
        return styled(*left_pieces, " " * gap, *right_pieces, ascii_=is_ascii(self.app))

    async def on_click(self, event: events.Click) -> None:
        """Press the key under the mouse."""
        for start, end, action in self._actions:
            if start <= event.x - 1 < end:
                await self.screen.run_action(action)

    def _keys(self) -> tuple[tuple[Key, ...], tuple[Key, ...]]:
        left, right = footer_keys(self._view, wide=self.app.size.width >= _WIDE_CELLS)
        placed = keymap_of(self.app).placed
        return tuple(map(placed, left)), tuple(map(placed, right))

    def _pieces(self, keys: tuple[Key, ...]) -> list[Piece]:
        pieces: list[Piece] = []
        off = "dim" if self.app.current_theme.ansi else "$off"
        for key in keys:
            usable = self._why_not(key) is None
            gap = " " * _GAP if pieces else ""
            pieces += [
                (f"{gap}{key.name} ", "bold $primary" if usable else off),
                (self._label(key), "" if usable else off),
            ]
        return pieces

    def _remember(self, keys: tuple[Key, ...], start: int) -> None:
        if start == 0:
            self._actions = []
        for index, key in enumerate(keys):
            cells = _cells(self._pieces((key,))) + (_GAP if index else 0)
            self._actions.append((start, start + cells, key.action))
            start += cells


def _cells(pieces: list[Piece]) -> int:
    return sum(cell_width(piece if isinstance(piece, str) else piece[0]) for piece in pieces)
