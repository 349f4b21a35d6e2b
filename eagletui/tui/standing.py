"""How a run stands, in words: the pill, the workers, the banner and its way out.

Pure: a snapshot and the time in, pieces of text out.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from eagletui.core.lifecycle import FINISHED_RUNS, PauseReason, WorkerRole
from eagletui.ledger.snapshot import Snapshot, WorkerFigures
from eagletui.tui import figures
from eagletui.tui.theme import Glyphs
from eagletui.tui.widgets.pill import RunStatus
from eagletui.tui.widgets.safe_text import Piece

SILENT_AFTER_S: Final = 5.0
"""A worker beats every second; after this long it counts as silent."""
LEDGER_STALE_AFTER_S: Final = 5.0
WORKING: Final = ("running", "draining")


@dataclass(frozen=True, slots=True)
class Banner:
    """A line that stays until its cause is gone."""

    text: str
    """What happened, in numbers."""
    ways_out: tuple[tuple[str, str], ...]
    """Id of the key and what it does."""
    tone: str
    """`warning`, `error`, `note` or `done`."""
    command: str = ""
    """What does the same from a shell."""


def engine_of(snapshot: Snapshot) -> WorkerFigures | None:
    """Give the engine's sign of life."""
    return next((worker for worker in snapshot.workers if worker.role == "engine"), None)


def silence(worker: WorkerFigures, snapshot: Snapshot, now: float) -> float:
    """Tell how long ago a worker gave its last sign, as of now."""
    return worker.heartbeat_age_s + max(0.0, now - snapshot.at)


def has_engine(snapshot: Snapshot) -> bool:
    """Tell whether an engine lives."""
    engine = engine_of(snapshot)
    return engine is not None and engine.alive


def is_dead(snapshot: Snapshot) -> bool:
    """Tell whether the run should be worked on and nobody does."""
    return snapshot.run.state in WORKING and not has_engine(snapshot)


def is_silent(snapshot: Snapshot, now: float) -> bool:
    """Tell whether the engine holds its lock and gives no sign."""
    engine = engine_of(snapshot)
    if snapshot.run.state not in WORKING or engine is None or not engine.alive:
        return False
    return silence(engine, snapshot, now) > SILENT_AFTER_S


def run_status(snapshot: Snapshot, now: float) -> RunStatus:
    """Sum the run up for the pill."""
    engine = engine_of(snapshot)
    silent_s = silence(engine, snapshot, now) if engine is not None and is_silent(snapshot, now) else None
    run = snapshot.run
    return RunStatus(run.state, run.pause_reason, snapshot.in_flight, silent_s, is_dead(snapshot))


def elapsed(snapshot: Snapshot, now: float) -> str:
    """Tell how long the run has been going, or went."""
    run = snapshot.run
    if run.started_at is None:
        return "not started"
    end = run.finished_at if run.state in FINISHED_RUNS and run.finished_at is not None else now
    return figures.clock(end - run.started_at)


def worker_pieces(snapshot: Snapshot, now: float) -> tuple[Piece, ...]:
    """Name each worker and its state."""
    if not snapshot.workers:
        return (("no worker", "$quiet"),)
    return tuple(worker_piece(worker, snapshot, now) for worker in snapshot.workers)


def worker_piece(worker: WorkerFigures, snapshot: Snapshot, now: float) -> Piece:
    """Name one worker, its pid and its state."""
    name = worker.role if worker.slot == 0 else f"{worker.role}.{worker.slot}"
    if worker.stopped:
        return (f"{name} ended", "$quiet")
    if not worker.alive:
        return (f"{name} {worker.pid} dead", "bold $error")
    if not worker.ready:
        return (f"{name} {worker.pid} starting", "$quiet")
    silent_s = silence(worker, snapshot, now)
    if silent_s > SILENT_AFTER_S:
        return (f"{name} {worker.pid} silent {figures.age(silent_s)}", "bold $warning")
    return (f"{name} {worker.pid} ok", "$quiet")


def ledger_piece(read_at: float | None, now: float) -> Piece:
    """Tell how old the figures on the screen are."""
    if read_at is None:
        return ("ledger not read yet", "$quiet")
    old_s = now - read_at
    if old_s > LEDGER_STALE_AFTER_S:
        return (f"? ledger {figures.age(old_s)} ago", "bold $warning")
    return ("ledger <5 s ago", "$quiet")


def finishing(snapshot: Snapshot) -> str:
    """Say what is still in flight and what it can cost."""
    if not snapshot.in_flight:
        return "Nothing is in flight."
    return f"{snapshot.in_flight:,} in flight, at most {figures.usd(snapshot.spend.books.held_pico)}."


