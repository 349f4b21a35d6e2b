"""Sign for a data set, or refuse it: a name, a rule, and what it costs in numbers."""

import getpass
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Input

from eagletui.tui.screens.dialogs import BUTTON_KEYS
from eagletui.tui.theme import is_ascii
from eagletui.tui.widgets.entry import Entry
from eagletui.tui.widgets.safe_text import Piece, SafeText, note_panel, stacked, styled


class Signature(NamedTuple):
    """What a person put under a data set."""

    name: str
    rule: str
    is_refusal: bool


class SignDialog(ModalScreen[Signature | None]):
    """Neither signing nor refusing is possible without a name and a rule; escape does neither."""

    AUTO_FOCUS = "#sign-rule"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "keep", "Keep", show=False),
        Binding("left,up", "app.focus_previous", "Previous", show=False),
        Binding("right,down", "app.focus_next", "Next", show=False),
    ]

    def __init__(self, dataset: str, lines: Sequence[tuple[Piece, ...]]) -> None:
        """Ask.

        Args:
            dataset: its name.
            lines: what the verdict rests on.
        """
        super().__init__()
        self._dataset = dataset
        self._lines = lines

    def compose(self) -> ComposeResult:
        """Lay the dialog out."""
        with Vertical(classes="dialog"):
            yield SafeText(f"Sign for {self._dataset}", classes="dialog-title")
            yield SafeText(id="sign-basis", classes="dialog-body")
            with Horizontal(classes="dialog-field"):
                yield SafeText("your name", classes="field-label")
                yield Entry(getpass.getuser(), id="sign-name")
            with Horizontal(classes="dialog-field"):
                yield SafeText("rule", classes="field-label")
                yield Entry(id="sign-rule")
            yield SafeText(
                "  why all of them are accepted or refused, in your words: same bytes, other cut\n"
                "  text alone, kept in the run and in every export; it picks and changes no sample",
                classes="field-note",
            )
            with Horizontal(classes="dialog-buttons"):
                yield Button(styled("Neither [esc]"), id="keep")
                yield Button(styled("Refuse"), id="refuse", disabled=True)
                yield Button(styled("Sign"), id="sign", disabled=True)

    def on_mount(self) -> None:
        """Show the numbers."""
        note_panel(self.query_one(".dialog"), BUTTON_KEYS)
        ascii_ = is_ascii(self.app)
        self.query_one("#sign-basis", SafeText).show(stacked([styled(*line, ascii_=ascii_) for line in self._lines]))

    def on_input_changed(self, event: Input.Changed) -> None:
        """Let the person sign once there is a name and a rule."""
        lacking = not all(self.query_one(field, Input).value.strip() for field in ("#sign-name", "#sign-rule"))
        for button in ("#sign", "#refuse"):
            self.query_one(button, Button).disabled = lacking

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go on; enter in a field never signs."""
        self.focus_next()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Give the signature, or none."""
        if event.button.id == "keep":
            self.dismiss(None)
            return
        name, rule = (self.query_one(field, Input).value.strip() for field in ("#sign-name", "#sign-rule"))
        self.dismiss(Signature(name, rule, event.button.id == "refuse"))

    def action_keep(self) -> None:
        """Sign nothing."""
        self.dismiss(None)
