"""Orders to a run's workers: the question before, the row in the ledger, and what came of it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from eagletui.core.errors import EagleError
from eagletui.core.hints import for_run
from eagletui.core.money import Books, pico_to_usd_string
from eagletui.ledger import commands
from eagletui.ledger.rows import Verb
from eagletui.ledger.snapshot import Snapshot
from eagletui.tui import background, figures, panels, standing
from eagletui.tui.keys import APP_KEYS
from eagletui.tui.messages import OrderDone
from eagletui.tui.run_view import RunView
from eagletui.tui.screens.dialogs import ConfirmDialog, Limits, LimitsDialog
from eagletui.tui.screens.frame import FramedScreen
from eagletui.tui.widgets.safe_text import Piece

if TYPE_CHECKING:
    from eagletui.tui.app import EagleApp

Order = tuple[Verb, Mapping[str, object]]

SUSPICIOUS_TIMES: Final = 2.0
"""A cap that grows to so many times what it was may be a slip of a digit."""

_APPLIED_WITHIN_S: Final = 3.0
_LOOK_EVERY_S: Final = 0.05


def give(app: "EagleApp", *orders: Order) -> None:
    """Write orders down, one after the other, and show the result of each when it comes."""
    view = app.view
    if view is None:
        return
    names = ", ".join(verb for verb, _ in orders)
    written = asyncio.Event()
    app.unwritten.add(written)
    work = partial(_carry_out, app, view, orders, written)
    background.start(app, f"order {names}", work, group="orders", exclusive=False)


async def _carry_out(app: "EagleApp", view: RunView, orders: Sequence[Order], written: asyncio.Event) -> None:
    results: list[OrderDone] = []
    issued: list[tuple[Verb, int]] = []
    try:
        for verb, args in orders:
            done = await _write(view, verb, args, app.clock)
            if isinstance(done, OrderDone):
                results.append(done)
            else:
                issued.append((verb, done))
    except EagleError as error:
        results.append(OrderDone(f"{verb}: {error}", ok=False))
    finally:
        written.set()
        app.unwritten.discard(written)
    for verb, command_id in issued:
        try:
            results.append(await _result(app, view, verb, command_id))
        except EagleError as error:
            results.append(OrderDone(f"{verb}: {error}", ok=False))
    sentence = "   ".join(result.sentence for result in results)
    app.post_message(OrderDone(sentence, ok=all(result.ok for result in results)))


async def _write(view: RunView, verb: Verb, args: Mapping[str, object], clock: Callable[[], float]) -> OrderDone | int:
    """Write one order for the engine, and give its id; where none works and the ledger alone is concerned, do it."""
    ledger = view.folder.ledger_path
    engine = standing.engine_of(view.snapshot)
    if engine is None or not engine.alive:
        # The ledger's writers are loaded when one is needed: the first screen does not wait for them.
        from eagletui.ledger.without_engine import apply_without_engine

        applied = await asyncio.to_thread(apply_without_engine, ledger, verb, args, "app")
        if applied is not None:
            return OrderDone(f"{verb}: {for_run(applied.result, view.folder.argument)}", ok=applied.changed)
    return await asyncio.to_thread(commands.issue, ledger, verb, args, clock)


async def _result(app: "EagleApp", view: RunView, verb: Verb, command_id: int) -> OrderDone:
    engine = standing.engine_of(view.snapshot)
    is_alive = engine is not None and engine.alive
    for _ in range(round(_APPLIED_WITHIN_S / _LOOK_EVERY_S) if is_alive else 1):
        row = await app.reader.command(command_id)
        if row is not None and row.applied_at is not None:
            return OrderDone(f"{verb}: {for_run(row.result or 'done', view.folder.argument)}", ok=bool(row.changed))
        await asyncio.sleep(_LOOK_EVERY_S)
    if engine is not None and is_alive:
        return OrderDone(f"{verb}: engine {engine.pid} has not taken it yet.", ok=False)
    return OrderDone(f"{verb} waits in the ledger: no engine is running. It is carried out when one starts.", ok=False)


def refused(app: "EagleApp", key_id: str) -> bool:
    """Say why a key cannot be used now; True when it cannot."""
    screen = app.screen
    if not isinstance(screen, FramedScreen) or app.view is None:
        return True
    key = next(key for key in APP_KEYS if key.id == key_id)
    reason = screen.why_not(key)
    if reason is not None:
        screen.say((f"{key.label}: {reason}", "$warning"))
    return reason is not None


def pause_or_resume(app: "EagleApp") -> None:
    """Pause a running run, resume a paused one; no question, since neither loses anything."""
    if refused(app, "run.pause") or app.view is None:
        return
    snapshot = app.view.snapshot
    if standing.is_dead(snapshot):
        ask_start(app)
        return
    if snapshot.run.state != "paused":
        give(app, ("pause", {"now": False}))
        return
    engine = standing.engine_of(snapshot)
    if engine is None or not engine.alive:
        ask_start(app)
    else:
        give(app, ("resume", {}))


def ask_pause_now(app: "EagleApp") -> None:
    """Pause and abandon what is in flight: it may be billed without an answer."""
    if refused(app, "run.pause_now") or app.view is None:
        return
    snapshot = app.view.snapshot
    lines = [
        f"{figures.plural(snapshot.in_flight, 'request')} in flight are abandoned.",
        f"Money at risk: at most {figures.usd(snapshot.spend.books.held_pico)}, billed without an answer.",
        "Their samples are queued again. p alone pauses and lets them finish.",
    ]

    def done(act: bool | None) -> None:
        if act:
            give(app, ("pause", {"now": True}))

    app.push_screen(ConfirmDialog("Pause now and abandon", lines, "Abandon them", "Keep them running"), done)


def ask_stop(app: "EagleApp") -> None:
    """Stop the run; asks for its name."""
    if refused(app, "run.stop") or app.view is None:
        return
    snapshot = app.view.snapshot
    name = snapshot.run.name
    lines = [
        f"{figures.plural(snapshot.states['queued'], 'queued sample')} will not be sent.",
        standing.finishing(snapshot),
        f"Settled so far {figures.usd(snapshot.spend.books.settled_pico)}. What is answered stays.",
        f"Type {name} and press enter:",
    ]

    def done(act: bool | None) -> None:
        if act:
            give(app, ("stop", {}))

    app.push_screen(ConfirmDialog(f"Stop run {name}", lines, f"Stop run {name}", "Keep running", typed=name), done)


def ask_release(app: "EagleApp", endpoint: str) -> None:
    """Undo a quarantine."""
    lines = ["The endpoint is used again, and its answers are trained on as they were before."]

    def done(act: bool | None) -> None:
        if act:
            give(app, ("release", {"endpoint": endpoint}))

    app.push_screen(ConfirmDialog(f"Release {endpoint}", lines, "Release", "Leave it aside"), done)


def edit_limits(app: "EagleApp") -> None:
    """Change stop-at and cap. The engine lets a run that waits at one of them go on once it fits."""
    if refused(app, "run.limits") or app.view is None:
        return
    view = app.view
    books = view.snapshot.spend.books
    now = Limits(books.stop_at_pico, books.cap_pico)
    lines = [
        f"settled {figures.usd(books.settled_pico)}   open holds {figures.usd(books.open_pico)}, worst case",
        f"burn    {panels.burn(view.snapshot)}",
    ]

    def done(limits: Limits | None) -> None:
        orders = [] if limits is None else _limit_orders(now, limits)
        if limits is None or not orders:
            return
        give(app, *orders)
        snapshot = view.snapshot if app.view is None else app.view.snapshot
        if not standing.has_engine(snapshot) and _left_to_send(snapshot):
            ask_start(app, limits)

    app.push_screen(LimitsDialog(now, lines, lambda limits: consequence(view, limits)), done)


def consequence(view: RunView, limits: Limits) -> list[Piece]:
    """Say in a few lines what other limits mean."""
    snapshot = view.snapshot
    books = snapshot.spend.books
    lines: list[Piece] = []
    pace = snapshot.rate.pico_per_s if snapshot.rate is not None else 0.0
    left = limits.stop_at_pico - books.spent_pico
    if left <= 0:
        lines.append(("stop-at is below what is settled: nothing new is sent.", "$warning"))
    elif pace > 0:
        lines.append(f"stop-at leaves {figures.usd(left)}: about {figures.clock(left / pace)} at this pace.")
    else:
        lines.append(f"stop-at leaves {figures.usd(left)} to spend.")
    room = limits.cap_pico - books.committed_pico
    if limits.cap_pico < books.spent_pico:
        lines.append((f"{panels.CAP_PASSED}: nothing new is sent.", panels.ALARM))
    elif room <= 0:
        until = " until holds settle" if books.spent_pico < limits.cap_pico else ""
        lines.append((f"cap is below what is committed: nothing new is sent{until}.", "$warning"))
    else:
        lines.append(f"cap leaves {figures.usd(room)} for new holds.")
    if limits.cap_pico > books.cap_pico:
        lines.append(
            (f"cap rises by {figures.usd(limits.cap_pico - books.cap_pico)}{_times(limits, books)}.", "$warning")
        )
    if limits.stop_at_pico > limits.cap_pico:
        lines.append(("stop-at is above the cap: the cap holds.", "$warning"))
    if snapshot.run.pause_reason in ("stop_at", "cap") and left > 0 and room > 0:
        engine = standing.engine_of(snapshot)
        goes_on = engine is not None and engine.alive
        lines.append(
            "The run then goes on." if goes_on else "No engine is running: the run goes on once it is started."
        )
    return lines


def _times(limits: Limits, books: Books) -> str:
    """Say how many times the old cap a new one is, where that is much."""
    times = limits.cap_pico / books.cap_pico if books.cap_pico else 0.0
    return f", to {times:,.1f} times what it was" if times >= SUSPICIOUS_TIMES else ""


def _limit_orders(old: Limits, new: Limits) -> list[Order]:
    orders: list[Order] = []
    if new.cap_pico != old.cap_pico:
        orders.append(("cap", {"usd": pico_to_usd_string(new.cap_pico)}))
    if new.stop_at_pico != old.stop_at_pico:
        orders.append(("stop-at", {"usd": pico_to_usd_string(new.stop_at_pico)}))
    return orders


def _left_to_send(snapshot: Snapshot) -> int:
    return snapshot.states["queued"] + snapshot.states["in_flight"]


def ask_start(app: "EagleApp", limits: Limits | None = None) -> None:
    """Start the workers of the run, after asking.

    Args:
        app: the app.
        limits: those just ordered, which the figures on the screen may not show yet.
    """
    view = app.view
    if view is None:
        return
    if app.read_only:
        app.post_message(OrderDone(f"Read-only: {app.how_to_change} to start workers.", ok=False))
        return
    snapshot = view.snapshot
    books = snapshot.spend.books
    limits = limits or Limits(books.stop_at_pico, books.cap_pico)
    lines = [
        f"{figures.plural(_left_to_send(snapshot), 'sample')} left to send, up to stop-at"
        f" {figures.usd_short(limits.stop_at_pico)} and cap {figures.usd_short(limits.cap_pico)}.",
        f"Settled so far {figures.usd(books.settled_pico)}. What was in flight is settled, or sent again.",
        f"The same as: {view.restart_command}",
    ]

    def done(act: bool | None) -> None:
        if act:
            background.start(app, "start the workers", partial(_start, app, view), group="orders", exclusive=False)

    app.push_screen(ConfirmDialog("Start the workers", lines, "Start them", "Leave it"), done)


async def _start(app: "EagleApp", view: RunView) -> None:
    """Run the command that people would: it starts every worker the config asks for, and resumes."""
    ran = await app.program("run", str(view.folder.path), "--detach", outlives=True)
    if ran.code == 0:
        app.post_message(OrderDone("The workers are started.", ok=True))
    else:
        app.post_message(OrderDone(f"The workers did not start: {ran.complaint}", ok=False))