_RESUME: Final = ("run.pause", "resume")
_STOP: Final = ("run.stop", "stop run")
_LIMITS: Final = ("run.limits", "raise the limit")
_LOG: Final = ("app.log", "see the log")
_START: Final = "app.refresh"
_PAUSES: Final[dict[PauseReason, tuple[str, tuple[tuple[str, str], ...], str]]] = {
    "user": ("Paused by you.", (_RESUME, _STOP), "note"),
    "stop_at": ("Stop-at {stop_at} is reached.", (_LIMITS, _STOP), "warning"),
    "cap": ("Cap {cap}: the next request could pass it.", (_LIMITS, _STOP), "warning"),
    "credit": ("The provider's account has no credit. Add some there, then resume.", (_RESUME, _STOP), "warning"),
    "key_limit": ("The key's own limit is reached. Raise it at the provider.", (_RESUME, _STOP), "warning"),
    "price": ("A price is not what it was.", (("app.spend", "see prices"), _RESUME, _STOP), "warning"),
    "breaker": ("Too much went wrong in a row.", (_LOG, _RESUME, _STOP), "error"),
    "check": ("A check did not hold.", (("go.next", "next issue"), _RESUME, _STOP), "warning"),
    "disk": ("The disk is full. Free some space, then resume.", (_RESUME, _STOP), "error"),
}


def banners(
    snapshot: Snapshot, now: float, restart: str, extract: str, last_words: str = "", network_disk: str | None = None
) -> tuple[Banner, ...]:
    """Choose the lines that must stay on the screen: about the run, the workers beside its engine, and the disk.

    Args:
        snapshot: the run.
        now: Unix seconds.
        restart: the command that starts the workers again.
        extract: the command that computes the features that are missing.
        last_words: the error a dead engine ended with, if it did.
        network_disk: the network file system the ledger lies on, if it does.
    """
    found = [banner(snapshot, now, restart, last_words), *(_dead_helper(snapshot, role, extract) for role in HELPERS)]
    if network_disk is not None:
        found.append(
            Banner(
                f"The ledger lies on a network file system ({network_disk}): figures may be old, and no worker starts."
                " Move the run's folder to a local disk; eagletui doctor names one.",
                (),
                "error",
            )
        )
    return tuple(line for line in found if line is not None)


HELPERS: Final[tuple[WorkerRole, ...]] = ("extractor", "provider")
"""Workers beside the engine whose death leaves work undone."""


def dead_helper(snapshot: Snapshot, role: WorkerRole) -> WorkerFigures | None:
    """Give a worker beside the engine that died while there was work for it."""
    worker = next((worker for worker in snapshot.workers if worker.role == role), None)
    if worker is None or worker.alive or worker.stopped:
        return None
    has_work = bool(snapshot.extract.pending) if role == "extractor" else snapshot.run.state in WORKING
    return worker if has_work else None


def can_start(snapshot: Snapshot) -> bool:
    """Tell whether something of the run is not at work and could be started."""
    if is_dead(snapshot) or snapshot.run.state in ("new", "stopped", "failed"):
        return True
    if not has_engine(snapshot) and (snapshot.run.state == "paused" or _is_queued_again(snapshot)):
        return True
    dead = [role for role in HELPERS if dead_helper(snapshot, role) is not None]
    return bool(dead) and snapshot.run.state in WORKING and (dead != ["extractor"] or extracts_along(snapshot))


def _is_queued_again(snapshot: Snapshot) -> bool:
    return snapshot.run.state == "done" and snapshot.states["queued"] > 0


def extracts_along(snapshot: Snapshot) -> bool:
    """Tell whether the run's config asks for an extractor beside it."""
    asked = json.loads(snapshot.run.config_json).get("extract", {})
    return bool(asked.get("when", "off") != "off")


def _dead_helper(snapshot: Snapshot, role: WorkerRole, extract: str) -> Banner | None:
    worker = dead_helper(snapshot, role)
    if worker is None:
        return None
    if is_dead(snapshot) and (role == "provider" or extracts_along(snapshot)):
        return None  # the line about the engine says what to do, and that starts both
    if role == "provider":
        text = f"The embedded provider (pid {worker.pid}) is dead: requests fail."
        return Banner(text, ((_START, "start it again"),), "error")
    waiting = figures.plural(snapshot.extract.pending, "sample")
    text = f"The extractor (pid {worker.pid}) is dead; without features: {waiting}."
    if snapshot.run.state in WORKING and extracts_along(snapshot):
        return Banner(text, ((_START, "start it again"),), "error")
    return Banner(text, (), "error", extract)


def _waits(snapshot: Snapshot) -> str:
    """Say for which costs the engine waits although nothing is left to send; the log says how not to wait."""
    engine = engine_of(snapshot)
    words = "" if engine is None else str(json.loads(engine.detail_json).get("waits") or "")
    return words.partition(" To wait no longer")[0]


