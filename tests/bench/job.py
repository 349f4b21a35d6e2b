"""A job for the engine: prompts and answers of chosen lengths, a provider process, an engine process, and their CPU."""

import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import zstandard

from eagletui.embedded.data import replay_path, tokenizer_dir
from eagletui.embedded.replay import Recording, load_recordings
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.snapshot import Snapshot
from eagletui.runs.folder import RunFolder
from eagletui.tokens.load import load_tokenizer
from tests.bench.reconstruct import corpus
from tests.engine.run_folder import EngineRun, make_run, until
from tests.soak.workers import free_port

RECORDINGS: Final = 150
"""Different answers of a job; requests draw from them by a hash of their prompt."""
SPREAD: Final = 0.5
"""Of the logarithm of lengths."""
LOOK_S: Final = 0.1
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Job:
    """What is bought, how fast the provider gives it, and for how much at most."""

    samples: int
    prompt_tokens: int
    """Mean; lengths are lognormal."""
    output_tokens: int
    """Mean."""
    max_tokens: int
    first_token_s: float
    tokens_per_s: float | None
    """None: the provider answers at once."""
    max_in_flight: int
    cap_usd: str
    stream: str = "auto"
    receivers: int | str = "auto"

    @property
    def latency_s(self) -> float:
        """Mean time of an answer at the provider."""
        return self.first_token_s + (0.0 if self.tokens_per_s is None else self.output_tokens / self.tokens_per_s)


@dataclass(slots=True)
class Outcome:
    """What came of a job."""

    wall_s: float
    """From ready to done."""
    cpu_s: float
    """Of the engine and its receivers, from ready to done."""
    provider_cpu_s: float
    most_in_flight: int
    snapshot: Snapshot
    streamed: int
    """Attempts."""
    output_tokens: int
    peak_bytes: int
    """Resident, the engine and its receivers, at most."""
    marks: dict[str, Any] = field(default_factory=dict)
    """What a visitor left."""


def lengths(mean: int, number: int, most: int, seed: int) -> list[int]:
    """Draw seeded lognormal lengths with a mean."""
    dice = random.Random(seed)
    middle = math.log(mean) - SPREAD**2 / 2
    return [min(most, max(4, round(dice.lognormvariate(middle, SPREAD)))) for _ in range(number)]


def write_recordings(path: Path, job: Job) -> None:
    """Write answers of the job's lengths, put together from recorded ones in ASCII."""
    vocabulary = load_tokenizer(tokenizer_dir()).vocabulary
    known = [
        recording
        for recording in load_recordings(replay_path())
        if recording.finish_reason == "stop" and vocabulary.decode(recording.output_ids[:-1]).isascii()
    ]
    dice = random.Random(11)
    made = []
    for number, length in enumerate(lengths(job.output_tokens, RECORDINGS, job.max_tokens, 3)):
        ids: list[int] = []
        logprobs: list[float] = []
        end = known[0]
        while len(ids) < length - 1:
            piece = dice.choice(known)
            ids += piece.output_ids[:-1]
            logprobs += piece.logprobs[:-1]
            end = piece
        ids, logprobs = ids[: length - 1], logprobs[: length - 1]
        stop = Recording(f"r{number}", (*ids, end.output_ids[-1]), (*logprobs, end.logprobs[-1]), "stop")
        made.append(stop)
    lines = b"\n".join(msgspec.json.encode(recording) for recording in made)
    path.write_bytes(zstandard.ZstdCompressor().compress(lines))


def prompts(job: Job) -> list[str]:
    """Return prompts of the job's lengths, each different."""
    tokenizer = load_tokenizer(tokenizer_dir())
    ids = [token for text in corpus(40) for token in tokenizer.encode(text)]
    dice = random.Random(5)
    texts = []
    for number, length in enumerate(lengths(job.prompt_tokens, job.samples, 8 * job.prompt_tokens, 4)):
        start = dice.randrange(len(ids) - length)
        body = tokenizer.vocabulary.decode(ids[start : start + length]).decode("utf-8", "replace")
        texts.append(f"{number}. {body}".replace("\ufffd", "?"))
    return texts


def processes_of(pid: int) -> list[int]:
    """List a process and its children, deep."""
    found = [pid]
    for parent in found:
        try:
            children = Path(f"/proc/{parent}/task/{parent}/children").read_text()
        except OSError:
            continue
        found += map(int, children.split())
    return found


def cpu_s(pid: int) -> float:
    """CPU seconds of a process, its children and those of them that it has waited for; 0 when it is gone."""
    total = 0
    for process in processes_of(pid):
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15])) if process == pid else sum(map(int, fields[11:13]))
    return total / TICKS_PER_S


