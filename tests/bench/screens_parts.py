"""The measurements of the screens benchmark, one function each."""

import asyncio
import contextlib
import gc
import hashlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from eagletui.ledger import create
from eagletui.ledger.locks import RoleLock
from eagletui.ledger.writer import LedgerWriter
from tests.bench.engine_parts import REFERENCE
from tests.bench.job import Job, cpu_s, new_run, prompts, provider
from tests.engine.run_folder import EngineRun
from tests.ledger import million
from tests.ledger.million import make_million
from tests.tui.driving import opened
from tests.tui.factory import Built, answer, busy_run, result_for, send
from tests.tui.test_terminal import PROGRAM, Terminal

CACHE: Final = Path("~/.cache/eagletui-bench").expanduser()
MILLION: Final = 1_000_000
PATIENCE_S: Final = 60.0
WIDE: Final = (120, 36)
FIGURES: Final = b"with ids"
"""Stands beside the first figures of a run; their names are drawn before."""
_BARE: Final = """
from textual.app import App
from textual.widgets import Static
class Bare(App):
    def compose(self):
        yield Static("painted")
Bare().run()
"""
PACED: Final = replace(
    REFERENCE, prompt_tokens=300, samples=600, first_token_s=0.5, tokens_per_s=200.0, max_in_flight=80
)
"""80 in flight for 4 s each: the reference's 20 samples and 14,000 tokens a second, without its long start."""


class Paint(NamedTuple):
    """How long a first paint took."""

    wall_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Keys:
    """How fast keys were answered."""

    latencies_s: list[float]
    """Of keys on a screen, while the engine worked."""
    opening_s: list[float]
    """Of keys that open another screen, the first time included, while the engine worked."""
    idle_s: list[float]
    """Of keys on a screen, without an engine."""
    samples_per_s: float
    """What the engine did meanwhile."""
    in_flight: int
    """Samples, at the end."""
    cpu_per_s: float
    """CPU seconds a second of the screens."""
    provider_cpu_per_s: float
    """CPU seconds a second of the provider, on the same cores."""


class Watched(Terminal):
    """A program in a pseudo-terminal whose output is timed."""

    def until(self, part: bytes) -> float:
        """Wait until the program wrote something since the last `forget`; give the moment."""
        deadline = time.monotonic() + PATIENCE_S
        while part not in self.output:
            if time.monotonic() > deadline or not self._read(0.5):
                raise SystemExit(f"{part!r} never came:\n{self.output[-2000:]!r}")
        return time.perf_counter()

    def forget(self) -> None:
        """Drop what was written."""
        self.output = b""

    def collect(self, seconds: float) -> bytes:
        """Read for so long; give what was written."""
        self.forget()
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if select.select([self._master], [], [], left)[0]:
                self._read(0)
        return self.output


@contextmanager
def shown(arguments: list[str], program: str = PROGRAM) -> Iterator[Watched]:
    """Run a program in a pseudo-terminal."""
    root = str(Path(__file__).parents[2])
    variables = {"PATH": os.environ["PATH"], "TERM": "xterm-256color", "LANG": "C.UTF-8", "PYTHONPATH": root}
    variables |= {"HOME": os.environ.get("HOME", "/"), "COLORTERM": "truecolor"}
    watched = Watched(arguments, variables, WIDE, program=program)
    try:
        yield watched
    finally:
        watched.close()


def large_run(*, may_build: bool) -> tuple[Path, int]:
    """Give the run of a million samples, or a small one where it may not be built, and how many samples it has."""
    sources = [Path(str(create.__file__)).with_name("schema.sql"), Path(str(million.__file__))]
    mark = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    folder = CACHE / f"million-{mark}"
    if folder.is_dir():
        return folder, MILLION
    if not may_build:
        return _SMALL.path(), 60
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as building:
        (Path(building) / "run").mkdir()
        make_million(Path(building) / "run" / "ledger.sqlite")
        os.replace(Path(building) / "run", folder)
    return folder, MILLION


