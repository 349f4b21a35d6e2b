"""`python -m tests.soak.rebuild [--samples N]`: how long a rebuild of a whole run takes.

A real engine answers 600 prompts over the replay provider (streams with and without logprobs, and plain bodies); the
kept replies are copied into a run of N samples without ids. Measured are the command that makes every id, and the same
command again, which finds all of them and writes nothing.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from eagletui.runs.folder import RunFolder
from tests.kept_run import answered_run, kept, run_of

SOURCE: Final = 600
COMMAND: Final = (sys.executable, "-c", "from eagletui.cli.app import main; main()", "rebuild")


def main() -> None:
    """Build the run, rebuild it twice, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=40_000)
    samples = parser.parse_args().samples
    with tempfile.TemporaryDirectory(prefix="rebuild-") as name:
        folder = _build(Path(name), samples)
        figures = {"first": _rebuild(folder), "again": _rebuild(folder)}
    print(json.dumps({"name": "rebuild", "samples": samples, "cpus": os.cpu_count(), **figures}))


def _build(path: Path, samples: int) -> RunFolder:
    started = time.monotonic()
    answered = kept(answered_run(path / "answered", SOURCE, sampling={"max_tokens": 1024}))
    folder = run_of(path / "run", answered, times=-(-samples // SOURCE))
    size = folder.ledger_path.stat().st_size
    bodies = sum(len(item.reply.body) for item in answered) / len(answered)
    tokens = sum(item.row.output_tokens or 0 for item in answered) / len(answered)
    print(
        f"built in {time.monotonic() - started:.0f} s: ledger of {size / 2**20:,.0f} MiB, "
        f"a reply has {bodies:,.0f} bytes and {tokens:,.0f} tokens on average"
    )
    return folder


def _rebuild(folder: RunFolder) -> dict[str, Any]:
    cpu_before = _children_cpu_s()
    ended = subprocess.run([*COMMAND, str(folder.path), "--json"], capture_output=True, check=True)
    told = json.loads(ended.stdout)
    figures = {
        "samples": told["samples"],
        "changed_ids": told["changed_ids"],
        "seconds": told["seconds"],
        "cpu_seconds": round(_children_cpu_s() - cpu_before, 1),
        "processes": told["processes"],
    }
    print(", ".join(f"{name} {value:,}" for name, value in figures.items()))
    return figures


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
