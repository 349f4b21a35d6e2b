"""Dialogs that stand between a key and money: title, consequence in numbers, a safe default."""

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import ClassVar, Final, NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input

from eagletui.core.money import usd_to_pico
from eagletui.tui.widgets.entry import Entry
from eagletui.tui.widgets.safe_text import Piece, SafeText, note_panel, stacked, styled

BUTTON_KEYS: Final = "tab goes on, enter presses"
_LARGEST_USD = Decimal(9_000_000)
_TYPED_USD: Final = re.compile(r"\$?(?P<whole>[1-9][0-9]{0,2}(?:,[0-9]{3})+|[0-9]*)(?P<rest>\.[0-9]*)?")


class ConfirmDialog(ModalScreen[bool]):
    """Ask before something that cannot be undone. Keeping things as they are has the focus."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "keep", "Keep", show=False),
        Binding("left,up", "app.focus_previous", "Previous", show=False),
        Binding("right,down", "app.focus_next", "Next", show=False),
    ]

    def __init__(self, title: str, lines: Sequence[str], act: str, keep: str, *, typed: str | None = None) -> None:
        """Ask.

        Args:
            title: verb and object.
            lines: the consequence, in numbers.
            act: label of the button that acts.
            keep: label of the button that does not.
            typed: what must be typed before the act is possible.
        """
        super().__init__()
        self._title = title
        self._lines = lines
        self._act = act
        self._keep = keep
        self._typed = typed

    def compose(self) -> ComposeResult:
        """Lay the dialog out."""
        with Vertical(classes="dialog"):
            yield SafeText(self._title, classes="dialog-title")
            yield SafeText("\n".join(self._lines), classes="dialog-body")
            if self._typed is not None:
                yield Entry(id="typed")
            with Horizontal(classes="dialog-buttons"):
                yield Button(styled(self._keep + " [esc]"), id="keep", variant="primary")
                yield Button(styled(self._act), id="act", disabled=self._typed is not None)

    def on_mount(self) -> None:
        """Give the focus to what does no harm, and say how to get to the rest."""
        note_panel(self.query_one(".dialog"), BUTTON_KEYS)
        self.query_one("#keep" if self._typed is None else "#typed").focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Enable the act once the word is there."""
        self.query_one("#act", Button).disabled = event.value != self._typed

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Act on enter, if the word is there."""
        if event.value == self._typed:
            self.dismiss(True)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Act or keep."""
        self.dismiss(event.button.id == "act")

    def action_keep(self) -> None:
        """Change nothing."""
        self.dismiss(False)


class Limits(NamedTuple):
    """The two limits of a run, in picodollars."""

    stop_at_pico: int
    cap_pico: int


class LimitsDialog(ModalScreen[Limits | None]):
    """Edit stop-at and cap, with the consequence shown while typing."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "keep", "Keep", show=False),
        Binding("up", "app.focus_previous", "Previous", show=False),
        Binding("down", "app.focus_next", "Next", show=False),
    ]

    def __init__(self, now: Limits, figures: Sequence[str], consequence: Callable[[Limits], Sequence[Piece]]) -> None:
        """Edit.

        Args:
            now: the limits in force.
            figures: where the money stands, a line each.
            consequence: what other limits would mean, in a sentence.
        """
        super().__init__()
        self._now = now
        self._figures = figures
        self._consequence = consequence

    def compose(self) -> ComposeResult:
        """Lay the dialog out."""
        with Vertical(classes="dialog"):
            yield SafeText("Edit limits", classes="dialog-title")
            yield SafeText("\n".join(self._figures), classes="dialog-body")
            with Horizontal(classes="dialog-field"):
                yield SafeText("stop-at $", classes="field-label")
                yield Entry(_dollars(self._now.stop_at_pico), id="stop-at")
            yield SafeText("  no new request once this much is settled", classes="field-note")
            with Horizontal(classes="dialog-field"):
                yield SafeText("cap     $", classes="field-label")
                yield Entry(_dollars(self._now.cap_pico), id="cap")
            yield SafeText("  never committed beyond, worst case included", classes="field-note")
            yield SafeText(id="consequence", classes="dialog-body")
            with Horizontal(classes="dialog-buttons"):
                yield Button(styled("Keep [esc]"), id="keep")
                yield Button(styled("Apply"), id="act", variant="primary")

    def on_mount(self) -> None:
        """Start in the first field."""
        note_panel(self.query_one(".dialog"), BUTTON_KEYS)
        self.query_one("#stop-at", Input).focus()
        self._look()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Say what the typed limits would mean."""
        self._look()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go to the button on enter, past the consequence: a slip of a digit is not money yet."""
        self.query_one("#act", Button).focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Apply or keep."""
        if event.button.id == "act":
            self._apply()
        else:
            self.dismiss(None)

    def action_keep(self) -> None:
        """Change nothing."""
        self.dismiss(None)

    def _read(self) -> Limits | str:
        values: list[int] = []
        for field, name in (("#stop-at", "stop-at"), ("#cap", "cap")):
            pico = read_dollars(self.query_one(field, Input).value)
            if pico is None:
                return f"{name} must be an amount of dollars such as 25.00"
            values.append(pico)
        return Limits(*values)

    def _look(self) -> None:
        limits = self._read()
        pieces: Sequence[Piece] = ((limits, "$warning"),) if isinstance(limits, str) else self._consequence(limits)
        self.query_one("#consequence", SafeText).show(stacked([styled(piece) for piece in pieces]))
        self.query_one("#act", Button).disabled = isinstance(limits, str)

    def _apply(self) -> None:
        limits = self._read()
        if not isinstance(limits, str):
            self.dismiss(limits)


def read_dollars(text: str) -> int | None:
    """Read an amount that a person typed, or None where it is none.

    A comma parts thousands and nothing else: in `1,5` it may be meant as a decimal point, ten times less than 15.
    """
    found = _TYPED_USD.fullmatch(text.strip())
    if found is None or not any(char.isdigit() for char in text):
        return None
    amount = Decimal(found["whole"].replace(",", "") + (found["rest"] or ""))
    return usd_to_pico(amount) if amount < _LARGEST_USD else None


def _dollars(pico: int) -> str:
    whole, rest = divmod(pico, 10**12)
    decimals = f"{rest:012}".rstrip("0").ljust(2, "0")
    return f"{whole}.{decimals}"


def label(text: str) -> Content:
    """Make a button's label."""
    return styled(text)
