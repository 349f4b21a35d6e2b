"""What happened: frozen messages that workers post and handlers paint."""

from dataclasses import dataclass

from textual.message import Message

from eagletui.core.errors import EagleError
from eagletui.tui.run_view import RunView


@dataclass
class RunRead(Message):
    """The ledger was looked at."""

    view: RunView

    def can_replace(self, message: Message) -> bool:
        """Let a newer read take the place of one that was not shown yet."""
        return isinstance(message, RunRead)


@dataclass
class RunUnreadable(Message):
    """The ledger could not be read; the last figures stay and age."""

    error: EagleError


@dataclass
class OrderDone(Message):
    """An order to the worker ended: carried out, refused, or nobody was there."""

    sentence: str
    ok: bool
