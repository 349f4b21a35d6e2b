"""The measurements of the engine benchmark, one function each."""

import itertools
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from eagletui.core.chat import Message, Prompt
from eagletui.embedded.market import MODEL_SLUG
from eagletui.ledger import commands
from eagletui.ledger.orders import NewPrompt
from eagletui.ledger.rows import Verb
from eagletui.ledger.snapshot import Snapshot
from eagletui.ledger.writer import LedgerWriter
from eagletui.runs.folder import RunFolder
from tests.bench.job import Job, Outcome, new_run, prompts, provider, resident_bytes, run_engine
from tests.engine.run_folder import until

REFERENCE_SAMPLES_PER_S: Final = 4_000 / 198
"""40,000 samples in 33 minutes."""
CURATOR: Final = Path("~/.cache/eagletui-bench/curator").expanduser()
CURATOR_PACKAGE: Final = "bespokelabs-curator==0.1.31"
INSTALL_S: Final = 900

REFERENCE: Final = Job(
    samples=4_000,
    prompt_tokens=2_770,
    output_tokens=690,
    max_tokens=2_048,
    first_token_s=2.0,
    tokens_per_s=30.0,
    max_in_flight=1_200,
    cap_usd="40.00",
)
"""The reference run at 1:10; at $0.60 and $2.50 a million tokens it costs about $14, and $8 more are held at most."""

_STEERING: Final[tuple[tuple[Verb, dict[str, Any]], ...]] = (
    ("in-flight", {"n": 1_100}),
    ("cap", {"usd": "41.00"}),
    ("stop-at", {"usd": "39.00"}),
    ("pause", {}),
    ("resume", {}),
    ("retry", {"samples": []}),
    ("quarantine", {"endpoint": "embedded/stream", "since": 4e9}),
    ("release", {"endpoint": "embedded/stream"}),
    ("in-flight", {"n": 1_200}),
    ("pause", {"now": False}),
    ("resume", {}),
)
"""Orders given one after the other while the reference job runs; none of them breaks a request off."""

PROBES: Final = 50

BREAKING: Final = Job(1_500, 60, 80, 128, 1.0, 8.0, 1_000, "20.00", stream="always")
"""Answers of 11 s, so that most are under way at once."""


@dataclass(frozen=True, slots=True)
class Steered:
    """How fast one order took effect."""

    verb: str
    changed: bool
    seconds: float
    """From its row to its being applied."""


