"""The ingest campaign: many prompts into a ledger; CPU seconds and memory, which must stay flat.

`python -m tests.soak.ingest [--prompts N]`. Prints CPU seconds (of the check and of the writing), the size of the
ledger, and how much memory the second half took beside the first: a table of 64-bit hashes grows, nothing else may.
"""

import argparse
import json
import random
import resource
import sys
import tempfile
import time
from pathlib import Path

from eagletui.config import PromptsSection
from eagletui.ingest import ingest, take_census
from eagletui.ledger.create import create_ledger
from eagletui.ledger.writer import LedgerWriter

WORDS = "the of a code story why number letter function rain sea write list explain return value".split()


def write_prompts(path: Path, prompts: int) -> None:
    """Write prompts of about 60 words."""
    dice = random.Random(7)
    pool = [" ".join(dice.choices(WORDS, k=60)) for _ in range(2_000)]
    with path.open("w", encoding="utf-8") as file:
        for number in range(prompts):
            file.write(f'{{"prompt": "{number} {pool[number % len(pool)]}"}}\n')


def peak_mib() -> float:
    """Return the most memory this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(argv: list[str] | None = None) -> int:
    """Ingest and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.ingest", description=__doc__)
    parser.add_argument("--prompts", type=int, default=1_000_000)
    chosen = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="ingest-") as folder:
        path, ledger = Path(folder) / "prompts.jsonl", Path(folder) / "ledger.sqlite"
        write_prompts(path, chosen.prompts)
        section = PromptsSection(path=[path])
        create_ledger(
            ledger,
            name="soak",
            config_json="{}",
            model_id="m",
            format="smollm2",
            stop_at_pico=0,
            cap_pico=0,
            max_in_flight=1,
        )
        at_start = peak_mib()
        took = {}
        for name, act in (("check", lambda: take_census(section)), ("whole", lambda: _ingest(section, ledger))):
            cpu, wall = time.process_time(), time.monotonic()
            act()
            took[name] = (time.process_time() - cpu, time.monotonic() - wall)
            print(
                f"{name:<6} {took[name][0]:7.1f} CPU s  {took[name][1]:7.1f} s  peak {peak_mib():6.0f} MiB", flush=True
            )
        figures = {
            "prompts": chosen.prompts,
            "cpu_s": round(took["whole"][0], 1),
            "wall_s": round(took["whole"][1], 1),
            "memory_mib": round(peak_mib() - at_start, 1),
            "ledger_mib": round(ledger.stat().st_size / 2**20, 1),
        }
    print(json.dumps({"name": "ingest", **figures}))
    return 0


def _ingest(section: PromptsSection, ledger: Path) -> None:
    with LedgerWriter(ledger) as writer:
        ingest(section, writer)


if __name__ == "__main__":
    sys.exit(main())
