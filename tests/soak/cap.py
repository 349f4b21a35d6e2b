"""The cap campaign: random faults, kills, restarts, limits and prices; the provider's books are the witness.

`python -m tests.soak.cap [--seeds N] [--first SEED] [--jobs N] [--keep]`. Each seed is one run of a few samples;
engines and providers are killed at random moments, or exactly at a step that matters; every third run begins with
bills that come late, and in every third or so endpoints are quarantined and released meanwhile. A failing seed is
printed with the command that draws it again; its folder is kept. What the operating system schedules is not part of a
seed.
"""

import argparse
import contextlib
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final, Literal

from eagletui.core.money import format_usd, pico_to_usd_string
from eagletui.embedded.market import ENDPOINTS
from eagletui.ledger import commands
from eagletui.ledger.locks import RoleLock
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.rows import HeartbeatRow, Verb
from eagletui.ledger.writer import LedgerWriter
from tests.engine.run_folder import EngineRun, make_run, until
from tests.soak.judge import Broken, CapWatch, Verdict, expect_closed, judge
from tests.soak.scenario import HOLD_PICO, Act, Scenario, draw
from tests.soak.workers import Provider, cpu_s, engine_process, free_port

PEACE_S: Final = 60.0
"""A run without further kills ends within this."""
WAITS_S: Final = {"event_timeout_s": 3.0, "total_timeout_s": 10.0}
"""A reply that stalls for good is given up within these."""
TAGS: Final = [endpoint.tag for endpoint in ENDPOINTS]
BACKOFF_S: Final = [0.02, 0.04, 0.08, 0.16, 0.3, 0.5, 0.8]
"""Waits between questions about a cost; the latest bill of a scenario comes within them."""


@dataclass
class Campaign:
    """Figures over all seeds."""

    seeds: int = 0
    failed: list[int] = field(default_factory=list)
    lives: int = 0
    deaths: Counter[str] = field(default_factory=Counter)
    """Engines by what ended them."""
    acts: Counter[str] = field(default_factory=Counter)
    looks: int = 0
    nearest: float = 0.0
    """The largest share of the allowed money that a provider charged."""
    total: Verdict = field(default_factory=Verdict)

    def join(self, other: "Campaign") -> None:
        """Add the figures of other seeds."""
        self.seeds += other.seeds
        self.failed += other.failed
        self.lives += other.lives
        self.deaths += other.deaths
        self.acts += other.acts
        self.looks += other.looks
        self.nearest = max(self.nearest, other.nearest)
        self.add(other.total)

    def add(self, verdict: Verdict) -> None:
        """Add one run that kept its promises."""
        self.total.attempts += verdict.attempts
        self.total.errors += verdict.errors
        self.total.generations += verdict.generations
        self.total.spent_pico += verdict.spent_pico
        self.total.unattributed_pico += verdict.unattributed_pico
        self.total.bought_twice += verdict.bought_twice
        self.total.adjustments += verdict.adjustments