@contextmanager
def folder() -> Iterator[Path]:
    """A folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="eagletui-bench-") as path:
        yield Path(path)


def pace(job: Job, *, planned: bool) -> tuple[Outcome, list[Steered], float | None]:
    """Run the reference job, and steer it meanwhile.

    Args:
        job: the reference job, or a smaller one.
        planned: probe it before, and plan it.

    Returns:
        What came of it, how fast the orders took effect, and the seconds that the plan had stated.
    """
    with folder() as path, provider(path / "p", job) as (url, pid):
        texts = prompts(job)
        run = new_run(path / "run", url, job, texts)
        planned_s = _planned_s(run.folder, texts) if planned else None
        outcome = run_engine(run, pid, visit=_steer)
        return outcome, steered(run.folder), planned_s


def _planned_s(run: RunFolder, texts: Sequence[str]) -> float:
    """Probe a job as a person would, and return the time that its plan then states."""
    lines = "".join(json.dumps({"prompt": text}) + "\n" for text in texts)
    (run.path / "prompts.jsonl").write_text(lines, encoding="utf-8")
    command = [sys.executable, "-c", "from eagletui.cli.app import main; main()", "plan", str(run.config_path)]
    env = {**os.environ, "EAGLETUI_RUNS": str(run.path.parent)}
    return float(_last_json([*command, "--probe", str(PROBES), "--json"], env)["finish"]["seconds"])


def _steer(run: RunFolder, snapshot: Snapshot, marks: dict[str, Any]) -> None:
    """Give the next order once the one before had its time, beginning when a tenth is answered."""
    now = time.monotonic()
    number = marks.setdefault("orders", 0)
    if number < len(_STEERING) and snapshot.answered * 10 > snapshot.samples and now >= marks.get("next_at", 0.0):
        verb, args = _STEERING[number]
        commands.issue(run.ledger_path, verb, args)
        marks.update(orders=number + 1, next_at=now + 0.4)


def broken_off(job: Job) -> tuple[int, list[Steered]]:
    """Break off what is in flight, go on, and stop the run.

    Returns:
        How many requests were in flight at most, and how fast the orders took effect.
    """
    with folder() as path, provider(path / "p", job) as (url, pid):
        run = new_run(path / "run", url, job, prompts(job))
        outcome = run_engine(run, pid, visit=_break_off, ends="stopped")
        return outcome.most_in_flight, steered(run.folder)


def _break_off(run: RunFolder, snapshot: Snapshot, marks: dict[str, Any]) -> None:
    """Give each order when there is most to do for it; money of what was broken off is asked for meanwhile."""
    in_flight, most = snapshot.states["in_flight"], snapshot.run.max_in_flight
    answered = snapshot.answered / snapshot.samples
    due: dict[int, tuple[bool, Verb, dict[str, Any]]] = {
        0: (in_flight >= 0.9 * most or answered > 0.1, "pause", {"now": True}),
        1: (in_flight == 0, "resume", {}),
        2: (in_flight >= 0.4 * most or answered > 0.5, "stop", {}),
    }
    number = marks.setdefault("orders", 0)
    if number in due and due[number][0]:
        commands.issue(run.ledger_path, due[number][1], due[number][2])
        marks["orders"] = number + 1


def steered(run: RunFolder) -> list[Steered]:
    """Read how fast the orders of a run took effect."""
    with closing(sqlite3.connect(run.ledger_path)) as connection:
        rows = connection.execute("SELECT verb, changed, applied_at - at FROM commands ORDER BY id").fetchall()
    return [Steered(verb, bool(changed), 9.9 if seconds is None else seconds) for verb, changed, seconds in rows]


def per_event(job: Job, receivers: tuple[int, ...]) -> tuple[dict[str, float], dict[str, float]]:
    """Compare CPU per event with bare aiohttp over the same paced server.

    Returns:
        Microseconds of CPU per event by client, and wall seconds by client.
    """
    cpu: dict[str, float] = {}
    wall: dict[str, float] = {}
    with folder() as path, provider(path / "p", job) as (url, pid):
        texts = prompts(job)
        for number in receivers:
            chosen = replace(job, receivers=number, stream="always")
            outcome = run_engine(new_run(path / f"run-{number}", url, chosen, texts), pid)
            cpu[f"receivers_{number}"] = outcome.cpu_s / outcome.output_tokens * 1e6
            wall[f"receivers_{number}"] = outcome.wall_s
        bodies = path / "bodies"
        rules = {"only": ["embedded/stream"]}
        shared = {"model": MODEL_SLUG, "max_tokens": job.max_tokens, "stream": True, "provider": rules}
        lines = [json.dumps({**shared, "messages": [{"role": "user", "content": text}]}) for text in texts]
        bodies.write_text("\n".join([f"{url}/chat/completions", *lines]))
        plain = _last_json(
            [sys.executable, "-m", "tests.bench.plain_client", str(bodies), str(job.max_in_flight)], dict(os.environ)
        )
        cpu["aiohttp"] = plain["cpu_s"] / plain["events"] * 1e6
        wall["aiohttp"] = plain["wall_s"]
    return cpu, wall


def against_curator(job: Job, *, may_install: bool) -> tuple[dict[str, float], str]:
    """Compare samples per CPU second with Curator over an unpaced server.

    Returns:
        Samples per CPU second by client, and why Curator's is missing, or "".
    """
    found: dict[str, float] = {}
    with folder() as path, provider(path / "p", job) as (url, pid):
        texts = prompts(job)
        outcome = run_engine(new_run(path / "run", url, job, texts), pid)
        found["ours"] = job.samples / outcome.cpu_s
        python = CURATOR / "bin" / "python"
        if not python.exists():
            if not may_install:
                return found, f"not installed in {CURATOR}; a run without --quick installs it"
            if (refusal := _install_curator()) != "":
                return found, refusal
        asked = path / "prompts.json"
        asked.write_text(json.dumps(texts))
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        env |= {"HOME": str(path), "CURATOR_CACHE_DIR": str(path / "cache")}
        client = str(Path(__file__).with_name("curator_client.py"))
        numbers = [str(job.max_in_flight), str(job.max_tokens)]
        theirs = _last_json([str(python), client, url, MODEL_SLUG, str(asked), *numbers], env)
        if theirs["samples"] != job.samples:
            return found, f"it answered {theirs['samples']} of {job.samples} samples"
        found["curator"] = theirs["samples"] / theirs["cpu_s"]
    return found, ""


def _install_curator() -> str:
    """Put Curator into an environment of its own, and say why it cannot be done, or ""."""
    steps = [
        [sys.executable, "-m", "venv", str(CURATOR)],
        [str(CURATOR / "bin" / "pip"), "install", "-q", CURATOR_PACKAGE],
    ]
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True, timeout=INSTALL_S, check=False)
        if done.returncode:
            return f"{CURATOR_PACKAGE} cannot be installed: {done.stderr.strip().splitlines()[-1:]}"
    return ""


def _last_json(command: list[str], env: dict[str, str]) -> dict[str, Any]:
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=600, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def many_streams(number: int) -> dict[str, float]:
    """Open so many streams at once, all of them before the first ends, and look for a stall."""
    job = Job(number, 60, 80, 256, 20.0, 20.0, number, "20.00", stream="always")
    with folder() as path, provider(path / "p", job) as (url, pid):
        run = new_run(path / "run", url, job, prompts(job))
        outcome = run_engine(run, pid)
        with closing(sqlite3.connect(run.folder.ledger_path)) as connection:
            sent = [at for (at,) in connection.execute("SELECT sent_at FROM attempts ORDER BY sent_at")]
            (failed,) = connection.execute("SELECT count(*) FROM attempts WHERE error_kind IS NOT NULL").fetchone()
            headers = [wait for (wait,) in connection.execute("SELECT headers_at - sent_at FROM attempts")]
    return {
        "most_in_flight": outcome.most_in_flight,
        "all_sent_s": sent[-1] - sent[0],
        "longest_gap_s": max(later - earlier for earlier, later in itertools.pairwise(sent)),
        "headers_p99_s": statistics.quantiles(headers, n=100)[98],
        "failed_attempts": failed,
        "peak_mib": outcome.peak_bytes / 2**20,
    }


def memory(queued: int) -> float:
    """Return the engine's memory in MiB with so many samples queued and a few dozen answered."""
    job = Job(20, 60, 40, 256, 0.2, None, 8, "20.00", receivers=0)
    with folder() as path, provider(path / "p", job) as (url, _):
        run = new_run(path / "run", url, job, prompts(job))
        with LedgerWriter(run.folder.ledger_path) as writer, writer.transaction():
            source = writer.add_source("more.jsonl", "1" * 64, queued)
            for start in range(0, queued, 10_000):
                writer.add_prompts(
                    [
                        NewPrompt(f"m{number}", "test", Prompt((Message("user", f"What is {number}?"),)), "")
                        for number in range(start, min(queued, start + 10_000))
                    ],
                    source,
                )
        with run.folder.log_path("engine").open("a") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "eagletui.engine", str(run.folder.path)], stdout=log, stderr=log
            )
        try:
            with run.reader() as reader:
                until(lambda: reader.snapshot().answered >= 60, "60 answers", 120.0)
            return resident_bytes(process.pid) / 2**20
        finally:
            process.kill()
            process.wait()
