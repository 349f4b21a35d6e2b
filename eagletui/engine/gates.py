"""May the run admit? Its state, why it paused, and what to do about it."""

import asyncio
from functools import partial
from typing import Final, Literal

from eagletui.core.lifecycle import PauseReason, RunState
from eagletui.core.money import Books, admit
from eagletui.engine.ledger_thread import LedgerThread
from eagletui.ledger.rows import Level
from eagletui.ledger.writer import LedgerWriter

_RESUME: Final = "`eagletui ctl RUN resume`, or `eagletui run RUN` where no engine runs"

WAY_OUT: Final[dict[PauseReason, str]] = {
    "user": f"Go on with {_RESUME}.",
    "stop_at": "Raise it with `eagletui ctl RUN stop-at USD`: a running engine then goes on by itself, "
    "else `eagletui run RUN` does.",
    "cap": "Raise it with `eagletui ctl RUN cap USD`: a running engine then goes on by itself, "
    "else `eagletui run RUN` does.",
    "credit": f"Buy credits at the provider, then {_RESUME}.",
    "key_limit": "Raise the key's limit at the provider or give another key: api_key_file and api_key_command are read "
    f"again by {_RESUME}, but an engine that runs does not see another environment: end it with SIGTERM first.",
    "price": f"Accept the present prices with {_RESUME}; where none of them moved, first "
    "`eagletui ctl RUN quarantine ENDPOINT`, to ask the others alone.",
    "breaker": f"Look at the events, then {_RESUME}.",
    "check": f"Look at the findings, then `eagletui ctl RUN quarantine ENDPOINT` or accept them; go on with {_RESUME}.",
    "disk": f"Free space on the disk, then {_RESUME}.",
}
"""What to do about each pause, in one sentence."""


LIMIT_REACHED: Final[dict[Literal["cap", "stop_at"], str]] = {
    "stop_at": "As much is settled as you allowed with stop-at.",
    "cap": "The worst case of one more request would pass the cap.",
}
"""What happened, where a limit of money pauses the run."""


def lifts(reason: PauseReason | None, books: Books, hold_pico: int | None, *, holds_move: bool) -> bool:
    """Tell whether a pause ended by itself because its number was raised.

    Args:
        reason: of the pause.
        books: the money as of now.
        hold_pico: the bound of the next request; None when it is not known yet.
        holds_move: open holds are still being settled, so that waiting for them helps.
    """
    if reason == "stop_at":
        return books.spent_pico < books.stop_at_pico or (
            hold_pico is not None and admit(books, hold_pico) not in ("stop_at", "cap")
        )
    if reason != "cap" or hold_pico is None:
        return False
    verdict = admit(books, hold_pico)
    return verdict == "admit" or (verdict == "wait" and holds_move)


class Gates:
    """The run's state as this engine last wrote it. A pause closes admission at once and is on disk a moment later."""

    def __init__(self, ledger: LedgerThread, state: RunState, reason: PauseReason | None) -> None:
        """Start from what the ledger says."""
        self._ledger = ledger
        self.state = state
        self.reason = reason
        self._wanted: tuple[PauseReason, str] | None = None
        self._writing = asyncio.Lock()

    @property
    def is_open(self) -> bool:
        """Requests may be admitted."""
        return self.state == "running" and self._wanted is None

    def want_pause(self, reason: PauseReason, happened: str) -> None:
        """Close admission now; `write` makes it a pause. The first reason stays.

        Args:
            reason: the class of the pause.
            happened: one sentence; what to do is added.
        """
        if self.state == "running" and self._wanted is None:
            self._wanted = (reason, f"{happened} {WAY_OUT[reason]}")

    async def write(self) -> None:
        """Put a wanted pause on disk."""
        async with self._writing:
            if self._wanted is None:
                return
            reason, detail = self._wanted
            if self.state == "running":
                await self.pause(reason, detail)
            self._wanted = None

    async def pause(self, reason: PauseReason, detail: str) -> None:
        """Pause, or give an existing pause another reason."""
        level: Level = "info" if reason == "user" else "warn"
        await self._ledger.do(partial(_write_state, "paused", level, detail, reason), urgent=True)
        self.state, self.reason = "paused", reason

    async def name_limit(self, books: Books, hold_pico: int) -> None:
        """Let a pause at one limit name the other one, where that is what is in the way by now.

        Args:
            books: the money as of now.
            hold_pico: the bound of the next request.
        """
        verdict = admit(books, hold_pico)
        if verdict in ("cap", "stop_at") and verdict != self.reason:
            await self.pause(verdict, f"{LIMIT_REACHED[verdict]} {WAY_OUT[verdict]}")

    async def move(self, state: RunState, why: str) -> None:
        """Move to a state other than paused."""
        await self._ledger.do(partial(_write_state, state, "info", why, None), urgent=True)
        self.state, self.reason, self._wanted = state, None, None

    async def stop(self) -> None:
        """End admission for good; the run is `stopped` once nothing is in flight."""
        await self.move("draining", "Stopped by hand; requests under way come to their end.")


def _write_state(
    state: RunState, level: Level, sentence: str, reason: PauseReason | None, writer: LedgerWriter
) -> None:
    """Write a state and its line in the log at once: each hop to the ledger's thread costs an order milliseconds."""
    with writer.transaction(durable=True):
        if reason is None:
            writer.set_run_state(state)
        else:
            writer.set_run_state(state, reason, sentence)
        writer.event(level, "engine", state, sentence)
