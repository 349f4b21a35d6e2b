"""One table over every state a run, its workers and its ledger can be in: what is drawn, and the way out of it.

The states are shown one after the other by one app, in the sixteen-colour theme at 80x24, so that each must be
readable in words and glyphs alone.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest

from eagletui.core.errors import LedgerError
from eagletui.core.lifecycle import PAUSE_REASONS, RUN_MOVES, PauseReason, RunState
from eagletui.tui import standing, terminal
from eagletui.tui.keys import APP_KEYS, VIEW_KEYS
from eagletui.tui.messages import RunRead, RunUnreadable
from eagletui.tui.run_view import RunView
from eagletui.tui.screens.frame import FramedScreen
from eagletui.tui.theme import ASCII, UNICODE
from eagletui.tui.widgets.pill import RunStatus, pill
from tests.tui.driving import NARROW, Screens, opened
from tests.tui.factory import Built

Change = Callable[[RunView], RunView]


@dataclass(frozen=True)
class State:
    """One state and what must be seen of it."""

    name: str
    change: Change
    """Makes a view of that state from one of a running run."""
    pill: str
    banner: tuple[str, ...] = ()
    """Pieces of what stays on the screen, in order."""
    keys: tuple[str, ...] = ()
    """Ids of the keys that lead out of it; each must be usable."""


def run_in(state: RunState, reason: PauseReason | None = None, detail: str | None = None) -> Change:
    def change(view: RunView) -> RunView:
        run = replace(view.snapshot.run, state=state, pause_reason=reason, pause_detail=detail)
        if state in ("done", "stopped", "failed"):
            run = replace(run, finished_at=view.snapshot.at)
        return replace(view, snapshot=replace(view.snapshot, run=run))

    return change


def worker(role: str, **figures: Any) -> Change:
    def change(view: RunView) -> RunView:
        workers = tuple(replace(one, **figures) if one.role == role else one for one in view.snapshot.workers)
        return replace(view, snapshot=replace(view.snapshot, workers=workers))

    return change


def extracts_along(view: RunView) -> RunView:
    config = json.dumps({**json.loads(view.snapshot.run.config_json), "extract": {"when": "live"}})
    return replace(view, snapshot=replace(view.snapshot, run=replace(view.snapshot.run, config_json=config)))


def provider_dead(view: RunView) -> RunView:
    found = replace(view.snapshot.workers[0], role="provider", pid=77, alive=False)
    return replace(view, snapshot=replace(view.snapshot, workers=(*view.snapshot.workers, found)))


def nothing_left(view: RunView) -> RunView:
    states = {**view.snapshot.states, "queued": 0, "in_flight": 0}
    return replace(view, snapshot=replace(view.snapshot, states=states, in_flight=0))


def both(*changes: Change) -> Change:
    def change(view: RunView) -> RunView:
        for one in changes:
            view = one(view)
        return view

    return change


PAUSED: Final[dict[PauseReason, tuple[str, str, tuple[str, ...]]]] = {
    "user": ("= PAUSED by you", "Paused by you.", ("run.pause", "run.stop")),
    "stop_at": ("$ PAUSED at stop-at", "Stop-at $0.09 is reached.", ("run.limits", "run.stop")),
    "cap": ("$ PAUSED at cap", "Cap $0.15: the next request could pass it.", ("run.limits", "run.stop")),
    "credit": ("$ PAUSED no credit", "The provider's account has no credit.", ("run.pause", "run.stop")),
    "key_limit": ("$ PAUSED at key limit", "The key's own limit is reached.", ("run.pause", "run.stop")),
    "price": ("$ PAUSED price changed", "A price is not what it was.", ("app.spend", "run.pause", "run.stop")),
    "breaker": ("= PAUSED breaker", "Too much went wrong in a row.", ("app.log", "run.pause", "run.stop")),
    "check": ("= PAUSED by check", "A check did not hold.", ("go.next", "run.pause", "run.stop")),
    "disk": ("= PAUSED disk full", "The disk is full. Free some space", ("run.pause", "run.stop")),
}

LIMITS: Final = ("user", "stop_at", "cap")
"""Reasons whose sentence says everything."""

STATES: Final = (
    State("new", run_in("new"), "○ NEW", ("Not started.", "eagletui run b3-magicoder --detach"), ("app.refresh",)),
    State("running", run_in("running"), "● RUNNING"),
    State("draining", run_in("draining"), "◐ DRAINING 4", ("Ending. 4 in flight, at most $0.0016.",)),
    *(
        State(
            f"paused: {reason}",
            run_in("paused", reason, None if reason in LIMITS else "More of it."),
            mark,
            (text, *(() if reason in LIMITS else ("More of it.",)), "4 in flight, at most"),
            keys,
        )
        for reason, (mark, text, keys) in PAUSED.items()
    ),
    State(
        "done",
        both(run_in("done"), nothing_left),
        "■ DONE",
        ("Done: 37 answered, 3 failed.", "r retries"),
        ("app.verdicts", "app.samples"),
    ),
    State(
        "done, with samples queued again",
        both(run_in("done"), worker("engine", alive=False, stopped=True)),
        "■ DONE",
        ("Done: 37 answered, 3 failed. 16 samples queued again.", "send them, or: eagletui run b3-magicoder --detach"),
        ("app.verdicts", "app.refresh"),
    ),
    State(
        "paused without an engine",
        both(run_in("paused", "user"), nothing_left, worker("engine", alive=False, stopped=True)),
        "= PAUSED by you",
        ("Paused by you. No engine is running.", "resume: starts an engine"),
        ("run.pause", "run.stop"),
    ),
    State("stopped", run_in("stopped"), "■ STOPPED", ("16 samples were not sent.",), ("app.refresh", "app.samples")),
    State(
        "failed",
        run_in("failed", detail="The tokenizer is gone."),
        "× FAILED",
        ("The run failed. The tokenizer is gone.",),
        ("app.log", "app.refresh"),
    ),
    State(
        "dead engine",
        worker("engine", alive=False, pid=41),
        "× NO ENGINE",
        ("The engine (pid 41) is dead.", "or: eagletui run b3-magicoder --detach"),
        ("app.refresh",),
    ),
    State(
        "interrupted engine",
        worker("engine", alive=False, stopped=True, pid=41),
        "× NO ENGINE",
        ("The run was interrupted: its engine (pid 41) has ended.",),
        ("app.refresh",),
    ),
    State(
        "no engine ever",
        lambda view: replace(view, snapshot=replace(view.snapshot, workers=())),
        "× NO ENGINE",
        ("No engine is running.",),
        ("app.refresh",),
    ),
    State(
        "silent engine",
        worker("engine", heartbeat_age_s=41.0, pid=41),
        "? STALE 41 s",
        ("The engine (pid 41) gave no sign for 41 s.", "The figures below are old."),
        ("app.log",),
    ),
    State(
        "dead extractor",
        both(extracts_along, worker("extractor", alive=False, pid=42)),
        "● RUNNING",
        ("The extractor (pid 42) is dead; without features: 27 samples.",),
        ("app.refresh",),
    ),
    State(
        "dead extractor that was started by hand",
        worker("extractor", alive=False, pid=42),
        "● RUNNING",
        ("The extractor (pid 42) is dead", "start it again: eagletui extract b3-magicoder --model PATH"),
    ),
    State(
        "dead extractor of a paused run",
        both(run_in("paused", "user"), worker("extractor", alive=False, pid=42)),
        "= PAUSED by you",
        ("Paused by you.", "The extractor (pid 42) is dead"),
        ("run.pause", "run.stop"),
    ),
    State(
        "dead provider",
        provider_dead,
        "● RUNNING",
        ("The embedded provider (pid 77) is dead: requests fail.",),
        ("app.refresh",),
    ),
    State(
        "ledger on a network disk",
        lambda view: replace(view, network_disk="nfs4"),
        "● RUNNING",
        ("The ledger lies on a network file system (nfs4)", "Move the run's folder to a local disk"),
    ),
    State(
        "ledger on a network disk of a paused run",
        lambda view: replace(run_in("paused", "cap")(view), network_disk="nfs4"),
        "$ PAUSED at cap",
        ("Cap $0.15", "The ledger lies on a network file system (nfs4)"),
        ("run.limits", "run.stop"),
    ),
)


def banner(screens: Screens) -> str:
    """What stays above the panels, on one line."""
    lines = screens.lines[2:]
    return " ".join(" ".join(lines[: next(at for at, line in enumerate(lines) if "┌" in line)]).split())


def test_the_table_has_every_state_and_every_reason() -> None:
    assert {state.name.split(":")[0] for state in STATES} >= set(RUN_MOVES)
    assert tuple(PAUSED) == PAUSE_REASONS


async def test_every_state_is_drawn_with_its_way_out(busy: Built) -> None:
    async with opened(busy, NARROW, theme="eagle-mono") as screens:
        base, screen = screens.app.view, screens.app.screen
        assert base is not None
        assert isinstance(screen, FramedScreen)
        by_id = {key.id: key for key in (*APP_KEYS, *VIEW_KEYS["run"])}
        for state in STATES:
            view = state.change(base)
            screens.app.post_message(RunRead(view))
            await screens.settle()
            assert f" {state.pill} " in screens.lines[0], state.name
            said = banner(screens)
            at = 0
            for part in state.banner:
                assert part in said[at:], f"{state.name}: {said}"
                at = said.index(part, at)
            for key_id in state.keys:
                key = by_id[key_id]
                assert screen.why_not(key) is None, f"{state.name}: {key.name} is named as a way out, and is off"
                assert f" {screens.app.placed_keys.name(key_id)} " in said, f"{state.name}: {said}"
            if not state.banner:
                assert said == "", state.name
            if "app.refresh" in state.keys:
                assert standing.can_start(view.snapshot), state.name
            assert "Generation" in screens.text, f"{state.name} leaves no room for the figures"
        screens.app.post_message(RunUnreadable(LedgerError("ledger.sqlite: database is locked")))
        await screens.settle()
        assert "The ledger cannot be read, so the figures below age: ledger.sqlite: database is locked" in banner(
            screens
        )
        assert "R try again now" in banner(screens)
        busy.clock.now += 60
        screens.app.post_message(RunRead(replace(base, read_at=busy.clock.now - 41)))
        await screens.settle()
        assert "? ledger 41 s ago" in screens.lines[0]
        await screens.resize((50, 12))
        assert "terminal 50x12, need 60x16" in screens.text


def test_before_the_first_read_the_state_is_loading() -> None:
    assert pill(RunStatus(None), UNICODE) == ("○ LOADING", "$quiet")
    assert pill(RunStatus(None), ASCII) == ("o LOADING", "$quiet")


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_terminal_that_cannot_draw_is_refused_with_the_way_out(term: str) -> None:
    said = terminal.refusal({"TERM": term}, is_terminal=True)
    assert said is not None
    assert said.endswith("which cannot draw screens. From here: eagletui status RUN --watch, or eagletui inspect RUN.")


async def test_the_first_read_says_on_what_disk_the_ledger_lies(busy: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eagletui.tui.poller.network_kind", lambda path: "nfs4")
    async with opened(busy, NARROW, read_only=True) as screens:
        assert "The ledger lies on a network file system (nfs4)" in banner(screens)
        assert "read-only" in screens.lines[0]
