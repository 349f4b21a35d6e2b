"""The screens in a real pseudo-terminal: first paint, key latency, bytes on the wire, memory.

`python -m tests.bench.screens [--quick]`. First paint is of a ledger of a million samples, against a Textual app that
shows one word; keys are pressed while all of those are searched for a text, and while an engine works at the pace of
the reference job; bytes are those of a dashboard whose figures change every second. On a busy machine only the CPU
seconds beside wall times count. The ledger of a million samples is built once (minutes) and kept in
`~/.cache/eagletui-bench`; without it `--quick` takes a small one.
"""

import argparse
import json
import os
import platform
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.bench import screens_parts as parts
from tests.bench.engine_parts import REFERENCE

ASKED: Final = {"first_paint_s": "under 0.7", "key_p95_ms": "under 50", "bytes_per_s_1hz": "under 30,000"}


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="end within 45 s")
    options.add_argument("--ledger", type=Path, help="a run folder with a ledger of a million samples, to be read only")
    given = options.parse_args()
    quick: bool = given.quick
    ratio: dict[str, Any] = {}
    raw: dict[str, Any] = {}
    run, samples = (given.ledger, parts.MILLION) if given.ledger else parts.large_run(may_build=not quick)
    _first_paint(run, samples, 3 if quick else 7, ratio, raw)
    _search(run, samples, 2 if quick else 12, raw)
    _keys(quick, ratio, raw)
    _bytes(4 if quick else 20, ratio, raw)
    _memory(200 if quick else 3_600, raw)
    for name, asked in ASKED.items():
        print(f"{name:16} {ratio[name]:>10}  asked: {asked}")
    machine = {
        "python": platform.python_version(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }
    print(json.dumps({"name": "screens", "ratio": ratio, "raw": raw, "machine": machine}))


def _first_paint(run: Path, samples: int, times: int, ratio: dict[str, Any], raw: dict[str, Any]) -> None:
    ours, bare = [], []
    for _ in range(times):
        ours.append(parts.first_paint(run))
        bare.append(parts.bare_first_paint())
    ratio["first_paint_s"] = round(statistics.median(paint.wall_s for paint in ours), 3)
    print(f"first paint of {samples:,} samples, median of {times}, from the start of the process to the run's figures:")
    for name, paints in (("ours", ours), ("bare_textual", bare)):
        wall, cpu = (statistics.median(column) for column in zip(*paints, strict=True))
        print(f"  {name:14} {wall:6.3f} s, {cpu:5.2f} s of CPU, fastest {min(paints).wall_s:.3f} s")
        raw[f"first_paint_{name}"] = {"wall_s": round(wall, 3), "cpu_s": round(cpu, 3), "min_s": min(paints).wall_s}
    raw["first_paint_samples"] = samples


def _keys(quick: bool, ratio: dict[str, Any], raw: dict[str, Any]) -> None:
    job, warm, seconds = (parts.PACED, 40, 6.0) if quick else (REFERENCE, 400, 40.0)
    found = parts.key_latencies(job, warm, seconds)
    busy, idle, opening = map(_percentiles_ms, (found.latencies_s, found.idle_s, found.opening_s))
    ratio["key_p95_ms"] = busy[1]
    print(
        f"{len(found.latencies_s)} keys while an engine answers {found.samples_per_s:.1f} samples/s,"
        f" {found.in_flight:,} in flight, from a provider on the same cores ({found.provider_cpu_per_s:.2f} CPU s/s):"
    )
    print(f"  on a screen: p50 {busy[0]} ms to the paint, p95 {busy[1]} ms, most {busy[2]} ms")
    print(f"  opening another screen, {len(found.opening_s)} times: p50 {opening[0]} ms, most {opening[2]} ms")
    print(f"  on a screen without an engine: p50 {idle[0]} ms, p95 {idle[1]} ms")
    print(f"  the screens take {found.cpu_per_s:.2f} CPU s/s")
    raw["keys"] = {
        "pressed": len(found.latencies_s),
        "busy_p50_p95_max_ms": busy,
        "opening_p50_p95_max_ms": opening,
        "idle_p50_p95_max_ms": idle,
        "engine_samples_per_s": round(found.samples_per_s, 1),
        "in_flight": found.in_flight,
        "cpu_s_per_s": round(found.cpu_per_s, 3),
    }


def _search(run: Path, samples: int, rounds: int, raw: dict[str, Any]) -> None:
    found = parts.search_latencies(run, rounds)
    typed, moving = _percentiles_ms(found.typed_s), _percentiles_ms(found.moving_s)
    first_ms = round(statistics.median(found.first_hits_s) * 1e3, 1)
    print(f"while {samples:,} samples are searched for a text, no engine at work:")
    print(f"  typing it: p50 {typed[0]} ms to the paint, p95 {typed[1]} ms, most {typed[2]} ms")
    print(f"  moving in what is found: p50 {moving[0]} ms, p95 {moving[1]} ms, most {moving[2]} ms")
    print(f"  the first hits: median {first_ms} ms after the last letter")
    raw["search"] = {"typed_p50_p95_max_ms": typed, "moving_p50_p95_max_ms": moving, "first_hits_ms": first_ms}


def _percentiles_ms(seconds: Sequence[float]) -> tuple[float, float, float]:
    """Give the 50th and the 95th percentile and the most."""
    cuts = statistics.quantiles(seconds, n=100)
    return round(cuts[49] * 1e3, 1), round(cuts[94] * 1e3, 1), round(max(seconds) * 1e3, 1)


def _bytes(seconds: int, ratio: dict[str, Any], raw: dict[str, Any]) -> None:
    changing, still = parts.bytes_on_the_wire(seconds)
    ratio["bytes_per_s_1hz"] = round(changing / seconds)
    print(f"dashboard whose figures change every second: {changing / seconds:,.0f} bytes/s over {seconds} s")
    print(f"dashboard of a finished run: {still:,} bytes in {seconds} s, asked: 0")
    raw["bytes_when_nothing_changes"] = still


def _memory(updates: int, raw: dict[str, Any]) -> None:
    growth = parts.growth_over(updates)
    print(f"memory over {updates:,} updates, one a simulated second: {growth / 1024:+,.0f} KiB after the first fifth")
    raw["memory"] = {"updates": updates, "growth_kib": round(growth / 1024)}


if __name__ == "__main__":
    main()