def resident_bytes(pid: int) -> int:
    """Memory of a process and its children that is not shared with files."""
    total = 0
    for process in processes_of(pid):
        try:
            status = Path(f"/proc/{process}/status").read_text()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon")) * 1024
    return total


@contextmanager
def provider(folder: Path, job: Job) -> Iterator[tuple[str, int]]:
    """Run a replay provider in a process of its own; yield the base URL of its API and its pid."""
    (folder / "provider").mkdir(parents=True, exist_ok=True)
    recordings = folder / "provider" / "recordings.zst"
    write_recordings(recordings, job)
    port = free_port()
    command = [sys.executable, "-m", "eagletui.embedded", str(folder), "--backend", "replay", "--port", str(port)]
    command += ["--recordings", str(recordings), "--latency-s", str(job.first_token_s)]
    command += ["--context-tokens", "100000", "--completion-tokens", str(job.max_tokens)]
    if job.tokens_per_s is not None:
        command += ["--tokens-per-s", str(job.tokens_per_s)]
    with (folder / "provider" / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    address = folder / "provider" / "address.json"
    try:
        until(address.exists, "the provider", 60.0)
        yield f"http://127.0.0.1:{port}/api/v1", process.pid
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Break off what a provider has under way: the second signal does, and two at once may arrive as one."""
    for _ in range(10):
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(3)
            return
        except subprocess.TimeoutExpired:
            continue
    raise SystemExit("the provider does not end")


def new_run(folder: Path, base_url: str, job: Job, texts: Sequence[str], **pace: Any) -> EngineRun:
    """Make the run folder of a job."""
    return make_run(
        folder,
        base_url,
        texts,
        cap_usd=job.cap_usd,
        stop_at_usd=job.cap_usd,
        max_in_flight=job.max_in_flight,
        sampling={"max_tokens": job.max_tokens},
        provider={"only": ["embedded/stream"]},
        pace={"stream": job.stream, "receivers": job.receivers, **pace},
    )


Visit = Callable[[RunFolder, Snapshot, dict[str, Any]], None]
"""Called at every look while a job runs; may give orders and leave marks."""


def run_engine(
    run: EngineRun,
    provider_pid: int,
    *,
    deadline_s: float = 900.0,
    visit: Visit | None = None,
    profile: str = "",
    ends: str = "done",
) -> Outcome:
    """Run an engine over a run until it ends.

    Args:
        run: from `new_run`.
        provider_pid: whose CPU is told, too.
        deadline_s: gives up after so long.
        visit: called at every look.
        profile: a file for cProfile's figures, or "".
        ends: the state that the run ends in.
    """
    module = ["-m", "eagletui.engine"] if not profile else ["-m", "cProfile", "-o", profile, "-m", "eagletui.engine"]
    with run.folder.log_path("engine").open("a") as log:
        process = subprocess.Popen(
            [sys.executable, *module, str(run.folder.path)], stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
    marks: dict[str, Any] = {}
    most = peak = 0
    with LedgerReader(run.folder.ledger_path) as reader:
        until(lambda: _is_ready(reader) or process.poll() is not None, "ready", 60.0)
        began, cpu_at_start, provider_at_start = time.monotonic(), cpu_s(process.pid), cpu_s(provider_pid)
        wall = cpu = 0.0
        while process.poll() is None:
            wall, cpu = time.monotonic() - began, max(cpu, cpu_s(process.pid))
            peak = max(peak, resident_bytes(process.pid))
            snapshot = reader.snapshot()
            most = max(most, snapshot.states["in_flight"])
            if visit is not None:
                visit(run.folder, snapshot, marks)
            if wall > deadline_s:
                process.kill()
            time.sleep(LOOK_S)
        snapshot = reader.snapshot()
    if snapshot.run.state != ends:
        raise SystemExit(f"the run is {snapshot.run.state} ({snapshot.run.pause_detail})\n{run.log()[-3000:]}")
    return Outcome(
        wall_s=wall,
        cpu_s=cpu - cpu_at_start,
        provider_cpu_s=cpu_s(provider_pid) - provider_at_start,
        most_in_flight=most,
        snapshot=snapshot,
        streamed=_streamed(run),
        output_tokens=snapshot.tokens.billed_output,
        peak_bytes=peak,
        marks=marks,
    )


def _is_ready(reader: LedgerReader) -> bool:
    """Tell whether the engine works, which it does once all its receivers do."""
    return any(beat.ready_at for beat in reader.heartbeats() if beat.role == "engine")


def _streamed(run: EngineRun) -> int:
    import sqlite3

    with sqlite3.connect(run.folder.ledger_path) as connection:
        (count,) = connection.execute("SELECT count(*) FROM attempts WHERE streamed").fetchone()
    return int(count)
