"""A field to type in, whose cursor does not blink: a screen on which nothing happens sends nothing."""

from textual.widgets import Input

from eagletui.core.text import clean_line


class Entry(Input):
    """One line of text. What reaches it, typed, pasted or from a file, is cleaned of what could steer a terminal."""

    def __init__(self, value: str = "", *, id: str | None = None, classes: str | None = None, disabled: bool = False):  # noqa: A002
        super().__init__(clean_line(value), select_on_focus=False, id=id, classes=classes, disabled=disabled)
        self.cursor_blink = False

    def validate_value(self, value: str) -> str:
        """Keep what a terminal shows as it is."""
        return clean_line(value)

    def edit(self, value: str) -> None:
        """Show a hidden field with a text in it, to be typed on at its end."""
        self.value = value
        self.cursor_position = len(self.value)
        self.remove_class("-hidden")
        self.focus()