def first_paint(run: Path) -> Paint:
    """Time from the start of the process to the figures of the run on the screen."""
    return _painted(["attach", str(run)], FIGURES, PROGRAM)


def bare_first_paint() -> Paint:
    """The same for an app of the library that shows one word."""
    return _painted([], b"painted", _BARE)


def _painted(arguments: list[str], part: bytes, program: str) -> Paint:
    began = time.perf_counter()
    with shown(arguments, program) as watched:
        wall = watched.until(part) - began
        cpu = cpu_s(watched.pid)
    return Paint(round(wall, 4), cpu)


def key_latencies(job: Job, warm: int, seconds: float) -> Keys:
    """Press keys on several screens while an engine works, and without one.

    Args:
        job: what the engine buys from a provider on the same cores.
        warm: answers to wait for before the first key.
        seconds: how long to press.
    """
    with tempfile.TemporaryDirectory(prefix="eagletui-bench-") as path:
        with provider(Path(path) / "p", job) as (url, pid):
            run = new_run(Path(path) / "run", url, job, prompts(job))
            with _engine(run), run.reader() as reader, shown(["attach", str(run.folder.path)]) as watched:
                watched.until(FIGURES)
                while reader.snapshot().answered < warm:
                    watched.collect(0.2)
                before, began, cpu, theirs = (
                    reader.snapshot().answered,
                    time.monotonic(),
                    cpu_s(watched.pid),
                    cpu_s(pid),
                )
                busy, opened_s = _press(watched, seconds)
                snapshot, wall = reader.snapshot(), time.monotonic() - began
                cpu, theirs = cpu_s(watched.pid) - cpu, cpu_s(pid) - theirs
        with shown(["attach", str(run.folder.path)]) as watched:
            watched.until(FIGURES)
            idle, _ = _press(watched, 3.0)
    return Keys(
        busy, opened_s, idle, (snapshot.answered - before) / wall, snapshot.in_flight, cpu / wall, theirs / wall
    )


@contextmanager
def _engine(run: EngineRun) -> Iterator[None]:
    """Run an engine, and end it with its receivers whatever they are at."""
    command = [sys.executable, "-m", "eagletui.engine", str(run.folder.path)]
    with run.folder.log_path("engine").open("a") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        yield
        if process.poll() is not None:
            raise SystemExit(f"the engine ended before the last key:\n{run.log()[-3000:]}")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Search(NamedTuple):
    """How keys are answered while every sample is searched for a text."""

    typed_s: list[float]
    """From each letter of a text that nothing holds to its paint; each begins another search."""
    moving_s: list[float]
    """From each key in a list that grows by every sample to its paint."""
    first_hits_s: list[float]
    """From the last letter to the first samples that fit."""


def search_latencies(run: Path, rounds: int) -> Search:
    """Type texts to search for, move in what is found, and time it."""
    typed: list[float] = []
    moving: list[float] = []
    first: list[float] = []
    with shown(["attach", str(run)]) as watched:
        watched.until(FIGURES)
        _answer(watched, b"2", b"Preview")
        for _ in range(rounds):
            _answer(watched, b"/", b"latency>5")
            watched.write(b"\x7f" * 4)
            watched.collect(0.5)
            typed += [_answer(watched, b"z", b"z", settle_s=0.05) for _ in range(4)]
            watched.write(b"\x7f" * 4)
            watched.collect(1.0)
            first.append(_answer(watched, b"k", b">", settle_s=0.05))
            watched.write(b"\r")
            watched.collect(0.1)
            moving += [_answer(watched, b"j", b">", settle_s=0.05) for _ in range(4)]
    return Search(typed, moving, first)