@dataclass
class Soak:
    """One seed's run."""

    scenario: Scenario
    run: EngineRun
    provider: Provider
    watch: CapWatch
    campaign: Campaign
    peace_at: float = 0.0
    """Unix seconds: from when on the run is let end."""

    def live(self) -> Verdict:
        """Go through the lives, then let the run finish in peace.

        Raises:
            Broken: a promise was not kept.
        """
        self.provider.start()
        self.watch.start()
        try:
            for life in self.scenario.lives:
                process = engine_process(self.run.folder, life.crash)
                self._act(process, life.acts)
                if process.is_alive():
                    process.kill()
                process.join()
                self._note_death(process, "" if life.crash is None else life.crash.point)
            self._finish()
        finally:
            self.watch.stop()
        expect_closed(self.run, self.peace_at)
        return judge(self.run, self.provider, self.scenario.samples)

    def _act(self, process: BaseProcess, acts: tuple[Act, ...]) -> None:
        self._ready(process)
        for act in acts:
            process.join(act.after_s)
            if not process.is_alive():
                self._limit_without_engine(act)
                continue
            self.campaign.acts[act.name] += 1
            match act.name:
                case "kill_receiver":
                    self._kill_receiver(process)
                case "kill":
                    process.kill()
                    process.join()
                case "term" | "term_twice":
                    for _ in range(2 if act.name == "term_twice" else 1):
                        process.terminate()
                        process.join(0.02)
                    process.join(2.0)
                case "kill_provider":
                    self.provider.kill()
                    self.provider.start()
                case "pause" | "pause_now":
                    self._order(process, "pause", now=act.name == "pause_now")
                case "resume":
                    self._order(process, "resume")
                case "in_flight":
                    self._order(process, "in-flight", n=act.value)
                case "cap":
                    self.watch.will_be(act.value)
                    if self._order(process, "cap", usd=pico_to_usd_string(act.value)):
                        self.watch.is_now(act.value)
                case "stop_at":
                    self._order(process, "stop-at", usd=pico_to_usd_string(act.value))
                case "quarantine":
                    self._order(process, "quarantine", endpoint=TAGS[act.value], since=0.0)
                case "release":
                    self._order(process, "release", endpoint=TAGS[act.value])
                case "retry":
                    self._order(process, "retry", samples=[])
                case "wait":
                    process.join(0.3)

    def _ready(self, process: BaseProcess) -> None:
        """Wait until the engine works, or has died before."""
        with self.run.reader() as reader:

            def is_up() -> bool:
                beats = [beat for beat in reader.heartbeats() if beat.role == "engine" and beat.pid == process.pid]
                return not process.is_alive() or any(beat.ready_at is not None for beat in beats)

            until(is_up, "the engine", 30.0)

            def have_joined() -> bool:
                ready = [beat for beat in _receivers(reader) if beat.ready_at is not None]
                return not process.is_alive() or len(ready) == self.scenario.receivers or self._is_idle(reader)

            until(have_joined, "the receivers", 30.0)

    def _is_idle(self, reader: LedgerReader) -> bool:
        """Nothing is sent, so that no receiver is needed."""
        return reader.run().state != "running"

    def _kill_receiver(self, process: BaseProcess) -> None:
        """Kill a receiver of a living engine, if there is one."""
        with self.run.reader() as reader:
            found = _receivers(reader)
        for beat in found[:1]:
            if process.is_alive():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(beat.pid, signal.SIGKILL)

    def _order(self, process: BaseProcess, verb: Verb, **args: object) -> bool:
        """Give an order, and tell whether the engine lived to apply it."""
        number = commands.issue(self.run.folder.ledger_path, verb, args)
        while process.is_alive():
            if commands.wait_applied(self.run.folder.ledger_path, number, 0.1) is not None:
                return True
        return commands.wait_applied(self.run.folder.ledger_path, number, 0.0) is not None

    def _limit_without_engine(self, act: Act) -> None:
        """Change a limit as `ctl` does when no engine lives."""
        if act.name not in ("cap", "stop_at"):
            return
        with RoleLock(self.run.folder.path, "engine"), LedgerWriter(self.run.folder.ledger_path) as writer:
            if act.name == "stop_at":
                writer.set_stop_at(act.value)
                return
            self.watch.will_be(act.value)
            writer.set_cap(act.value)
        self.watch.is_now(act.value)

    def _finish(self) -> None:
        """Let the run end: raise its limits, resume what paused it, retry what failed, release what was set aside."""
        self.peace_at = time.time()
        deadline = time.monotonic() + PEACE_S
        enough = (self.scenario.samples + 40) * 4 * HOLD_PICO
        self.watch.lifted = True
        self.watch.will_be(enough)
        while time.monotonic() < deadline:
            with RoleLock(self.run.folder.path, "engine"), LedgerWriter(self.run.folder.ledger_path) as writer:
                writer.set_cap(enough)
                writer.set_stop_at(enough)
                if writer.run().state == "paused":
                    writer.set_run_state("running")
                writer.retry([])
                for tag in TAGS:
                    writer.release(tag)
            process = engine_process(self.run.folder, None, "--exit-when-paused")
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                break
            snapshot = self.run.snapshot()
            if (
                process.exitcode == 0
                and snapshot.run.state == "done"
                and not snapshot.states["refused"] | snapshot.states["quarantined"]
            ):
                return
        raise Broken(f"not done within {PEACE_S:.0f} s: {self.run.snapshot()}")

    def _note_death(self, process: BaseProcess, point: str) -> None:
        self.campaign.lives += 1
        if process.exitcode == -signal.SIGKILL:
            self.campaign.deaths[f"killed, armed at {point}" if point else "killed"] += 1
        else:
            self.campaign.deaths[f"exit {process.exitcode}"] += 1


def _receivers(reader: LedgerReader) -> list[HeartbeatRow]:
    return [beat for beat in reader.heartbeats() if beat.role == "receiver" and beat.stopped_at is None]


