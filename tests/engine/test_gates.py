"""Pauses that end by themselves, and what each pause tells the person."""

from dataclasses import replace

import pytest

from eagletui.core.lifecycle import PAUSE_REASONS
from eagletui.core.money import Books, admit
from eagletui.engine.gates import WAY_OUT, lifts

BOOKS = Books(settled_pico=100, held_pico=0, unsettled_pico=0, unattributed_pico=5, stop_at_pico=200, cap_pico=300)


def test_every_pause_reason_has_a_way_out() -> None:
    assert set(WAY_OUT) == set(PAUSE_REASONS)
    assert all("ctl RUN" in sentence for sentence in WAY_OUT.values())


def test_a_stop_at_pause_lifts_once_less_is_spent_than_allowed() -> None:
    assert lifts("stop_at", BOOKS, None, holds_move=False)
    assert not lifts("stop_at", replace(BOOKS, stop_at_pico=105), None, holds_move=True)


def test_a_stop_at_pause_of_a_free_server_lifts_at_once() -> None:
    nothing = Books(0, 0, 0, 0, stop_at_pico=0, cap_pico=0)
    assert lifts("stop_at", nothing, 0, holds_move=False)
    assert not lifts("stop_at", nothing, 1, holds_move=False)
    assert not lifts("stop_at", nothing, None, holds_move=False)


def test_a_cap_lowered_below_a_stop_at_that_is_reached_is_what_the_pause_names_and_lifts_nothing() -> None:
    lowered = replace(BOOKS, stop_at_pico=105, cap_pico=90)
    assert admit(lowered, 1) == "cap"
    assert admit(replace(lowered, cap_pico=105), 1) == "stop_at"
    assert not lifts("stop_at", lowered, 1, holds_move=True)


def test_a_cap_pause_lifts_once_the_next_bound_fits() -> None:
    assert lifts("cap", BOOKS, 195, holds_move=False)
    assert not lifts("cap", BOOKS, 196, holds_move=True)
    assert not lifts("cap", BOOKS, None, holds_move=True)
    assert not lifts("cap", replace(BOOKS, stop_at_pico=100), 1, holds_move=True)


def test_a_cap_pause_waits_for_open_holds_only_while_they_can_be_settled() -> None:
    full = replace(BOOKS, unsettled_pico=100)
    assert lifts("cap", full, 150, holds_move=True)
    assert not lifts("cap", full, 150, holds_move=False)


@pytest.mark.parametrize("reason", sorted(set(PAUSE_REASONS) - {"cap", "stop_at"}))
def test_other_pauses_need_a_person(reason: str) -> None:
    assert not lifts(reason, BOOKS, 1, holds_move=True)  # type: ignore[arg-type]  # parametrized over the table's keys
