"""Pauses that end by themselves, and what each pause tells the person."""

from dataclasses import replace

import pytest

from eagletui.core.lifecycle import PAUSE_REASONS
from eagletui.core.money import Books
from eagletui.engine.gates import WAY_OUT, lifts

BOOKS = Books(settled_pico=100, held_pico=0, unsettled_pico=0, unattributed_pico=5, stop_at_pico=200, cap_pico=300)


def test_every_pause_reason_has_a_way_out() -> None:
    assert set(WAY_OUT) == set(PAUSE_REASONS)
    assert all("ctl RUN" in sentence for sentence in WAY_OUT.values())


def test_a_stop_at_pause_lifts_once_less_is_spent_than_allowed() -> None:
    assert lifts("stop_at", BOOKS, None)
    assert not lifts("stop_at", replace(BOOKS, stop_at_pico=105), None)


def test_a_cap_pause_lifts_once_the_next_bound_fits_without_open_holds() -> None:
    assert lifts("cap", BOOKS, 195)
    assert not lifts("cap", BOOKS, 196)
    assert not lifts("cap", BOOKS, None)
    assert not lifts("cap", replace(BOOKS, stop_at_pico=100), 1)


@pytest.mark.parametrize("reason", sorted(set(PAUSE_REASONS) - {"cap", "stop_at"}))
def test_other_pauses_need_a_person(reason: str) -> None:
    assert not lifts(reason, BOOKS, 1)  # type: ignore[arg-type]  # parametrized over the table's keys
