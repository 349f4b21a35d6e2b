"""What of a run a person wants to be told of, from two looks at it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from eagletui.core.hints import for_run
from eagletui.core.lifecycle import FINISHED_RUNS, PauseReason, RunState
from eagletui.core.money import format_usd

NoticeKind = Literal["paused", "finding", "spend", "done", "dead"]

SPEND_PERCENT: Final = 80
"""Of stop-at, from which a person is told."""


@dataclass(frozen=True, slots=True)
class Look:
    """A run at one moment."""

    name: str
    argument: str
    """Names it in commands."""
    state: RunState
    has_engine: bool
    pause_reason: PauseReason | None = None
    pause_detail: str = ""
    answered: int = 0
    failed: int = 0
    samples: int = 0
    spent_pico: int = 0
    stop_at_pico: int = 0
    findings: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Open ones: sentence and action by kind and endpoint."""


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing to tell."""

    kind: NoticeKind
    title: str
    """A few words."""
    text: str
    """What happened and what to do."""


def notices(before: Look, now: Look) -> list[Notice]:
    """Return what has happened between two looks."""
    name, far = now.name, f"{now.answered:,} of {now.samples:,} samples answered, {format_usd(now.spent_pico)} spent."
    found: list[Notice] = []
    if now.state == "paused" and (before.state, before.pause_reason) != (now.state, now.pause_reason):
        told = for_run(now.pause_detail, now.argument)
        found.append(Notice("paused", f"{name} is paused: {now.pause_reason}", f"{told} {far}"))
    for key, words in now.findings.items():
        if key not in before.findings:
            found.append(Notice("finding", f"{name}: finding {key[0]}", f"{for_run(words, now.argument)} {far}"))
    if _is_near(now) and not _is_near(before) and now.pause_reason != "stop_at":
        text = f"{SPEND_PERCENT} % of stop-at {format_usd(now.stop_at_pico)} is spent. {far}"
        found.append(Notice("spend", f"{name}: {SPEND_PERCENT} % of stop-at", text))
    if now.state in FINISHED_RUNS and before.state not in FINISHED_RUNS:
        failed = f" {now.failed:,} have no answer." if now.failed else ""
        found.append(Notice("done", f"{name} is {now.state}", f"The run is {now.state}. {far}{failed}"))
    if before.has_engine and not now.has_engine and now.state in ("running", "draining"):
        text = f"Its engine has ended in the middle of the run. Go on with `eagletui run {now.argument}`. {far}"
        found.append(Notice("dead", f"{name}: no engine is running", text))
    return found


def _is_near(look: Look) -> bool:
    return 0 < look.stop_at_pico and look.spent_pico * 100 >= SPEND_PERCENT * look.stop_at_pico
