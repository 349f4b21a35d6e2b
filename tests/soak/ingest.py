"""The ingest campaign: many prompts into a ledger; CPU seconds and memory, which must stay flat.

`python -m tests.soak.ingest [--prompts N]`. Prints CPU and wall seconds, the size of the ledger, the memory taken, and
how much of it the second half took: a table of 64-bit hashes grows (and SQLite's cache until it is full), nothing else.
"""

import argparse
import json
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from eagletui.config.sections import PromptsSection
from eagletui.ingest.adding import ingest
from eagletui.ledger.orders import NewPrompt
from eagletui.ledger.writer import LedgerWriter
from tests.bench.job import resident_bytes
from tests.empty_ledger import empty_ledger

WORDS = "the of a code story why number letter function rain sea write list explain return value".split()

LOOK_EVERY = 10_000


def write_prompts(path: Path, prompts: int) -> None:
    """Write prompts of about 60 words."""
    dice = random.Random(7)
    pool = [" ".join(dice.choices(WORDS, k=60)) for _ in range(2_000)]
    with path.open("w", encoding="utf-8") as file:
        for number in range(prompts):
            file.write(f'{{"prompt": "{number} {pool[number % len(pool)]}"}}\n')


def cpu_s() -> float:
    """Return CPU seconds of this process and of those that it started and that ended."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def main(argv: list[str] | None = None) -> int:
    """Ingest and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.ingest", description=__doc__)
    parser.add_argument("--prompts", type=int, default=1_000_000)
    chosen = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="ingest-") as folder:
        path, ledger = Path(folder) / "prompts.jsonl", Path(folder) / "ledger.sqlite"
        write_prompts(path, chosen.prompts)
        section = PromptsSection(path=[path])
        empty_ledger(ledger)
        at_start = resident_bytes(os.getpid())
        cpu, wall = cpu_s(), time.monotonic()
        at_half, at_most = _ingest(section, ledger, chosen.prompts)
        figures = {
            "prompts": chosen.prompts,
            "cpu_s": round(cpu_s() - cpu, 1),
            "wall_s": round(time.monotonic() - wall, 1),
            "memory_mib": round((at_most - at_start) / 2**20, 1),
            "memory_second_half_mib": round((at_most - at_half) / 2**20, 1),
            "ledger_mib": round(ledger.stat().st_size / 2**20, 1),
        }
    print(json.dumps({"name": "ingest", **figures}))
    return 0


class _WatchedWriter(LedgerWriter):
    """Looks at the memory of this process and the one that reads, now and then."""

    half = 0
    added = 0
    at_half = 0
    at_most = 0

    def add_prompts(self, batch: Sequence[NewPrompt], source_id: int | None = None) -> int:
        before, self.added = self.added, self.added + len(batch)
        if before // LOOK_EVERY != self.added // LOOK_EVERY:
            self.at_most = max(self.at_most, resident_bytes(os.getpid()))
        if self.added <= self.half:
            self.at_half = self.at_most
        return super().add_prompts(batch, source_id)


def _ingest(section: PromptsSection, ledger: Path, prompts: int) -> tuple[int, int]:
    """Ingest; return the most bytes that were taken until half of the prompts were in, and until the end."""
    with _WatchedWriter(ledger) as writer:
        writer.half = prompts // 2
        ingest(section, writer)
        return writer.at_half, writer.at_most


if __name__ == "__main__":
    sys.exit(main())
