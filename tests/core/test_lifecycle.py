"""The state tables themselves: closed, reachable, and without a way around money."""

from collections.abc import Mapping
from typing import get_args

import pytest

from eagletui.core.lifecycle import (
    ATTEMPT_MOVES,
    FINISHED_RUNS,
    OPEN_ATTEMPTS,
    PAUSE_REASONS,
    RUN_MOVES,
    SAMPLE_MOVES,
    AttemptState,
    PauseReason,
    RunState,
    SampleState,
    may_move,
)

MACHINES = [
    (SAMPLE_MOVES, get_args(SampleState), "queued"),
    (ATTEMPT_MOVES, get_args(AttemptState), "held"),
    (RUN_MOVES, get_args(RunState), "new"),
]


@pytest.mark.parametrize(("moves", "states", "first"), MACHINES, ids=["sample", "attempt", "run"])
def test_every_state_is_in_the_table_and_can_be_reached(
    moves: Mapping[str, tuple[str, ...]], states: tuple[str, ...], first: str
) -> None:
    assert set(moves) == set(states)
    reached, edge = {first}, [first]
    while edge:
        for new in moves[edge.pop()]:
            if new not in reached:
                reached.add(new)
                edge.append(new)
    assert reached == set(states)


@pytest.mark.parametrize(("moves", "states", "first"), MACHINES, ids=["sample", "attempt", "run"])
def test_staying_is_allowed_and_what_is_not_listed_is_not(
    moves: Mapping[str, tuple[str, ...]], states: tuple[str, ...], first: str
) -> None:
    for old in states:
        for new in states:
            assert may_move(moves, old, new) == (old == new or new in moves[old])


def test_no_attempt_comes_back_from_settled_or_void() -> None:
    assert ATTEMPT_MOVES["settled"] == ()
    assert ATTEMPT_MOVES["void"] == ()


def test_a_request_that_was_perhaps_billed_cannot_become_void() -> None:
    assert not may_move(ATTEMPT_MOVES, "unsettled", "void")


def test_a_request_is_sent_before_it_is_settled() -> None:
    assert not may_move(ATTEMPT_MOVES, "held", "settled")
    assert not may_move(ATTEMPT_MOVES, "held", "unsettled")


def test_open_attempts_are_those_without_a_final_state() -> None:
    assert set(OPEN_ATTEMPTS) == {state for state, news in ATTEMPT_MOVES.items() if news}


def test_an_answer_can_be_set_aside_and_taken_back_and_only_then_bought_again() -> None:
    assert may_move(SAMPLE_MOVES, "tokenized", "quarantined")
    assert may_move(SAMPLE_MOVES, "quarantined", "tokenized")
    assert may_move(SAMPLE_MOVES, "quarantined", "queued")
    assert "queued" not in (*SAMPLE_MOVES["answered"], *SAMPLE_MOVES["tokenized"])
    for answered in ("answered", "tokenized", "quarantined"):
        assert "in_flight" not in SAMPLE_MOVES[answered]


def test_a_finished_run_can_only_be_run_again() -> None:
    for state in FINISHED_RUNS:
        assert RUN_MOVES[state] == ("running",)


def test_every_pause_reason_is_listed_once() -> None:
    assert sorted(PAUSE_REASONS) == sorted(get_args(PauseReason))
