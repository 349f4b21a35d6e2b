"""Run folders: make, find, and know and start the workers of one."""

import contextlib
import difflib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from eagletui.core.errors import LedgerError, LockedError, RunError
from eagletui.core.lifecycle import WorkerRole
from eagletui.ledger.locks import Holder, RoleLock, is_locked, lock_file, read_holder
from eagletui.ledger.reader import LedgerReader
from eagletui.private_file import replace_private

SpawnRole = Literal["engine", "extractor", "provider", "watcher"]

MODULES: Final[dict[SpawnRole, str]] = {
    "engine": "eagletui.engine",
    "extractor": "eagletui.extract",
    "provider": "eagletui.embedded",
    "watcher": "eagletui.notify",
}
"""What `python -m` starts for a role."""

ROOT_VARIABLE: Final = "EAGLETUI_RUNS"
"""Environment variable that moves the runs away from `./runs`."""

_POLL_S: Final = 0.02
_LOG_TAIL_LINES: Final = 15


@dataclass(frozen=True, slots=True)
class RunFolder:
    """One run's folder and the places in it."""

    path: Path
    """The folder itself."""

    def __fspath__(self) -> str:
        """Let the folder stand where a path is expected."""
        return str(self.path)

    @property
    def name(self) -> str:
        """The run's name: the folder's."""
        return self.path.name

    @property
    def ledger_path(self) -> Path:
        """The ledger file."""
        return self.path / "ledger.sqlite"

    @property
    def config_path(self) -> Path:
        """The frozen config."""
        return self.path / "config.toml"

    @property
    def tokenizer_dir(self) -> Path:
        """A copy of the tokenizer files in use."""
        return self.path / "tokenizer"

    @property
    def vocabulary_path(self) -> Path:
        """The table of bytes per id, for viewers."""
        return self.path / "vocabulary.msgpack"

    @property
    def features_dir(self) -> Path:
        """Manifest and shards."""
        return self.path / "features"

    @property
    def provider_dir(self) -> Path:
        """Address and books of the embedded provider."""
        return self.path / "provider"

    @property
    def merged_path(self) -> Path:
        """Names the run this one was merged into; absent while it was not."""
        return self.path / "merged.json"

    @property
    def spool_dir(self) -> Path:
        """Replies that are whole and not in the ledger yet."""
        return self.path / "spool"

    @property
    def exports_dir(self) -> Path:
        """Where exports go unless told otherwise."""
        return self.path / "exports"

    def log_path(self, role: WorkerRole) -> Path:
        """Return the file that takes a worker's stdout and stderr."""
        return self.path / "logs" / f"{role}.log"

    def lock_path(self, role: WorkerRole) -> Path:
        """Return the file whose lock a living worker holds."""
        return lock_file(self.path, role)


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A worker of a run, seen from outside."""

    role: WorkerRole
    pid: int
    alive: bool
    """Its lock is held."""
    heartbeat_age_s: float | None
    """None for a worker without heartbeats (the embedded provider)."""


def runs_root() -> Path:
    """Return the folder that holds the runs: $EAGLETUI_RUNS, else ./runs."""
    return Path(os.environ.get(ROOT_VARIABLE) or "runs").expanduser().absolute()


def list_runs() -> list[RunFolder]:
    """List the runs that have a ledger, by name; one that is being made has a name with a leading dot."""
    root = runs_root()
    if not root.is_dir():
        return []
    paths = sorted(path for path in root.iterdir() if not path.name.startswith("."))
    return [RunFolder(path) for path in paths if RunFolder(path).ledger_path.is_file()]


def find(run: str) -> RunFolder:
    """Find a run by its name, its folder or its ledger file; what has a slash in it is a folder first.

    Raises:
        RunError: there is none; the message names runs of similar names.
    """
    if run and run == Path(run).name:
        restore(run)
    given = Path(run).expanduser().resolve()
    if given.name == RunFolder(given.parent).ledger_path.name and given.is_file():
        return RunFolder(given.parent)
    here, there = RunFolder(runs_root() / run), RunFolder(given)
    for folder in (there, here) if os.sep in run else (here, there):
        if run and folder.ledger_path.is_file():
            return folder
    names = [folder.name for folder in list_runs()]
    near = difflib.get_close_matches(run, names, n=3, cutoff=0.5)
    if near:
        advice = f"Did you mean {' or '.join(near)}?"
    elif names:
        advice = f"There are: {', '.join(names[:10])}{', ...' if len(names) > 10 else ''}."
    else:
        advice = f"There are no runs in {runs_root()} (set {ROOT_VARIABLE} to look elsewhere)."
    raise RunError(f"No run named {run!r}. {advice}")


def create_folder(name: str) -> RunFolder:
    """Make the folders of a new run, open to its owner only; folders that exist already are kept.

    Args:
        name: a plain folder name.

    Raises:
        RunError: the name is not a plain folder name, or the place cannot be written.
    """
    if not name or name in (".", "..") or name != Path(name).name or name.startswith("-") or not name.isprintable():
        raise RunError(f"{name!r} cannot name a run: use letters, digits, dots, dashes and underscores.")
    folder = RunFolder(runs_root() / name)
    try:
        folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for part in ("logs", "locks", "features", "provider", "exports"):
            (folder.path / part).mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise RunError(f"{folder.path} cannot be made: {error.strerror}.") from error
    return folder


class BeingMadeError(RunError):
    """Another process is making the run, or has just made it."""


@contextlib.contextmanager
def staged(name: str, *, replaces: bool = False) -> Iterator[RunFolder]:
    """Give a folder beside the runs in which one is made; it is removed if it still stands at the end.

    Args:
        name: of the run.
        replaces: there is a run of that name, which the new one is to replace.

    Raises:
        BeingMadeError: another process is making that run, or has made it meanwhile.
        RunError: the place cannot be written.
    """
    stage = create_folder(f".{name}.new")
    lock = RoleLock(stage.path, "engine")
    try:
        lock.acquire()
    except LockedError as error:
        raise BeingMadeError(f"Run {name} is being made by another process. {error}") from error
    except RunError as error:
        if stage.path.exists():
            raise
        raise BeingMadeError(f"Run {name} was being made by another process, which has ended.") from error
    try:
        if not lock.is_in_place() or (RunFolder(runs_root() / name).ledger_path.is_file() and not replaces):
            raise BeingMadeError(f"Run {name} was being made by another process, which has ended.")
        for leftover in stage.path.iterdir():
            if leftover.is_dir() and leftover != lock.path.parent:
                shutil.rmtree(leftover)
            elif not leftover.is_dir():
                leftover.unlink()
        yield create_folder(stage.name)
    except OSError as error:
        place = error.filename2 or error.filename or stage.path
        raise RunError(f"Run {name} cannot be made: {place}: {error.strerror}.") from error
    finally:
        if lock.is_in_place():
            shutil.rmtree(stage.path, ignore_errors=True)
        lock.release()


def await_made(name: str) -> RunFolder | None:
    """Wait until no other process makes a run of that name; return the run if there is one then."""
    while is_locked(lock_file(runs_root() / f".{name}.new", "engine")):
        time.sleep(_POLL_S)  # a lock without holding it can only be looked at
    folder = RunFolder(runs_root() / name)
    return folder if folder.ledger_path.is_file() else None


def publish(stage: RunFolder, final: RunFolder) -> None:
    """Give a run that was made in a stage its name.

    Raises:
        RunError: the place is taken or cannot be written.
    """
    try:
        stage.path.rename(final.path)
    except OSError as error:
        raise RunError(f"{final.path} cannot be made: {error.strerror}.") from error


def replace(stage: RunFolder, final: RunFolder, check: Callable[[RunFolder], None]) -> None:
    """Give a run that was made in a stage the name of one that is removed; on any error the old one stays.

    Args:
        stage: the new run.
        final: the old one, in whose place the new one comes.
        check: raises where the old one must stay; it is called while no engine can start.

    Raises:
        LockedError: an engine works on the old one.
        RunError: the place cannot be written.
    """
    old = _set_aside(final)
    with RoleLock(final.path, "engine"):
        check(final)
        shutil.rmtree(old.path, ignore_errors=True)
        publish(final, old)
        try:
            publish(stage, final)
        finally:
            if not final.ledger_path.is_file():
                publish(old, final)
        shutil.rmtree(old.path, ignore_errors=True)


def restore(name: str) -> None:
    """Give a run its name back if the process that was to replace it died before the new one had that name.

    Raises:
        RunError: the place cannot be written.
    """
    final = RunFolder(runs_root() / name)
    old = _set_aside(final)
    if final.path.exists() or not old.ledger_path.is_file():
        return
    try:
        with RoleLock(old.path, "engine"):
            if not final.path.exists():
                publish(old, final)
    except LockedError:
        return  # it is still being replaced, by a process that puts one of the two there
    except RunError:
        if not final.path.exists():
            raise


def _set_aside(final: RunFolder) -> RunFolder:
    return RunFolder(final.path.with_name(f".{final.name}.old"))


def mark_merged(folder: RunFolder, into: RunFolder) -> None:
    """Note in a run's folder that its samples belong to another run from now on."""
    content = json.dumps({"into": str(into.path.resolve()), "at": time.time()})
    replace_private(folder.merged_path, content + "\n")