def banner(snapshot: Snapshot, now: float, restart: str, last_words: str = "") -> Banner | None:
    """Choose the line about the run that must stay on the screen, if one must.

    Args:
        snapshot: the run.
        now: Unix seconds.
        restart: the command that starts the engine again.
        last_words: the error a dead engine ended with, if it did.
    """
    run = snapshot.run
    if is_dead(snapshot):
        engine = engine_of(snapshot)
        if engine is not None and engine.stopped:
            ended = f"The run was interrupted: its engine (pid {engine.pid}) has ended. {finishing(snapshot)}"
            return Banner(ended, ((_START, "go on"),), "warning", restart)
        said = f": {last_words}." if last_words else "."
        who = "No engine is running." if engine is None else f"The engine (pid {engine.pid}) is dead{said}"
        return Banner(f"{who} {finishing(snapshot)}", ((_START, "start it again"),), "error", restart)
    if is_silent(snapshot, now):
        engine = engine_of(snapshot)
        assert engine is not None
        text = f"The engine (pid {engine.pid}) gave no sign for {figures.age(silence(engine, snapshot, now))}."
        return Banner(f"{text} The figures below are old.", (_LOG,), "warning")
    if run.state == "paused" and run.pause_reason is not None:
        text, ways_out, tone = _PAUSES[run.pause_reason]
        text = text.format(stop_at=figures.usd_short(run.stop_at_pico), cap=figures.usd_short(run.cap_pico))
        detail = run.pause_detail if run.pause_reason not in ("user", "stop_at", "cap") else None
        if not has_engine(snapshot):
            # The engine of a paused run may end; what resumes it then has to start one.
            ways_out = tuple(
                (key, f"{what}: starts an engine" if key == _RESUME[0] else what) for key, what in ways_out
            )
            detail = " ".join(filter(None, (detail, "No engine is running.")))
        still = finishing(snapshot) if snapshot.in_flight or has_engine(snapshot) else ""
        return Banner(" ".join(filter(None, (text, detail, still))), ways_out, tone)
    if run.state == "new":
        return Banner("Not started.", ((_START, "start the engine"),), "note", restart)
    if run.state == "failed":
        return Banner(f"The run failed. {run.pause_detail or ''}", (_LOG, (_START, "try again")), "error")
    if run.state in WORKING and (waits := _waits(snapshot)):
        return Banner(waits, (_LOG,), "note")
    if run.state == "draining":
        return Banner(f"Ending. {finishing(snapshot)}", (), "note")
    if run.state == "stopped":
        left = figures.plural(snapshot.states["queued"], "sample")
        return Banner(f"Stopped; {left} were not sent.", ((_START, "go on"), _EXPORT), "done")
    if run.state == "done":
        if _is_queued_again(snapshot):
            return Banner(_done(snapshot), (_VERDICTS, (_START, "send them")), "done", restart)
        failed = snapshot.states["failed"] + snapshot.states["refused"]
        return Banner(_done(snapshot), (_VERDICTS, _RETRY if failed else _EXPORT), "done")
    return None


_EXPORT: Final = ("app.samples", "samples, e exports")
_RETRY: Final = ("app.samples", "samples, r retries")
_VERDICTS: Final = ("app.verdicts", "sign verdicts")


def _done(snapshot: Snapshot) -> str:
    failed = snapshot.states["failed"] + snapshot.states["refused"]
    lost = f", {figures.count(failed)} failed" if failed else ""
    waiting = snapshot.extract.pending
    wait = "waits" if waiting == 1 else "wait"
    features = (
        f" {figures.plural(waiting, 'sample')} {wait} for features." if waiting and snapshot.extract.shards else ""
    )
    queued = snapshot.states["queued"]
    again = f" {figures.plural(queued, 'sample')} queued again." if queued else ""
    return f"Done: {figures.count(snapshot.answered)} answered{lost}.{again}{features}"


def unreadable(error: str) -> Banner:
    """Say that the ledger cannot be read, while that lasts."""
    return Banner(
        f"The ledger cannot be read, so the figures below age: {error}", ((_START, "try again now"),), "error"
    )


def banner_pieces(shown: Banner, glyphs: Glyphs, name: Callable[[str], str]) -> tuple[Piece, ...]:
    """Write a banner on one line: mark, text, keys.

    Args:
        shown: what it says.
        glyphs: the marks that may be drawn.
        name: writes the key of an action.
    """
    mark = {"warning": glyphs.warning, "error": glyphs.failed, "note": glyphs.paused, "done": glyphs.done}[shown.tone]
    color = {"warning": "$warning", "error": "$error", "note": "$primary", "done": "$primary"}[shown.tone]
    pieces: list[Piece] = [(f"{mark} ", f"bold {color}"), (shown.text, color)]
    for key_id, what in shown.ways_out:
        pieces += ["   ", (name(key_id), "bold $primary"), f" {what}"]
    if shown.command:
        before = ", or: " if shown.ways_out else "   start it again: "
        pieces.append((f"{before}{shown.command}", "$quiet"))
    return tuple(pieces)