_TOUR: Final = (
    (b"2", b"Preview", b"jjjkkkjj", b">"),
    (b"1", b"attention", b"\t\t\t", b">"),
    (b"5", b"follow", b"ttt", b"follow"),
)
"""Key of a screen, what shows that it is there, the keys pressed on it, and what each of them paints."""


def _press(watched: Watched, seconds: float) -> tuple[list[float], list[float]]:
    """Press keys on several screens, four a second or so; give the times from each key to its paint.

    Returns:
        Those of keys on a screen, and those of keys that open another screen.
    """
    on_screen: list[float] = []
    opening: list[float] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for screen, title, keys, mark in _TOUR:
            opening.append(_answer(watched, screen, title))
            on_screen += [_answer(watched, keys[number : number + 1], mark) for number in range(len(keys))]
    return on_screen, opening


def _answer(watched: Watched, key: bytes, mark: bytes, *, settle_s: float = 0.2) -> float:
    watched.forget()
    began = time.perf_counter()
    watched.write(key)
    found = watched.until(mark) - began
    watched.collect(settle_s)
    return found


def bytes_on_the_wire(seconds: int) -> tuple[int, int]:
    """Count what the dashboard writes while an answer comes every second, and that of a finished run."""
    with tempfile.TemporaryDirectory(prefix="eagletui-bench-") as path:
        finished = _busy(Path(path) / "finished")
        with finished.writer() as writer:
            writer.set_run_state("draining")
            writer.set_run_state("stopped")
        with shown(["attach", str(finished.path)]) as still:
            still.until(FIGURES)
            drawn_at = time.monotonic()
            changing = _bytes_at_1hz(_busy(Path(path) / "run"), seconds)
            # The ledger's age is told in steps; the last one is after 5 s.
            still.collect(max(0.0, drawn_at + 6.0 - time.monotonic()) + 0.1)
            return changing, len(still.collect(float(seconds)))


def _bytes_at_1hz(built: Built, seconds: int) -> int:
    with RoleLock(built.path, "engine"), shown(["attach", str(built.path), "--refresh", "0.25"]) as watched:
        watched.until(FIGURES)
        watched.collect(1.0)
        written = 0
        for number in range(seconds):
            update(built, number)
            written += len(watched.collect(1.0))
    return written


def growth_over(updates: int) -> int:
    """Tell by how many bytes the app grows over so many updates, the first fifth left out."""
    with tempfile.TemporaryDirectory(prefix="eagletui-bench-") as path:
        return asyncio.run(_growth(busy_run(Path(path) / "run"), updates))


async def _growth(built: Built, updates: int) -> int:
    at_start = 0
    async with opened(built) as screens:
        for number in range(updates):
            built.clock.now += 1.0
            with built.writer() as writer:
                writer.tick()
                writer.event("info", "engine", "progress", f"Update {number}.")
            await screens.app.look_now()
            await asyncio.sleep(0)
            if number == updates // 5:
                at_start = _resident()
    return _resident() - at_start


def _resident() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _busy(path: Path) -> Built:
    """A run in full swing as of now, with samples left to answer."""
    built = busy_run(path)
    built.clock.now = time.time()
    return built


def update(built: Built, number: int) -> None:
    """Answer the next sample, or count on where there is none, and tick."""
    built.clock.now = time.time()
    with built.writer() as writer:
        _answer_next(writer, number)
        writer.beat("engine", ready=True)
        writer.event("info", "engine", "progress", f"Update {number}.")
        writer.tick()


def _answer_next(writer: LedgerWriter, number: int) -> None:
    sent = send(writer, 1)
    if sent:
        answer(writer, sent[0], result_for(f"It was windy, and update {number} came.", "streamed"))


class _Small:
    """A run of 60 samples that stays until the process ends."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="eagletui-bench-")

    def path(self) -> Path:
        """Build it where it is not yet there."""
        run = Path(self._folder.name) / "run"
        return run if run.is_dir() else busy_run(run).path


_SMALL: Final = _Small()
