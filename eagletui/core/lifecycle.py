"""States of a run, a sample and an attempt, and the moves between them.

The tables are the contract: the ledger refuses every move that is not listed and the tests walk every pair.
"""

from collections.abc import Mapping
from typing import Final, Literal, TypeVar

State = TypeVar("State", bound=str)

SampleState = Literal["queued", "in_flight", "answered", "tokenized", "failed", "refused", "quarantined"]
AttemptState = Literal["held", "sent", "settled", "unsettled", "void"]
RunState = Literal["new", "running", "paused", "draining", "done", "stopped", "failed"]
PauseReason = Literal["user", "stop_at", "cap", "credit", "key_limit", "price", "breaker", "check", "disk"]
WorkerRole = Literal["engine", "receiver", "extractor", "provider", "watcher"]

SAMPLE_MOVES: Final[dict[SampleState, tuple[SampleState, ...]]] = {
    "queued": ("in_flight",),
    "in_flight": ("answered", "queued", "failed", "refused"),
    "answered": ("tokenized", "quarantined"),
    "tokenized": ("quarantined",),
    "quarantined": ("answered", "tokenized", "queued"),
    "failed": ("queued",),
    "refused": ("queued",),
}
"""`in_flight → queued` is a retry or a restart; `failed | refused | quarantined → queued` is `ctl retry`."""

ATTEMPT_MOVES: Final[dict[AttemptState, tuple[AttemptState, ...]]] = {
    "held": ("sent", "void"),
    "sent": ("settled", "unsettled", "void"),
    "settled": (),
    "unsettled": ("settled",),
    "void": (),
}

RUN_MOVES: Final[dict[RunState, tuple[RunState, ...]]] = {
    "new": ("running", "stopped", "failed"),
    "running": ("paused", "draining", "failed"),
    "paused": ("running", "draining", "failed"),
    "draining": ("done", "stopped", "failed"),
    "done": ("running",),
    "stopped": ("running",),
    "failed": ("running",),
}

PAUSE_REASONS: Final[tuple[PauseReason, ...]] = (
    "user",
    "stop_at",
    "cap",
    "credit",
    "key_limit",
    "price",
    "breaker",
    "check",
    "disk",
)

OPEN_ATTEMPTS: Final[tuple[AttemptState, ...]] = ("held", "sent", "unsettled")
"""Attempts whose hold still counts against the cap."""

FINISHED_RUNS: Final[tuple[RunState, ...]] = ("done", "stopped", "failed")


def may_move(moves: Mapping[State, tuple[State, ...]], old: State, new: State) -> bool:
    """Tell whether the table allows `old → new`. Staying in a state is always allowed."""
    return old == new or new in moves[old]
