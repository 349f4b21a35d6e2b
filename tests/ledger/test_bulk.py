"""Orders for many samples: slices with room for others in between, and no loss where whoever does them is killed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from eagletui.ledger import commands, writer_bulk
from eagletui.ledger.orders import Failed, Finished
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.rows import BulkVerb
from eagletui.ledger.writer import LedgerWriter
from eagletui.ledger.writer_bulk import Progress
from tests.ledger.build import answer, answered_sample, make_ledger, prompt, queue, send, sql

SLICE = 3


@pytest.fixture(autouse=True)
def _small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_bulk, "SLICE_ROWS", SLICE)


def states(path: Path) -> list[str]:
    return [state for (state,) in sql(path, "SELECT state FROM samples ORDER BY id")]


def carried_out(path: Path, verb: BulkVerb, args: Mapping[str, Any], *, killed: bool) -> list[Progress]:
    """Do an order to its end, with a writer of its own for each slice where the one before was killed."""
    order = commands.issue(path, verb, args, clock=lambda: 1_000_000.0)
    steps: list[Progress] = []
    writer = LedgerWriter(path)
    while not steps or not steps[-1].is_done:
        if killed:
            writer.close()
            writer = LedgerWriter(path)
        before = states(path)
        steps.append(writer.carry_on(order, verb, args))
        moved = sum(old != new for old, new in zip(before, states(path), strict=True))
        assert moved <= SLICE, "a transaction holds the ledger for so many samples at most"
        assert [row.id for row in writer.next_commands()] == [order], "the order stays until it is recorded as done"
    assert writer.carry_on(order, verb, args) == steps[-1], "where it was killed before that, nothing happens twice"
    writer.apply_command(order, steps[-1].changed, "It is done.")
    writer.close()
    return steps


@pytest.mark.parametrize("killed", [False, True])
def test_every_order_is_done_in_slices_and_goes_on_where_it_was_killed(
    writer: LedgerWriter, path: Path, killed: bool
) -> None:
    queue(writer, *(f"s{number}" for number in range(9)))
    for sample in range(1, 9):
        answered_sample(writer, sample, cost=sample)
    answered_sample(writer, 9, endpoint="beta")
    aside = carried_out(path, "quarantine", {"endpoint": "alpha", "since": 0.0}, killed=killed)
    assert [step.samples for step in aside] == [3, 6, 8]
    assert (aside[-1].cost_pico, aside[-1].changed) == (36, True)
    assert states(path) == ["quarantined"] * 8 + ["tokenized"]
    back = carried_out(path, "release", {"endpoint": "alpha"}, killed=killed)
    assert (back[-1].samples, back[-1].cost_pico) == (8, 36)
    assert states(path) == ["tokenized"] * 9
    assert not carried_out(path, "release", {"endpoint": "alpha"}, killed=killed)[-1].changed
    carried_out(path, "quarantine", {"endpoint": "alpha", "since": 0.0}, killed=killed)
    again = carried_out(path, "retry", {"samples": [], "suspect": True}, killed=killed)
    assert [step.samples for step in again] == [3, 6, 8]
    assert states(path) == ["queued"] * 8 + ["tokenized"]


def test_failed_and_named_samples_are_queued_again_in_slices(writer: LedgerWriter, path: Path) -> None:
    queue(writer, *(f"s{number}" for number in range(7)))
    for sample in range(1, 8):
        failed = Failed("void", "http_400", "no", refused=sample % 2 == 0)
        writer.finish([Finished(send(writer, sample), failed)])
    steps = carried_out(path, "retry", {"samples": [f"s{number}" for number in range(4)]}, killed=False)
    assert [step.samples for step in steps] == [3, 4]
    steps = carried_out(path, "retry", {"samples": []}, killed=False)
    assert steps[-1].samples == 3
    assert states(path) == ["queued"] * 7


def test_an_answer_that_arrives_between_two_slices_is_set_aside_and_a_later_one_is_not_moved_twice(
    writer: LedgerWriter, path: Path
) -> None:
    queue(writer, *(f"s{number}" for number in range(6)))
    late = send(writer, 1)
    for sample in range(2, 7):
        answered_sample(writer, sample)
    order = commands.issue(path, "quarantine", {"endpoint": "alpha", "since": 0.0})
    args = {"endpoint": "alpha", "since": 0.0}
    assert writer.carry_on(order, "quarantine", args).samples == 3
    writer.finish([Finished(late, answer())])
    assert states(path)[0] == "quarantined"
    assert writer.carry_on(order, "quarantine", args).samples == 5
    assert states(path) == ["quarantined"] * 6


def test_turns_that_follow_are_counted_once_however_the_slices_fall(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = []
    for size in (1, 2, 3, 100):
        ledger = make_ledger(tmp_path / f"{size}.sqlite", stop_at=10**6, cap=10**6)
        with LedgerWriter(ledger) as writer:
            source = writer.add_source("a.jsonl", "hash", 4)
            writer.add_prompts([prompt("a", turns=(0, 1, 2, 3))], source)
            writer.set_run_state("running")
            for sample, endpoint in enumerate(("alpha", "beta", "alpha", "beta"), 1):
                writer.finish([Finished(send(writer, sample), answer(endpoint=endpoint))])
            monkeypatch.setattr(writer_bulk, "SLICE_ROWS", size)
            moved = writer.quarantine("alpha")
            counts.append((moved.samples, moved.later_turns))
            assert writer.retry([], suspect=True) == 4
        with LedgerReader(ledger) as reader:
            assert reader.snapshot().states["queued"] == 4
    assert counts == [(2, 2)] * 4