def soak(seed: int, folder: Path, campaign: Campaign) -> None:
    """Go through one seed.

    Raises:
        Broken: a promise was not kept.
    """
    scenario = draw(seed)
    port = free_port()
    run = make_run(
        folder / f"seed-{seed}",
        f"http://127.0.0.1:{port}/api/v1",
        [f"Tell me about the number {number} in a few words." for number in range(scenario.samples)],
        cap_usd=pico_to_usd_string(scenario.cap_pico),
        stop_at_usd=pico_to_usd_string(scenario.stop_at_pico),
        max_in_flight=scenario.max_in_flight,
        sampling={"max_tokens": scenario.max_tokens},
        pace={"max_attempts": 6, **WAITS_S, "generation_backoff_s": BACKOFF_S, "receivers": scenario.receivers},
    )
    script = run.folder.provider_dir / "faults.toml"
    script.write_text(scenario.script, encoding="utf-8")
    provider = Provider(run.folder.path, script, scenario.latency_s, scenario.tokens_per_s, port)
    watch = CapWatch(run, provider, scenario.cap_pico)
    try:
        campaign.add(Soak(scenario, run, provider, watch, campaign).live())
    finally:
        provider.kill()
        campaign.looks += watch.looks
        campaign.nearest = max(campaign.nearest, watch.nearest)


def main(argv: list[str] | None = None) -> int:
    """Run the campaign and print its figures; exit 1 if a seed failed."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, default=20, help="how many")
    options.add_argument("--first", type=int, default=1, help="the first seed")
    options.add_argument("--jobs", type=int, default=2, help="seeds at a time")
    options.add_argument("--keep", action="store_true", help="keep the folders of seeds that pass, too")
    chosen = options.parse_args(argv)
    began = time.monotonic()
    parent = Path(tempfile.mkdtemp(prefix="eagletui-soak-"))
    whole = Campaign()
    with ThreadPoolExecutor(chosen.jobs) as jobs:
        seeds = range(chosen.first, chosen.first + chosen.seeds)
        for part in jobs.map(lambda seed: _one(seed, parent, keep=chosen.keep, began=began), seeds):
            whole.join(part)
    if not any(parent.iterdir()):
        parent.rmdir()
    report(whole, time.monotonic() - began)
    return 1 if whole.failed else 0


def _one(seed: int, parent: Path, *, keep: bool, began: float) -> Campaign:
    """Go through one seed, and print how it went."""
    campaign = Campaign(seeds=1)
    try:
        soak(seed, parent, campaign)
    except (AssertionError, OSError):
        campaign.failed.append(seed)
        traceback.print_exc()
        print(f"seed {seed} FAILED; again: python -m tests.soak.cap --first {seed} --seeds 1", flush=True)
        print(f"its folder: {parent / f'seed-{seed}'}", flush=True)
        return campaign
    if not keep:
        shutil.rmtree(parent / f"seed-{seed}")
    print(f"seed {seed} ok, {time.monotonic() - began:.0f} s, {cpu_s():.0f} CPU s", file=sys.stderr, flush=True)
    return campaign


def report(campaign: Campaign, seconds: float) -> None:
    """Print what was done and what came of it, and a last line of JSON."""
    total = campaign.total

    def counted(counts: Counter[str]) -> str:
        return ", ".join(f"{name} {number}" for name, number in counts.most_common())

    verdict: Literal["held", "BROKEN"] = "BROKEN" if campaign.failed else "held"
    spent = f"{seconds:.0f} s, {cpu_s():.0f} CPU s"
    print(f"\n{campaign.seeds} seeds in {spent}: every promise {verdict} {campaign.failed or ''}")
    print(f"engines        {campaign.lives} before the last of each run: {counted(campaign.deaths)}")
    print(f"acts           {counted(campaign.acts)}")
    print(f"attempts       {counted(total.attempts)}")
    print(f"failures       {counted(total.errors)}")
    print(f"generations    {total.generations}, {format_usd(total.spent_pico, 6)} in the provider's books")
    print(f"without an id  {format_usd(total.unattributed_pico, 6)} in {total.adjustments} adjustments")
    print(f"bought twice   {total.bought_twice} answers that were in an engine's memory when it was killed")
    print(f"cap            {campaign.looks} looks, the nearest came to {campaign.nearest:.1%} of what was allowed")
    figures = {
        "name": "cap",
        "seeds": campaign.seeds,
        "failed": campaign.failed,
        "engines": campaign.lives,
        "attempts": total.attempts.total(),
        "generations": total.generations,
        "bought_twice": total.bought_twice,
        "seconds": round(seconds, 1),
        "cpu_s": round(cpu_s(), 1),
        "machine": {"cores": os.cpu_count(), "python": platform.python_version()},
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    sys.exit(main())
