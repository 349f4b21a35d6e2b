"""`python -m eagletui.notify RUN_DIR`: the watcher process of a run, which tells people what happens to it.

It is started with the engine where `[notify]` names a way, outlives the app and the engine, and ends when there is
nothing left to watch: at once when the run is done, and a minute after the engine of any other run has gone, so that
one that is started again keeps its watcher. Only something outside the engine can tell that the engine is dead.
"""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from eagletui.config.run_config import RunConfig, config_from_json
from eagletui.core.errors import EagleError
from eagletui.core.lifecycle import FINISHED_RUNS
from eagletui.core.notices import Look, Notice, notices
from eagletui.files.locked import is_locked
from eagletui.ledger.locks import RoleLock
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.writer import LedgerWriter
from eagletui.notify.sending import Sent, send
from eagletui.runs.folder import RunFolder
from eagletui.runs.stopping import stop_when_asked

LOOK_S: Final = 1.0
BEAT_EVERY: Final = 2
"""Looks between signs of life."""
ENGINE_COMES_S: Final = 120.0
"""An engine takes at most so long to start."""
LINGERS_S: Final = 60.0
"""After an engine has ended, another one may be started within this."""


def main(argv: Sequence[str]) -> int:
    """Watch one run and return the exit code.

    Args:
        argv: the run folder.
    """
    if len(argv) != 1:
        print("Usage: python -m eagletui.notify RUN_DIR", file=sys.stderr)  # noqa: T201 - a worker started by hand
        return 2
    folder = RunFolder(Path(argv[0]).resolve())
    stop = stop_when_asked()
    try:
        with RoleLock(folder, "watcher"):
            watch(folder, stop.wait)
    except EagleError as error:
        print(error, file=sys.stderr, flush=True)  # noqa: T201 - stderr is the worker's log
        return error.exit_code
    return 0


def watch(folder: RunFolder, wait: Callable[[float], bool], clock: Callable[[], float] = time.monotonic) -> None:
    """Look at a run again and again and tell what happens, until nothing more will.

    Args:
        folder: the run.
        wait: sleeps for seconds, and says whether to end.
        clock: monotonic seconds.
    """
    with LedgerReader(folder.ledger_path) as reader, LedgerWriter(folder.ledger_path) as writer:
        writer.beat("watcher", ready=True)
        argument = folder.argument_anywhere  # a notice is read in some other folder
        before = look(folder, reader, argument)
        until = clock() + ENGINE_COMES_S
        looks = 0
        while not wait(LOOK_S):
            looks += 1
            now = look(folder, reader, argument)
            config = config_from_json(reader.run().config_json)
            for notice in notices(before, now):
                tell(notice, now, config, writer)
            if now.has_engine:
                until = clock() + LINGERS_S
            elif clock() >= until or (before.has_engine and now.state in FINISHED_RUNS):
                break
            if looks % BEAT_EVERY == 0:
                writer.beat("watcher")
            before = now
        writer.stop_beat("watcher")


def look(folder: RunFolder, reader: LedgerReader, argument: str) -> Look:
    """Look at a run once.

    Args:
        folder: the run.
        reader: of its ledger.
        argument: names it in commands.
    """
    # The lock is asked first: an engine that ends in between has written its last state before.
    has_engine = is_locked(folder.lock_path("engine"))
    snapshot = reader.snapshot()
    run, states = snapshot.run, snapshot.states
    return Look(
        name=run.name,
        argument=argument,
        state=run.state,
        has_engine=has_engine,
        pause_reason=run.pause_reason,
        pause_detail=run.pause_detail or "",
        answered=snapshot.answered,
        failed=states["failed"] + states["refused"],
        samples=snapshot.samples,
        spent_pico=snapshot.spend.books.spent_pico,
        stop_at_pico=snapshot.spend.books.stop_at_pico,
        findings={
            (found.kind, found.endpoint): f"{found.sentence.rstrip('.')}. {found.action}" for found in snapshot.findings
        },
    )


def tell(notice: Notice, now: Look, config: RunConfig, writer: LedgerWriter) -> list[Sent]:
    """Send a notice that the config asks for, and note how that went; a failure ends nothing."""
    if notice.kind not in config.notify.on:
        return []
    results = send(notice, now, config, time.time())
    for result in results:
        words = f"{notice.kind} {'sent' if result.ok else 'not sent'} by {result.way}: {result.detail}"
        writer.event("info" if result.ok else "warn", "watcher", "notify", words)
    return results


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