def refuse_merged(folder: RunFolder) -> None:
    """Refuse to work on a run whose samples belong to another one: what it bought would be bought twice.

    Raises:
        RunError: names the other run; one that was never finished or is gone does not count.
    """
    try:
        into = RunFolder(Path(json.loads(folder.merged_path.read_text(encoding="utf-8"))["into"]))
    except FileNotFoundError:
        return
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{folder.merged_path} cannot be read; expected the run this one was merged into.") from error
    if into.ledger_path.is_file():
        raise RunError(
            f"Run {folder.name} was merged into {into.path}: go on there, so that nothing is bought or counted twice. "
            f"If that run is to be given up, remove it first."
        )


def write_config_file(folder: RunFolder, toml: str) -> None:
    """Replace the frozen config, whole or not at all."""
    replace_private(folder.config_path, toml)


def spawn(folder: RunFolder, role: SpawnRole, *extra_args: str) -> int:
    """Start a worker that outlives this process, and return its pid; `wait_ready` tells when it works.

    The worker gets its own session, no stdin, and its log file for stdout and stderr.

    Args:
        folder: the run.
        role: which worker.
        extra_args: passed on after the folder.
    """
    log = folder.log_path(role)
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    log_start, spawned_at = os.fstat(descriptor).st_size, time.time()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", MODULES[role], str(folder.path.resolve()), *extra_args],
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
        )
    finally:
        os.close(descriptor)
    _children[process.pid] = _Child(process, spawned_at, log_start)
    return process.pid


