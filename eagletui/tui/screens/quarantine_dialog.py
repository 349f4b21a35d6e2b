"""Set an endpoint's answers aside since a time: what that moves and what buying it again costs."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Input

from eagletui.core.errors import EagleError
from eagletui.core.moments import read_moment
from eagletui.ledger.rebuying import Quarantined
from eagletui.tui import background, figures
from eagletui.tui.screens.dialogs import BUTTON_KEYS
from eagletui.tui.theme import is_ascii
from eagletui.tui.widgets.entry import Entry
from eagletui.tui.widgets.safe_text import Piece, SafeText, note_panel, stacked, styled


class QuarantineDialog(ModalScreen[float | None]):
    """Gives the time since when, in Unix seconds, or nothing."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "keep", "Keep", show=False),
        Binding("left,up", "app.focus_previous", "Previous", show=False),
        Binding("right,down", "app.focus_next", "Next", show=False),
    ]

    def __init__(
        self, endpoint: str, first_at: float, now: float, price: Callable[[float], Quarantined], argument: str
    ) -> None:
        """Ask.

        Args:
            endpoint: which.
            first_at: when the run began: the time that sets everything aside.
            now: Unix seconds.
            price: reads what a quarantine since a time moves; called off the event loop.
            argument: names the run in commands.
        """
        super().__init__()
        self._endpoint = endpoint
        self._first_at = first_at
        self._now = now
        self._price = price
        self._argument = argument
        self._since: float | None = None

    def compose(self) -> ComposeResult:
        """Lay the dialog out."""
        with Vertical(classes="dialog"):
            yield SafeText(f"Set {self._endpoint} aside", classes="dialog-title")
            with Horizontal(classes="dialog-field"):
                yield SafeText("since", classes="field-label")
                yield Entry(f"{datetime.fromtimestamp(self._first_at).astimezone():%Y-%m-%d %H:%M}", id="since")
            yield SafeText("  a local time such as 18:00 or 2026-01-31 18:00; empty: from now on", classes="field-note")
            yield SafeText(id="consequence", classes="dialog-body")
            with Horizontal(classes="dialog-buttons"):
                yield Button(styled("Keep using it [esc]"), id="keep")
                yield Button(styled("Set aside"), id="act")

    def on_mount(self) -> None:
        """Price what stands in the field."""
        note_panel(self.query_one(".dialog"), BUTTON_KEYS)
        self._look()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Price what was typed."""
        self._look()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go on; enter in the field sets nothing aside."""
        self.focus_next()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Set aside or keep."""
        self.dismiss(self._since if event.button.id == "act" else None)

    def action_keep(self) -> None:
        """Change nothing."""
        self.dismiss(None)

    def _look(self) -> None:
        text = self.query_one("#since", Input).value
        today = datetime.fromtimestamp(self._now).astimezone().date()
        try:
            self._since = read_moment(text, today) if text.strip() else self._now
        except (ValueError, OverflowError, OSError):
            self._since = None
            self._say((f"found {text}, expected a time such as 18:00 or 2026-01-31 18:00", "$warning"))
        self.query_one("#act", Button).disabled = self._since is None
        if self._since is not None:
            background.start(self, "price a quarantine", self._read_price, group="price")

    async def _read_price(self) -> None:
        since = self._since
        if since is None:
            return
        try:
            moved = await asyncio.to_thread(self._price, since)
        except EagleError as error:
            self._say((str(error), "$error"))
            return
        if since == self._since:
            self._say(*consequence(moved, self._argument))

    def _say(self, *lines: Piece) -> None:
        ascii_ = is_ascii(self.app)
        self.query_one("#consequence", SafeText).show(stacked([styled(line, ascii_=ascii_) for line in lines]))


def consequence(moved: Quarantined, argument: str) -> list[Piece]:
    """Say in a few lines what a quarantine moves and costs."""
    lines: list[Piece] = [
        "No new request goes to this endpoint.",
        f"{figures.plural(moved.samples, 'answer')} set aside, not trained on; cost {figures.usd(moved.cost_pico)}.",
    ]
    low, high = moved.rebuy_low_pico, moved.rebuy_high_pico
    if moved.samples and low is not None and high is not None:
        span = figures.usd(low) if low == high else f"{figures.usd(low)} to {figures.usd(high)}"
        lines.append(f"Buying them again elsewhere costs about {span}:")
        lines.append(f"eagletui ctl {argument} retry --suspect")
    lines.append("The same key undoes it.")
    return lines
