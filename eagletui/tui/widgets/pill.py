"""The state of a run in a glyph, a word and an attribute; colour comes last."""

from typing import NamedTuple

from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from eagletui.core.lifecycle import PauseReason, RunState
from eagletui.tui.theme import Glyphs, glyphs_of
from eagletui.tui.widgets.safe_text import Piece, styled

PAUSED_WORDS: dict[PauseReason, str] = {
    "user": "by you",
    "stop_at": "at stop-at",
    "cap": "at cap",
    "credit": "no credit",
    "key_limit": "at key limit",
    "price": "price changed",
    "breaker": "breaker",
    "check": "by check",
    "disk": "disk full",
}
MONEY_REASONS: tuple[PauseReason, ...] = ("stop_at", "cap", "credit", "key_limit", "price")


class RunStatus(NamedTuple):
    """What the pill shows."""

    state: RunState | None
    """None: no ledger was read yet."""
    reason: PauseReason | None = None
    in_flight: int = 0
    silent_s: float | None = None
    """Set when the engine holds its lock and gives no sign."""
    is_dead: bool = False
    """The run should be worked on and nobody does."""


def pill(status: RunStatus, glyphs: Glyphs) -> Piece:
    """Write the state."""
    if status.state is None:
        return (f"{glyphs.queued} LOADING", "$quiet")
    if status.is_dead:
        return (f"{glyphs.failed} NO ENGINE", "bold $error")
    if status.silent_s is not None:
        return (f"{glyphs.stale} STALE {int(status.silent_s)} s", "bold $warning")
    match status.state:
        case "running":
            return (f"{glyphs.running} RUNNING", "bold $success")
        case "draining":
            return (f"{glyphs.draining} DRAINING {status.in_flight:,}", "bold $warning")
        case "paused":
            reason = status.reason or "user"
            mark = glyphs.limit if reason in MONEY_REASONS else glyphs.paused
            tone = "$warning" if reason != "user" else "$primary"
            return (f" {mark} PAUSED {PAUSED_WORDS[reason]} ", f"bold reverse {tone}")
        case "done":
            return (f"{glyphs.done} DONE", "bold")
        case "stopped":
            return (f"{glyphs.done} STOPPED", "bold")
        case "failed":
            return (f"{glyphs.failed} FAILED", "bold $error")
        case "new":
            return (f"{glyphs.queued} NEW", "$quiet")


class StatusPill(Widget):
    """The state of the run."""

    DEFAULT_CSS = "StatusPill { height: 1; width: auto; }"

    status: reactive[RunStatus] = reactive(RunStatus(None), repaint=False)

    def watch_status(self, old: RunStatus, new: RunStatus) -> None:
        """Paint where the words change, and lay the line out anew where they take other room."""
        before, after = self._content(old), self._content(new)
        if before.plain != after.plain or before.spans != after.spans:
            self.refresh(layout=before.cell_length != after.cell_length)

    def _content(self, status: RunStatus) -> Content:
        return styled(pill(status, glyphs_of(self.app)))

    def render(self) -> Content:
        """Draw the state."""
        return self._content(self.status)
