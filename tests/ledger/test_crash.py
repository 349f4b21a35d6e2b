"""kill -9 at random moments: the file stays whole, the books stay right, and no sent request is forgotten."""

import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.writer import LedgerWriter
from tests.ledger.build import make_ledger, prompt, sql
from tests.ledger.truth import committed, counters, recount

KILLS = 8
SAMPLES = 3_000


@pytest.mark.slow
def test_a_killed_worker_leaves_a_consistent_ledger_and_every_sent_attempt_in_it(tmp_path: Path) -> None:
    path = make_ledger(tmp_path / "ledger.sqlite", stop_at=10**12)
    witness = tmp_path / "sent.txt"
    witness.touch()
    with LedgerWriter(path) as writer:
        source = writer.add_source("prompts.jsonl", "00", SAMPLES)
        writer.add_prompts([prompt(f"k{n}") for n in range(SAMPLES)], source)
        writer.set_run_state("running")
    random = Random(4)
    for seed in range(KILLS):
        before = witness.stat().st_size
        worker = subprocess.Popen(
            [sys.executable, "-m", "tests.ledger.crash_worker", str(path), str(witness), str(seed)],
            stderr=subprocess.PIPE,
        )
        # Kill once some requests are out, a little later each time, so that the blow falls on different statements.
        wanted = before + random.randint(20, 400)
        while witness.stat().st_size < wanted:
            assert worker.poll() is None, worker.stderr.read().decode() if worker.stderr else ""
        worker.send_signal(signal.SIGKILL)
        worker.communicate()

        assert sql(path, "PRAGMA integrity_check") == [("ok",)]
        assert sql(path, "PRAGMA foreign_key_check") == []
        assert counters(path) == recount(path)
        total, cap = committed(path)
        assert total <= cap
        states = dict(sql(path, "SELECT id, state FROM attempts"))
        assert all(states.get(int(line)) not in (None, "held", "void") for line in witness.read_text().split())

    with LedgerWriter(path) as writer:
        writer.recover()
        again = writer.recover()
    assert (again.voided, again.unsettled, again.requeued) == (0, 0, 0), "recovering twice is recovering once"
    with LedgerReader(path) as reader:
        figures = reader.snapshot()
        assert reader.books().held_pico == 0
    assert figures.in_flight == 0
    assert figures.samples == SAMPLES
    assert figures.answered > 0
    assert counters(path) == recount(path)
