"""The engine at the pace of a real job, against the reference, bare aiohttp and Bespoke Curator.

`python -m tests.bench.engine [--quick]`. A replay provider and the engine share the machine's cores. CPU is that of the
engine and its receivers from its ready row on, in which money is held and settled, ids are rebuilt and every reply is
kept. `--quick` runs a small, faster job, in whose short streams the work per answer weighs more, and leaves out what
takes minutes. Wall times say little on a busy machine; the load is printed.
"""

import argparse
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from eagletui.core.fidelity import PROVED
from eagletui.core.money import format_usd
from tests.bench import engine_parts
from tests.bench.engine_parts import REFERENCE, REFERENCE_SAMPLES_PER_S, Steered
from tests.bench.job import Job

ASKED: Final = {
    "pace_vs_reference": "at least 1",
    "plan_finish_vs_real": "0.85 to 1.15, after a probe of 50 answers",
    "cpu_per_event_vs_aiohttp": "at most 2, with 1 and with 2 receivers",
    "samples_per_cpu_s_vs_curator": "at least 1",
}
STEERING_S: Final = 0.25
QUICK: Final = replace(REFERENCE, samples=200, first_token_s=0.1, tokens_per_s=600.0)
"""Its reference takes 10 s, so that its answers have to come 20 times as fast."""
EVENTS: Final = replace(REFERENCE, samples=400, max_in_flight=400)
QUICK_BREAKING: Final = replace(
    engine_parts.BREAKING,
    samples=150,
    output_tokens=30,
    max_tokens=64,
    first_token_s=0.3,
    tokens_per_s=15.0,
    max_in_flight=100,
)
QUICK_EVENTS: Final = replace(REFERENCE, samples=60, first_token_s=0.5, tokens_per_s=200.0, max_in_flight=60)
SHORT: Final = Job(2_000, 100, 100, 256, 0.0, None, 64, "50.00", stream="never")


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="end within 45 s")
    quick = options.parse_args().quick
    ratio: dict[str, Any] = {}
    raw: dict[str, Any] = {}
    _pace(QUICK if quick else REFERENCE, quick, ratio, raw)
    _breaking(QUICK_BREAKING if quick else engine_parts.BREAKING, raw)
    _events(QUICK_EVENTS if quick else EVENTS, (1,) if quick else (1, 2), ratio, raw)
    _curator(replace(SHORT, samples=400) if quick else SHORT, quick, ratio, raw)
    if not quick:
        _streams(raw)
        _memory(raw)
    for name, asked in ASKED.items():
        print(f"{name:34} {ratio[name]}  asked: {asked}")
    machine: dict[str, Any] = {
        "python": platform.python_version(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
    }
    machine["load"] = round(os.getloadavg()[0], 1)
    print(json.dumps({"name": "engine", "ratio": ratio, "raw": raw, "machine": machine}))


def _pace(job: Job, quick: bool, ratio: dict[str, Any], raw: dict[str, Any]) -> None:
    outcome, orders, planned_s = engine_parts.pace(job, planned=not quick)
    reference_s = job.samples / REFERENCE_SAMPLES_PER_S
    ratio["pace_vs_reference"] = round(reference_s / outcome.wall_s, 3)
    ratio["plan_finish_vs_real"] = None if planned_s is None else round(planned_s / outcome.wall_s, 3)
    evidence = {name: count for name, count in outcome.snapshot.evidence.items() if count}
    proved = sum(evidence.get(name, 0) for name in PROVED)
    spend = outcome.snapshot.spend.books
    print(
        f"{job.samples:,} samples, mean {job.prompt_tokens:,} prompt and {job.output_tokens:,} output tokens, mean "
        f"latency {job.latency_s:.0f} s, up to {job.max_in_flight:,} in flight, cap ${job.cap_usd}, $0.60 and $2.50 a "
        "million tokens"
    )
    print(
        f"done in {outcome.wall_s:.1f} s, the reference takes {reference_s:.1f} s; at most {outcome.most_in_flight:,} "
        f"in flight; {outcome.streamed / job.samples:.0%} streamed; {format_usd(spend.settled_pico)} settled"
    )
    print(f"CPU {outcome.cpu_s:.1f} s of the engine, {outcome.provider_cpu_s:.1f} s of the provider; ids: {evidence}")
    slowest = max(orders, key=lambda order: order.seconds)
    print(
        f"steering: {len(orders)} orders, the slowest ({slowest.verb}) took {slowest.seconds * 1e3:.0f} ms, asked: at "
        f"most {STEERING_S * 1e3:.0f}; {_by_verb(orders)}"
    )
    raw["pace"] = {
        "wall_s": round(outcome.wall_s, 1),
        "planned_s": None if planned_s is None else round(planned_s, 1),
        "cpu_s": round(outcome.cpu_s, 1),
        "provider_cpu_s": round(outcome.provider_cpu_s, 1),
        "most_in_flight": outcome.most_in_flight,
        "streamed_share": round(outcome.streamed / job.samples, 3),
        "proved_share": round(proved / job.samples, 3),
        "output_tokens": outcome.output_tokens,
        "peak_mib": round(outcome.peak_bytes / 2**20),
        "cap_usd": job.cap_usd,
        "settled_pico": spend.settled_pico,
        "steering_ms": {order.verb: round(order.seconds * 1e3) for order in orders},
    }


def _breaking(job: Job, raw: dict[str, Any]) -> None:
    most, orders = engine_parts.broken_off(job)
    names = {"pause": "pause --now"}
    took = {names.get(order.verb, order.verb): round(order.seconds * 1e3) for order in orders}
    shown = ", ".join(f"{verb} {ms}" for verb, ms in took.items())
    print(f"with {most:,} streams in flight: {shown} ms, asked: at most {STEERING_S * 1e3:.0f}")
    raw["breaking_off"] = {"most_in_flight": most, "steering_ms": took}


def _by_verb(orders: Sequence[Steered]) -> str:
    return ", ".join(f"{order.verb} {order.seconds * 1e3:.0f}" for order in orders)


def _events(job: Job, receivers: tuple[int, ...], ratio: dict[str, Any], raw: dict[str, Any]) -> None:
    cpu, wall = engine_parts.per_event(job, receivers)
    print(f"{job.samples:,} streams of the same lengths, one event a token:")
    for name, value in cpu.items():
        print(f"  {name:32} {value:6.1f} us of CPU an event, {wall[name]:.1f} s")
    ratio["cpu_per_event_vs_aiohttp"] = {
        str(number): round(cpu[f"receivers_{number}"] / cpu["aiohttp"], 2) for number in receivers
    }
    raw["cpu_us_per_event"] = {name: round(value, 1) for name, value in cpu.items()}


def _curator(job: Job, quick: bool, ratio: dict[str, Any], raw: dict[str, Any]) -> None:
    found, missing = engine_parts.against_curator(job, may_install=not quick)
    print(f"{job.samples:,} answers of {job.output_tokens} tokens from an unpaced server, not streamed:")
    for name, value in found.items():
        print(f"  {name:32} {value:6.0f} samples per CPU second")
    if missing:
        print(f"  no figure for Curator: {missing}")
    ratio["samples_per_cpu_s_vs_curator"] = None if missing else round(found["ours"] / found["curator"], 2)
    raw["samples_per_cpu_s"] = {name: round(value) for name, value in found.items()}
    raw["curator"] = missing or engine_parts.CURATOR_PACKAGE


def _streams(raw: dict[str, Any]) -> None:
    found = engine_parts.many_streams(2_000)
    print(f"2,000 streams at once: {', '.join(f'{name} {value:.2f}' for name, value in found.items())}")
    raw["streams_2000"] = {name: round(value, 2) for name, value in found.items()}


def _memory(raw: dict[str, Any]) -> None:
    few, many = engine_parts.memory(10_000), engine_parts.memory(200_000)
    print(f"memory: {few:.0f} MiB with 10,000 queued, {many:.0f} MiB with 200,000; asked: less than 60 MB more")
    raw["memory_mib"] = {"queued_10000": round(few), "queued_200000": round(many)}


if __name__ == "__main__":
    main()
