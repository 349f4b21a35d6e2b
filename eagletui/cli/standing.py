"""How a run stands, in words for people: its state, and whether anybody works on it."""

from typing import Final

from eagletui.core.hints import for_run
from eagletui.core.lifecycle import PauseReason
from eagletui.core.text import clean_line
from eagletui.ledger.snapshot import Snapshot

WORKING: Final = ("running", "draining")

INTERRUPTED: Final = "interrupted"
"""A run that should be worked on and that nobody works on; the ledger says `running`."""

_WAYS_OUT: Final[dict[PauseReason, str]] = {
    "stop_at": "eagletui ctl {run} stop-at USD, then: eagletui run {run}",
    "cap": "eagletui ctl {run} cap USD, then: eagletui run {run}",
}
"""What ends a pause that running again would not end."""


def has_engine(snapshot: Snapshot) -> bool:
    """Tell whether an engine lives."""
    return any(worker.role == "engine" and worker.alive for worker in snapshot.workers)


def standing(state: str, pause_reason: str | None, *, has_engine: bool) -> str:
    """Name the state: the ledger's, but a run without its engine is interrupted or was not started yet."""
    if not has_engine and state in WORKING:
        return INTERRUPTED
    if not has_engine and state == "new":
        return "not started"
    return state if pause_reason is None else f"{state} ({pause_reason})"


def standing_line(snapshot: Snapshot, argument: str) -> str:
    """Name the state, why, and what a person can do about it.

    Args:
        snapshot: the run.
        argument: names it in commands.
    """
    run, alive = snapshot.run, has_engine(snapshot)
    named = standing(run.state, run.pause_reason, has_engine=alive)
    known = run.pause_reason in ("user", *_WAYS_OUT)  # the reason says it all
    detail = f": {clean_line(for_run(run.pause_detail, argument))}" if run.pause_detail and (alive or not known) else ""
    if alive or run.state == "done":
        return named + detail
    why = ": no engine is running" if named == INTERRUPTED else detail.removesuffix(".")
    return f"{named}{why}. Go on with: {way_out(argument, run.pause_reason)}"


def way_out(argument: str, reason: PauseReason | None) -> str:
    """Return the commands that end a pause when no engine is running."""
    template = "eagletui run {run}" if reason is None else _WAYS_OUT.get(reason, "eagletui run {run}")
    return template.format(run=argument)
