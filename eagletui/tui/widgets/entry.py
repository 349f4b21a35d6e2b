"""A field to type in, whose cursor does not blink: a screen on which nothing happens sends nothing."""

from textual.widgets import Input


class Entry(Input):
    """One line of text."""

    def __init__(self, value: str = "", *, id: str | None = None, classes: str | None = None, disabled: bool = False):  # noqa: A002
        super().__init__(value, select_on_focus=False, id=id, classes=classes, disabled=disabled)
        self.cursor_blink = False

    def edit(self, value: str) -> None:
        """Show a hidden field with a text in it, to be typed on at its end."""
        self.value = value
        self.cursor_position = len(value)
        self.remove_class("-hidden")
        self.focus()
