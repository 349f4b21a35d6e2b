"""Random lives of a run: the cap holds, the counters equal the rows, and nothing is answered twice."""

from pathlib import Path
from random import Random
from typing import Final

import pytest

from eagletui.core.drift import STOP_NOT_BILLED, Constant, Verdict
from eagletui.ledger.orders import AdmitRequest, Answered, Failed, Feature, Finished
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.writer import LedgerWriter
from eagletui.ledger.writer_extract import ExtractorWriter
from tests.ledger.build import Clock, answer, make_ledger, prompt, sql, tokens
from tests.ledger.truth import committed, counters, recount

CAP: Final = 5_000
PROMPTS: Final = 60
STEPS: Final = 150
ENDPOINTS: Final = ("alpha", "beta")
VERDICTS: Final = (Verdict(), Verdict(STOP_NOT_BILLED), Verdict(constant=Constant(1, 12, 20, "all answers")))


class RunLife:
    """A run that random things happen to.

    Costs never exceed their holds and the cap only moves up, so the worst case must stay within the cap.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = Random(seed)
        self.clock = Clock()
        self.path = make_ledger(folder / "ledger.sqlite", clock=self.clock, stop_at=4_500, cap=CAP)
        self.writer = LedgerWriter(self.path, self.clock)
        self.reader = LedgerReader(self.path, self.clock)
        self.extractor = ExtractorWriter(self.path, self.clock)
        source = self.writer.add_source("prompts.jsonl", "00", PROMPTS)
        self.writer.add_prompts([prompt(f"k{n}", f"set{n % 2}", answers=1 + n % 2) for n in range(PROMPTS)], source)
        self.writer.set_run_state("running")
        self.holds: dict[int, int] = {}
        self.finished: dict[int, Finished] = {}
        self.shards = 0

    def step(self) -> None:
        actions = {self.admit: 6, self.finish: 8, self.finish_again: 1, self.learn_costs: 3, self.steer: 2}
        actions |= {self.watch: 4, self.extract: 3}
        (action,) = self.random.choices(list(actions), list(actions.values()))
        action()

    def close(self) -> None:
        for opened in (self.writer, self.reader, self.extractor):
            opened.close()

    def admit(self) -> None:
        queued = self.writer.claim(self.random.randint(1, 6))
        endpoint = self.random.choice(ENDPOINTS)
        requests = [
            AdmitRequest(sample.id, endpoint, self.random.randint(0, 1_200), self.random.random() < 0.5)
            for sample in queued
        ]
        for request, admission in zip(requests, self.writer.admit(requests), strict=True):
            if admission.attempt_id is not None:
                self.holds[admission.attempt_id] = request.hold_pico
                if self.random.random() < 0.8:
                    self.writer.mark_sent([admission.attempt_id])
                    self.writer.mark_headers(admission.attempt_id, f"gen-{admission.attempt_id}", 200)

    def finish(self) -> None:
        unfinished = [attempt for attempt in self.holds if attempt not in self.finished]
        if not unfinished:
            return
        attempt = self.random.choice(unfinished)
        self.finished[attempt] = Finished(attempt, self.outcome(self.holds[attempt]))
        assert self.writer.finish([self.finished[attempt]]) == []

    def outcome(self, hold: int) -> Answered | Failed:
        cost = self.random.choice([0, hold // 3, hold])
        if self.random.random() < 0.6:
            result = tokens(
                evidence=self.random.choice(["logprobs", "counted", "conflict"]),
                usability=self.random.choice(["usable", "resegmented", "unusable"]),
                drift=self.random.choice([None, 0, -1, 4]),
            )
            return answer(
                cost if self.random.random() < 0.7 else None,
                endpoint=self.random.choice(ENDPOINTS),
                result=result if self.random.random() < 0.8 else None,
                finish_reason=self.random.choice(["stop", "length"]),
            )
        retry_at = self.clock.now if self.random.random() < 0.7 else None
        if self.random.random() < 0.3:
            return Failed("settled", "mid_stream", "boom", cost_pico=cost, retry_at=retry_at)
        return Failed(self.random.choice(["void", "unsettled"]), "http_500", "boom", retry_at=retry_at)

    def finish_again(self) -> None:
        before = counters(self.path)
        self.writer.finish(list(self.finished.values()))
        assert counters(self.path) == before, "finishing twice is finishing once"

    def learn_costs(self) -> None:
        waiting = self.reader.open_attempts()
        if not waiting:
            return
        attempt = self.random.choice(waiting)
        cost = int(attempt.hold_pico * self.random.random())
        if self.random.random() < 0.6:
            assert self.writer.settle(attempt.id, cost) == []
            return
        amount = int(sum(attempt.hold_pico for attempt in waiting) * self.random.random())
        ids = [attempt.id for attempt in waiting]
        assert self.writer.adjust_unattributed(amount, ids, "after quiescence") == len(ids)
        if self.random.random() < 0.5:
            before = self.reader.books()
            self.writer.settle(attempt.id, min(cost, amount))
            assert self.reader.books().spent_pico == before.spent_pico, "the adjustment is taken back"

    def steer(self) -> None:
        match self.random.choice(["restart", "raise the cap", "stop-at", "retry"]):
            case "restart":
                self.writer.recover()
            case "raise the cap":
                assert self.writer.set_cap(self.writer.run().cap_pico + 500)
            case "stop-at":
                self.writer.set_stop_at(self.random.randint(3_000, 60_000))
            case "retry":
                self.writer.retry([])

    def watch(self) -> None:
        endpoint = self.random.choice(ENDPOINTS)
        match self.random.choice(["quarantine", "release", "relabel", "rebuild"]):
            case "quarantine":
                self.writer.quarantine(endpoint)
            case "release":
                self.writer.release(endpoint)
            case "relabel":
                self.writer.relabel_endpoint(endpoint, self.random.choice(VERDICTS))
            case "rebuild":
                answered = sql(self.path, "SELECT id FROM samples WHERE answered_attempt_id > 0 ORDER BY id")
                for (sample_id,) in self.random.sample(answered, min(2, len(answered))):
                    self.writer.store_tokens(sample_id, tokens(self.random.choice([(5, 8), (5, 6, 7)])))

    def extract(self) -> None:
        if self.random.random() < 0.3:
            for shard in self.reader.shards()[:1]:
                self.extractor.drop_shard(shard.path)
            return
        waiting = self.reader.to_extract(3)
        features = [Feature(item.sample_id, n, 5, item.tokens_revision) for n, item in enumerate(waiting)]
        self.shards += 1
        self.extractor.commit_shard(f"shards/{self.shards:06d}.safetensors", features, size_bytes=64, xxh3="0")

    def check(self) -> None:
        total, cap = committed(self.path)
        assert total <= cap
        assert self.reader.books().committed_pico == total
        assert counters(self.path) == recount(self.path)
        assert not sql(self.path, "SELECT 1 FROM attempts WHERE has_answer = 1 GROUP BY sample_id HAVING count(*) > 1")
        assert not sql(
            self.path, "SELECT 1 FROM attempts JOIN samples ON answered_attempt_id = attempts.id WHERE has_answer = 0"
        )


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 3))])
def test_the_cap_holds_and_counters_equal_the_rows_whatever_happens(tmp_path: Path, seed: int) -> None:
    life = RunLife(tmp_path, seed)
    for _ in range(STEPS):
        life.step()
        life.check()
    # A life that stopped early would prove nothing.
    states = life.reader.snapshot().attempts
    assert all(states[state] > 0 for state in ("settled", "void", "unsettled"))
    life.close()
