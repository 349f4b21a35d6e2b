"""Which of two looks at a run is worth a notice, and what it says."""

from dataclasses import replace

import pytest

from eagletui.core.lifecycle import PAUSE_REASONS, PauseReason
from eagletui.core.notices import Look, notices
from eagletui.engine.gates import WAY_OUT

RUNNING = Look(
    "b3", "./b3", "running", True, answered=40, samples=100, spent_pico=500_000_000_000, stop_at_pico=1_000_000_000_000
)


def kinds(before: Look, now: Look) -> list[str]:
    return [notice.kind for notice in notices(before, now)]


def test_nothing_is_told_while_a_run_goes_on() -> None:
    assert notices(RUNNING, replace(RUNNING, answered=50, spent_pico=600_000_000_000)) == []


@pytest.mark.parametrize("reason", PAUSE_REASONS)
def test_every_pause_is_told_once_with_what_to_do_for_this_run(reason: PauseReason) -> None:
    paused = replace(RUNNING, state="paused", pause_reason=reason, pause_detail=f"It happened. {WAY_OUT[reason]}")
    (notice,) = notices(RUNNING, paused)
    assert (notice.kind, notice.title) == ("paused", f"b3 is paused: {reason}")
    assert "eagletui run ./b3" in notice.text
    assert "RUN " not in notice.text
    assert "40 of 100 samples answered, $0.5000 spent." in notice.text
    assert notices(paused, paused) == []


def test_each_new_finding_is_told_once() -> None:
    one = replace(RUNNING, findings={("loop", "e"): "On e, 9 of 40 loop. `ctl RUN quarantine e`"})
    two = replace(one, findings={**one.findings, ("empty", "e"): "On e, 9 of 40 are empty."})
    assert [notice.title for notice in notices(RUNNING, one)] == ["b3: finding loop"]
    assert "ctl ./b3 quarantine e" in notices(RUNNING, one)[0].text
    assert kinds(one, two) == ["finding"]
    assert kinds(two, one) == []


def test_four_fifths_of_stop_at_are_told_when_they_are_passed_and_again_after_a_raise() -> None:
    near = replace(RUNNING, spent_pico=800_000_000_000)
    raised = replace(near, stop_at_pico=2_000_000_000_000)
    assert kinds(RUNNING, near) == ["spend"]
    assert kinds(near, replace(near, spent_pico=900_000_000_000)) == []
    assert kinds(raised, replace(raised, spent_pico=1_700_000_000_000)) == ["spend"]
    assert kinds(replace(RUNNING, stop_at_pico=0, spent_pico=0), replace(RUNNING, stop_at_pico=0, spent_pico=0)) == []


@pytest.mark.parametrize("state", ["done", "stopped", "failed"])
def test_the_end_is_told_whatever_it_is(state: str) -> None:
    ended = replace(RUNNING, state=state, has_engine=False, failed=3)  # type: ignore[arg-type]  # parametrized
    (notice,) = notices(RUNNING, ended)
    assert (notice.kind, notice.title) == ("done", f"b3 is {state}")
    assert "3 have no answer." in notice.text


def test_an_engine_that_has_gone_in_the_middle_is_told_and_one_that_paused_before_is_not_dead() -> None:
    (notice,) = notices(RUNNING, replace(RUNNING, has_engine=False))
    assert notice.kind == "dead"
    assert "eagletui run ./b3" in notice.text
    paused = replace(RUNNING, state="paused", pause_reason="cap")
    assert kinds(paused, replace(paused, has_engine=False)) == []
    assert kinds(replace(RUNNING, has_engine=False), replace(RUNNING, has_engine=False)) == []
