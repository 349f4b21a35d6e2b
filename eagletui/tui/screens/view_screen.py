"""What every screen has: a name for its keys, the app by its own type, and a word where the terminal is too small."""

from typing import TYPE_CHECKING, ClassVar, cast

from textual import events
from textual.screen import Screen

from eagletui.tui.keys import View
from eagletui.tui.terminal import MIN_COLUMNS, MIN_ROWS
from eagletui.tui.widgets.safe_text import SafeText

if TYPE_CHECKING:
    from eagletui.tui.app import EagleApp


class ViewScreen(Screen[None]):
    """A screen with keys of its own. Subclasses compose a `SafeText` called `too-small`."""

    VIEW: ClassVar[View]

    @property
    def eagle(self) -> "EagleApp":
        """The app, by its own type."""
        return cast("EagleApp", self.app)

    def on_resize(self, event: events.Resize) -> None:
        """Say so where the terminal is too small."""
        width, height = event.size
        small = width < MIN_COLUMNS or height < MIN_ROWS
        self.set_class(small, "-too-small")
        if small:
            needed = f"need {MIN_COLUMNS}x{MIN_ROWS}; q leaves the run going"
            self.query_one("#too-small", SafeText).say(f"terminal {width}x{height}, {needed}")