@dataclass(frozen=True, slots=True)
class _Child:
    """A worker started here: kept so that a dead one is reaped and its exit code known."""

    process: "subprocess.Popen[bytes]"
    spawned_at: float
    """Unix seconds; an older heartbeat of the same pid is another process's."""
    log_start: int
    """Where its part of the log begins, in bytes."""


_children: Final[dict[int, _Child]] = {}
"""By pid."""


def wait_ready(
    folder: RunFolder,
    role: SpawnRole,
    timeout_s: float = 30.0,
    *,
    pid: int | None = None,
    give_up: Callable[[], bool] = lambda: False,
) -> None:
    """Wait until a worker has said that it can work.

    Args:
        folder: the run.
        role: which worker.
        timeout_s: how long to wait.
        pid: the worker's, from `spawn`; None for whichever holds the role.
        give_up: asked again and again; True ends the wait without an error.

    Raises:
        RunError: it died, or was not ready in time; the message quotes the end of its log.
    """
    deadline = time.monotonic() + timeout_s
    is_ready: Callable[[], bool] = _provider_ready(folder, pid) if role == "provider" else _beats(folder, role, pid)
    while not is_ready():
        if give_up():
            return
        if pid is not None and not _is_running(pid):
            # It may have become ready and ended between the two looks.
            if is_ready():
                return
            raise RunError(f"The {role} of {folder.name} ended while starting.{_log_tail(folder, role, pid)}")
        if time.monotonic() >= deadline:
            raise RunError(
                f"The {role} of {folder.name} was not ready within {timeout_s:g} s.{_log_tail(folder, role, pid)}"
            )
        time.sleep(_POLL_S)


