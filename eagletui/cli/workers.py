"""Start a run's workers and see it through: followed without screens, or with the app open."""

from collections.abc import Sequence

from eagletui.cli.follow import INTERRUPTED, Interrupts, end_helpers, follow, interruptible, pass_on
from eagletui.cli.opening import show
from eagletui.cli.output import say
from eagletui.config.run_config import RunConfig
from eagletui.core.errors import EagleError, RunError
from eagletui.core.lifecycle import FINISHED_RUNS
from eagletui.files.locked import is_locked
from eagletui.ledger import commands
from eagletui.ledger.reader import LedgerReader
from eagletui.runs.claims import Claim
from eagletui.runs.folder import RunFolder
from eagletui.runs.workers import SpawnRole, is_alive, spawn, wait_ready

PROVIDER_READY_S = 60.0
ENGINE_READY_S = 60.0
EXTRACTOR_READY_S = 60.0
WATCHER_READY_S = 60.0
PROVIDER_GRACE_S = 60
"""The embedded provider ends so long after the last engine."""


def work(folder: RunFolder, config: RunConfig, claim: Claim, *, exit_when_paused: bool, follows: bool) -> int | None:
    """Start what the run needs and follow it to its end; an interrupt ends the engine started here from the first on.

    Args:
        folder: the run.
        config: its config.
        claim: on the run; given up once the engine works.
        exit_when_paused: the engine ends with a pause.
        follows: False returns None once the workers are ready, unless a person has interrupted by then.

    Returns:
        The exit code.

    Raises:
        RunError: a worker did not start, or the engine died.
    """
    after_event = last_event(folder)
    with interruptible() as interrupts:
        joined = start_workers(folder, config, claim, interrupts, exit_when_paused=exit_when_paused)
        if follows or interrupts.count:
            return follow(folder, config, interrupts, after_event=after_event, joined=joined)
    return None


def last_event(folder: RunFolder) -> int:
    """Return the id of the run's last event, so that later ones can be told."""
    with LedgerReader(folder.ledger_path) as reader:
        return reader.snapshot().last_event_id


def start_workers(
    folder: RunFolder, config: RunConfig, claim: Claim, interrupts: Interrupts, *, exit_when_paused: bool
) -> bool:
    """Start what the run needs and does not have: the embedded provider, the engine, the extractor.

    Args:
        folder: the run.
        config: its config.
        claim: on the run; handed over to the engine.
        interrupts: no worker is started after one.
        exit_when_paused: the engine ends with a pause.

    Returns:
        True when the engine is another command's.

    Raises:
        RunError: a worker did not start; the message quotes its log, and nothing that was started here stays.
    """
    try:
        joined = not _start(folder, config, claim, interrupts, exit_when_paused=exit_when_paused)
        claim.release()
    except EagleError:
        if not is_alive(folder, "engine"):
            end_helpers(folder)
        raise
    if joined and (engine := is_alive(folder, "engine")) is not None:
        say(f"Run {folder.name} is at work already (engine pid {engine.pid}); this command joins it.")
    return joined


def _start(
    folder: RunFolder, config: RunConfig, claim: Claim, interrupts: Interrupts, *, exit_when_paused: bool
) -> bool:
    """Start the workers, none after an interrupt, and tell whether the engine is not another command's."""
    if config.provider.kind == "embedded" and config.provider.base_url is None:
        faults = [] if config.provider.faults is None else ["--faults", str(config.provider.faults)]
        lifetime = ("--end-without-engine", str(PROVIDER_GRACE_S))
        ensure(
            folder, "provider", PROVIDER_READY_S, interrupts, "--backend", config.provider.backend, *lifetime, *faults
        )
    with LedgerReader(folder.ledger_path) as reader:
        state = reader.run().state
    if state == "paused":
        # The order waits in the ledger: the engine finds it before it could end because of the pause.
        commands.issue(folder.ledger_path, "resume")
    if config.notify.is_on:
        # Before the engine, so that nothing it does is missed.
        ensure(folder, "watcher", WATCHER_READY_S, interrupts)
    if interrupts.count:
        return is_alive(folder, "engine") is None
    args = ["--exit-when-paused"] if exit_when_paused else []
    is_ours = ensure(folder, "engine", ENGINE_READY_S, interrupts, *args, keeps=claim.descriptors)
    if config.extract.when != "off" and not interrupts.count:
        # Whoever ends the workers must find it, so it has to hold its lock before this returns.
        try:
            ensure(folder, "extractor", EXTRACTOR_READY_S, interrupts)
        except RunError as error:
            say(f"{error}\nThe run goes on without features; later: eagletui extract {folder.argument} --model PATH")
    return is_ours


def ensure(
    folder: RunFolder,
    role: SpawnRole,
    timeout_s: float,
    interrupts: Interrupts,
    *args: str,
    keeps: Sequence[int] = (),
) -> bool:
    """Start a worker unless one lives, wait until it works, and tell whether it was started here.

    Another command may start one at the same time; whose gets the role is the one that both use. An interrupt is passed
    on to an engine of ours, which drains or, not having asked anything yet, ends.
    """
    if is_alive(folder, role) is not None:
        wait_ready(folder, role, timeout_s, give_up=lambda: interrupts.count > 0)
        return False
    pid = spawn(folder, role, *args, keeps=keeps)

    def heed() -> bool:
        if role == "engine" and interrupts.count > interrupts.passed_on:
            pass_on(interrupts, pid)
        return False

    try:
        wait_ready(folder, role, timeout_s, pid=pid, give_up=heed)
    except RunError:
        if interrupts.passed_on:
            return True
        other = is_alive(folder, role)
        if other is None or other.pid == pid:
            raise
        wait_ready(folder, role, timeout_s, give_up=lambda: interrupts.count > 0)
        return False
    return True


def open_screens(folder: RunFolder, *, ascii_: bool, mouse: bool) -> int:
    """Open the app on a run; the workers go on when it is closed."""
    try:
        code = show(folder, ascii_=ascii_, mouse=mouse)
    except KeyboardInterrupt:
        say(f"Run {folder.name} goes on without this command. Stop it with: eagletui ctl {folder.argument} stop")
        return INTERRUPTED
    with LedgerReader(folder.ledger_path) as reader:
        ended = reader.run().state in FINISHED_RUNS
    if ended and not is_locked(folder.lock_path("engine")) and not is_locked(folder.lock_path("extractor")):
        end_helpers(folder)
    return code
