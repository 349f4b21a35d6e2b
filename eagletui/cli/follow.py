"""Watch a run without screens: progress lines, the end of its workers, and the exit code."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Final

from eagletui.cli.output import counted, say
from eagletui.cli.standing import way_out
from eagletui.cli.status import evidence_text, waits_of
from eagletui.config.run_config import RunConfig
from eagletui.core.errors import RunError
from eagletui.core.hints import for_run
from eagletui.core.lifecycle import FINISHED_RUNS, WorkerRole
from eagletui.core.money import format_usd
from eagletui.core.text import clean_line
from eagletui.files.locked import is_locked
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.snapshot import Snapshot
from eagletui.runs.folder import RunFolder
from eagletui.runs.workers import is_alive

POLL_S: Final = 0.1
LINE_EVERY_S: Final = 5.0
WARNINGS: Final = 10
"""At most so many are printed at a time; all of them are in the app and the ledger."""
STOP_TIMEOUT_S: Final = 60.0
DONE, FAILED, PAUSED, INTERRUPTED = 0, 1, 3, 130


@dataclass(slots=True)
class Interrupts:
    """How often a person asked to end."""

    count: int = 0
    passed_on: int = 0
    """How many of them the engine that was started here was told."""


def follow(
    folder: RunFolder,
    config: RunConfig,
    interrupts: Interrupts,
    *,
    after_event: int,
    joined: bool = False,
    patience_s: float | None = None,
) -> int:
    """Print progress until the run's workers have ended, and return the exit code.

    Args:
        folder: the run; its workers have been started.
        config: its config.
        interrupts: counted since before the workers were started.
        after_event: the last event before them; warnings of later ones are printed.
        joined: somebody else started the engine: an interrupt leaves it at work, and so does a pause.
        patience_s: end an engine that has waited so long for nothing but costs; their holds stay. None: let it wait.

    Raises:
        RunError: the engine died in the middle of a run.
    """
    with LedgerReader(folder.ledger_path) as reader:
        progress = Progress(reader, folder.argument, after_event)
        if joined and (left := _look_on(folder, interrupts, progress)) is not None:
            return left
        was_cut_short = _wait(folder, "engine", interrupts, progress, patience_s)
        snapshot = progress.show(always=True)
        if not interrupts.count and snapshot.run.state in FINISHED_RUNS:
            _wait(folder, "extractor", interrupts, progress)
            snapshot = progress.show(always=True)
        end_helpers(folder)
    if interrupts.count:
        say(f"The run can go on: eagletui run {folder.argument}")
        return INTERRUPTED
    if was_cut_short and snapshot.run.state not in (*FINISHED_RUNS, "paused"):
        return _without_answers(folder, snapshot)
    return outcome(folder, config, snapshot)


def _look_on(folder: RunFolder, interrupts: Interrupts, progress: "Progress") -> int | None:
    """Watch an engine that is not ours; return the exit code if we leave before it ends."""
    while is_locked(folder.lock_path("engine")):
        snapshot = progress.show()
        if interrupts.count:
            say(f"Run {folder.name} goes on without this command. Stop it with: eagletui ctl {folder.argument} stop")
            return INTERRUPTED
        if snapshot.run.state == "paused" and not snapshot.in_flight:
            say(f"Paused ({snapshot.run.pause_reason}); its engine waits. Look: eagletui attach {folder.argument}")
            return PAUSED
        time.sleep(POLL_S)
    return None


def has_work(config: RunConfig, snapshot: Snapshot) -> bool:
    """Tell whether workers would find anything to do."""
    if snapshot.run.state not in FINISHED_RUNS:
        return True
    left = snapshot.states["queued"] + snapshot.states["in_flight"] + snapshot.attempts["unsettled"]
    return left > 0 or (config.extract.when != "off" and snapshot.extract.pending > 0)


def end_helpers(folder: RunFolder) -> None:
    """End the extractor, then the embedded provider, which nobody needs once the engine has ended."""
    for role in _HELPERS:
        worker = is_alive(folder, role)
        if worker is None:
            continue
        _signal(worker.pid)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while is_locked(folder.lock_path(role)):
            if time.monotonic() > deadline:
                say(f"The {role} (pid {worker.pid}) has not ended within {STOP_TIMEOUT_S:.0f} s; it is left alone.")
                break
            time.sleep(POLL_S)


_HELPERS: Final[tuple[WorkerRole, ...]] = ("extractor", "provider")


@dataclass(slots=True)
class Progress:
    """Prints a line when something changed, at most every few seconds, and at once when the state changed."""

    reader: LedgerReader
    argument: str
    """Names the run in commands."""
    after_event: int = 0
    """The last event whose warning was printed."""
    started: float = 0.0
    line: str = ""
    state: str = ""
    at: float = 0.0
    version: int = -1
    snapshot: Snapshot | None = None
    waits: bool = False

    def show(self, *, always: bool = False) -> Snapshot:
        """Look at the ledger, print a line if one is due, and return what was seen."""
        now = time.monotonic()
        self.started = self.started or now
        version = self.reader.data_version()
        if self.snapshot is None or version != self.version:
            self.version, self.snapshot = version, self.reader.snapshot()
        run = self.snapshot.run
        state = run.state if run.pause_reason is None else f"{run.state} ({run.pause_reason})"
        if always or state != self.state or now - self.at >= LINE_EVERY_S:
            detail = (
                f": {clean_line(for_run(run.pause_detail, self.argument))}"
                if run.pause_detail and state != self.state
                else ""
            )
            line = f"{state}{detail}  {progress_line(self.snapshot)}"
            if line != self.line:
                say(f"{now - self.started:6.0f} s  {line}")
            self.line, self.state, self.at = line, state, now
        self._say_warnings(self.snapshot)
        self._say_wait(self.snapshot)
        return self.snapshot

    def _say_warnings(self, snapshot: Snapshot) -> None:
        """Print what the workers warned of since the last look; a pause has a line of its own."""
        if snapshot.last_event_id <= self.after_event:
            return
        newest = self.reader.last_events(WARNINGS, ("warn", "error"))
        for event in newest:
            if event.id > self.after_event and event.kind != "paused" and event.sample_key is None:
                say(f"{event.level}: {self._own(event.message)}")
        self.after_event = snapshot.last_event_id

    def _own(self, words: str) -> str:
        """Name this run in a sentence of the ledger."""
        return clean_line(for_run(words, self.argument))

    def _say_wait(self, snapshot: Snapshot) -> None:
        """Say once why a run goes on although nothing is in flight."""
        words = waits_of(snapshot, self.argument)
        if words and not self.waits:
            say(words)
        self.waits = bool(words)


def progress_line(snapshot: Snapshot) -> str:
    """Return the figures of one moment on one line."""
    books = snapshot.spend.books
    failed = snapshot.states["failed"] + snapshot.states["refused"]
    parts = [
        f"{snapshot.answered:,}/{snapshot.samples:,} answered",
        f"{snapshot.in_flight:,} in flight",
        *([f"{failed:,} failed"] if failed else []),
        f"{format_usd(books.settled_pico)} settled",
        f"{format_usd(books.held_pico)} held",
        *([f"{format_usd(books.unsettled_pico)} unsettled"] if books.unsettled_pico else []),
        evidence_text(snapshot.evidence),
        *([f"{snapshot.extracted:,} extracted"] if any(w.role == "extractor" for w in snapshot.workers) else []),
    ]
    return " | ".join(part for part in parts if part)


def _wait(
    folder: RunFolder, role: WorkerRole, interrupts: Interrupts, progress: Progress, patience_s: float | None = None
) -> bool:
    """Wait until a worker has ended; pass a person's Ctrl-C on to it, first to drain, then to stop.

    Returns:
        Whether it was ended because it waited for nothing but costs for longer than `patience_s`.
    """
    waits_since: float | None = None
    was_cut_short = False
    while is_locked(folder.lock_path(role)):
        snapshot = progress.show()
        now = time.monotonic()
        waits_since = (waits_since or now) if _only_costs_are_open(snapshot) else None
        if patience_s is not None and waits_since is not None and now - waits_since >= patience_s and not was_cut_short:
            was_cut_short = True
            unsettled = format_usd(snapshot.spend.books.unsettled_pico)
            say(
                f"{unsettled} of broken requests stays unsettled. To ask what they cost: eagletui run {folder.argument}"
            )
            if (worker := is_alive(folder, role)) is not None:
                _signal(worker.pid)
        if interrupts.count > interrupts.passed_on and (worker := is_alive(folder, role)) is not None:
            pass_on(interrupts, worker.pid)
        time.sleep(POLL_S)
    return was_cut_short


def pass_on(interrupts: Interrupts, pid: int) -> None:
    """Tell a worker of one more interrupt, and say what that does: the first drains, the second stops."""
    interrupts.passed_on += 1
    _signal(pid)
    say(
        "Interrupted: what is in flight comes to its end; Ctrl-C again breaks it off."
        if interrupts.passed_on == 1
        else "Interrupted again: stopping now."
    )


def _only_costs_are_open(snapshot: Snapshot) -> bool:
    """Tell whether a run can do nothing but wait for the costs of requests that have ended."""
    is_at_rest = snapshot.run.state == "paused" or not (snapshot.states["queued"] or snapshot.states["in_flight"])
    return is_at_rest and not snapshot.in_flight and snapshot.spend.books.open_pico > 0


def outcome(folder: RunFolder, config: RunConfig, snapshot: Snapshot) -> int:
    """Return the exit code of a run whose workers have ended, and say what a person should know.

    Raises:
        RunError: the engine died in the middle of the run.
    """
    run, excess = snapshot.run, snapshot.key_excess
    if excess is not None:
        say(f"{clean_line(excess.sentence)} {clean_line(for_run(excess.action, folder.argument))}")
    if run.state == "paused":
        say(f"Paused ({run.pause_reason}). Go on with: {way_out(folder.argument, run.pause_reason)}")
        return PAUSED
    if run.state not in FINISHED_RUNS:
        raise EngineDiedError(
            f"The engine of {folder.name} ended while the run was {run.state}. Its log is "
            f"{folder.log_path('engine')}. Nothing is lost; go on with: eagletui run {folder.argument}"
        )
    if run.state == "failed":
        return FAILED
    if config.extract.when != "off" and snapshot.extract.pending:
        say(
            f"{counted(snapshot.extract.pending, 'sample')} without features: the extractor has ended. "
            f"Its log is {folder.log_path('extractor')}"
        )
        return FAILED
    code = _without_answers(folder, snapshot)
    return FAILED if excess is not None and config.check.on_breach != "warn" else code


def _without_answers(folder: RunFolder, snapshot: Snapshot) -> int:
    """Say how many samples have no answer, and return the exit code that this makes."""
    failed = snapshot.states["failed"] + snapshot.states["refused"]
    if failed:
        say(
            f"{counted(failed, 'sample')} without an answer: eagletui inspect {folder.argument} lists them, "
            f"eagletui ctl {folder.argument} retry queues them again."
        )
    return FAILED if failed else DONE


class EngineDiedError(RunError):
    """The engine ended in the middle of a run."""

    exit_code = 1


def _signal(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)


@contextmanager
def interruptible() -> Iterator[Interrupts]:
    """Count SIGINT and SIGTERM instead of dying of them."""
    interrupts = Interrupts()

    def count(number: int, frame: FrameType | None) -> None:
        interrupts.count += 1

    before = {number: signal.signal(number, count) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupts
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