def workers(folder: RunFolder) -> list[WorkerStatus]:
    """List the workers that live or left a trace, engine first."""
    _reap()
    found: dict[WorkerRole, WorkerStatus] = {}
    receivers: list[WorkerStatus] = []
    try:
        with LedgerReader(folder.ledger_path) as reader:
            for figures in reader.workers():
                status = WorkerStatus(figures.role, figures.pid, figures.alive, figures.heartbeat_age_s)
                if figures.role == "receiver":
                    receivers.append(status)
                else:
                    found[figures.role] = status
    except LedgerError:
        # A folder without a readable ledger can still have workers that hold locks.
        found.clear()
    roles: tuple[WorkerRole, ...] = ("engine", "extractor", "provider", "watcher")
    for role in roles:
        if is_locked(folder.lock_path(role)) and (role not in found or not found[role].alive):
            holder = read_holder(folder.lock_path(role))
            if holder is not None and not holder.job:
                found[role] = WorkerStatus(role, holder.pid, True, None)
    others = [found[role] for role in roles if role in found]
    engines = [worker for worker in others if worker.role == "engine"]
    return [*engines, *receivers, *others[len(engines) :]]


def job_at_work(folder: RunFolder) -> str | None:
    """Name the command that has the engine's place, such as a rebuild, as a sentence; None without one."""
    path = folder.lock_path("engine")
    holder = read_holder(path)
    if holder is None or not holder.job or not is_locked(path):
        return None
    return f"`{holder.job}` is at work on it (pid {holder.pid}): wait until it ends, or stop it."


def is_alive(folder: RunFolder, role: WorkerRole) -> WorkerStatus | None:
    """Return a worker's status if it lives, else None."""
    return next((worker for worker in workers(folder) if worker.role == role and worker.alive), None)


def _reap() -> None:
    """Take the exit codes of workers that were started here and have ended, so that none stays a zombie."""
    for child in _children.values():
        child.process.poll()


def _beats(folder: RunFolder, role: SpawnRole, pid: int | None) -> Callable[[], bool]:
    def is_ready() -> bool:
        try:
            with LedgerReader(folder.ledger_path) as reader:
                beat = next((beat for beat in reader.heartbeats() if beat.role == role and beat.slot == 0), None)
        except LedgerError:
            return False
        if beat is None or beat.ready_at is None:
            return False
        if pid is None:
            return beat.stopped_at is None and _holds(folder, beat.pid, role)
        child = _children.get(pid)
        return beat.pid == pid and (child is None or beat.ready_at >= child.spawned_at)

    return is_ready


def _holds(folder: RunFolder, pid: int, role: WorkerRole) -> bool:
    holder: Holder | None = read_holder(folder.lock_path(role))
    return is_locked(folder.lock_path(role)) and holder is not None and holder.pid == pid


def _provider_ready(folder: RunFolder, pid: int | None) -> Callable[[], bool]:
    address = folder.provider_dir / "address.json"

    def is_ready() -> bool:
        try:
            found = int(json.loads(address.read_text(encoding="utf-8"))["pid"])
        except (OSError, ValueError, KeyError, TypeError):
            return False
        return found == pid if pid is not None else _is_running(found)

    return is_ready


def _is_running(pid: int) -> bool:
    child = _children.get(pid)
    if child is not None:
        return child.process.poll() is None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _log_tail(folder: RunFolder, role: WorkerRole, pid: int | None) -> str:
    child = None if pid is None else _children.get(pid)
    try:
        written = folder.log_path(role).read_bytes()[0 if child is None else child.log_start :]
    except FileNotFoundError:
        written = b""
    lines = written.decode("utf-8", "replace").splitlines()[-_LOG_TAIL_LINES:]
    if not lines:
        return f" Its log {folder.log_path(role)} is empty."
    return f" The end of {folder.log_path(role)}:\n" + "\n".join(f"  {line}" for line in lines)
