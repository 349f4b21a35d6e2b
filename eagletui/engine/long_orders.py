"""Carry out orders that concern many samples, slice by slice, so that the run and other orders go on meanwhile."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from eagletui.core.errors import LedgerError
from eagletui.core.text import clean_line
from eagletui.engine.ledger_thread import LedgerThread
from eagletui.engine.pace import Pace
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.rebuying import Quarantined
from eagletui.ledger.rows import BulkVerb, CommandRow, Verb
from eagletui.ledger.without_engine import quarantine_words, release_words, retry_words, unknown_endpoint
from eagletui.ledger.writer import LedgerWriter
from eagletui.ledger.writer_bulk import Progress


class Outcome(NamedTuple):
    """What an order did."""

    changed: bool
    result: str
    """One sentence for the person."""


class _Samples(msgspec.Struct):
    samples: list[str] = []
    suspect: bool = False


class _Quarantine(msgspec.Struct):
    endpoint: str
    since: float | None = None
    """Unix seconds; left out: from the order on."""


class _Release(msgspec.Struct):
    endpoint: str


_SHAPES: Final[dict[Verb, tuple[BulkVerb, type[msgspec.Struct]]]] = {
    "retry": ("retry", _Samples),
    "quarantine": ("quarantine", _Quarantine),
    "release": ("release", _Release),
}


@dataclass(slots=True)
class _Long:
    """An order that is not done."""

    order: CommandRow
    verb: BulkVerb
    args: dict[str, Any] = field(default_factory=dict)
    """Checked; empty where they are wrong."""
    fault: str | None = None
    """What is wrong with them."""
    is_begun: bool = False
    """By this engine."""
    is_under_way: bool = False
    """This engine has done a slice of it."""

    @property
    def about(self) -> str:
        """What it waits for its turn with: its endpoint, or all retries."""
        return str(self.args.get("endpoint", self.verb))


@dataclass(slots=True)
class LongOrders:
    """Keeps the orders for many samples that are not done.

    Those about an endpoint come before retries, also before one that is half done: money is spent there meanwhile. Each
    waits for the earlier ones about its endpoint and for no others: several endpoints take turns, a slice each, and all
    of them are closed before the first slice. Retries are done one after another.
    """

    reader: LedgerReader
    ledger: LedgerThread
    pace: Pace
    queue_moved: Callable[[], None]
    """Samples were queued."""
    _open: dict[int, _Long] = field(default_factory=dict)
    """By id; the one whose last slice is longest ago first."""

    @property
    def is_busy(self) -> bool:
        """An order is not done."""
        return bool(self._open)

    def take(self, order: CommandRow) -> bool:
        """Take an order up, unless it is for others; tell whether it was. The same one may come again."""
        if order.verb not in _SHAPES:
            return False
        if order.id not in self._open:
            self._open[order.id] = _read(order)
        return True

    async def carry_on(self) -> tuple[CommandRow, Outcome] | None:
        """Begin what can be begun and do the next slice of the order whose turn it is; return one that is done then."""
        turns = self._turns()
        for long in turns:
            outcome = await self._guarded(long, self._begin)
            if outcome is not None:
                return self._end(long, outcome)
        if not turns:
            return None
        long = turns[0]
        self._open[long.order.id] = self._open.pop(long.order.id)
        outcome = await self._guarded(long, self._slice)
        return None if outcome is None else self._end(long, outcome)

    def _turns(self) -> list[_Long]:
        """Return the first order about each endpoint, or else the first retry."""
        first: dict[str, int] = {}
        for order_id in sorted(self._open):
            first.setdefault(self._open[order_id].about, order_id)
        turns = [long for order_id, long in self._open.items() if first[long.about] == order_id]
        return [long for long in turns if long.verb != "retry"] or turns

    def _end(self, long: _Long, outcome: Outcome) -> tuple[CommandRow, Outcome]:
        del self._open[long.order.id]
        return long.order, outcome

    async def _guarded(self, long: _Long, act: Callable[[_Long], Awaitable[Outcome | None]]) -> Outcome | None:
        try:
            return await act(long)
        except (LedgerError, ValueError) as error:
            return Outcome(False, f"{long.order.verb}: {clean_line(str(error), 300)}")

    async def _begin(self, long: _Long) -> Outcome | None:
        """Close the endpoint of a quarantine: nothing more is bought there from here on. Return a refusal."""
        if long.is_begun:
            return None
        refusal = long.fault or await self._refusal(long)
        if refusal is not None:
            return Outcome(False, refusal)
        if long.verb == "quarantine":
            self._close_lane(long.args["endpoint"], closed=True)
        long.is_begun = True
        return None

    async def _slice(self, long: _Long) -> Outcome | None:
        verb, args = long.verb, long.args
        progress = await self.ledger.do(lambda writer: writer.carry_on(long.order.id, verb, args), urgent=True)
        if verb == "release" and not long.is_under_way:  # a check may close it again before the last slice
            self._close_lane(args["endpoint"], closed=False)
        long.is_under_way = True
        if verb == "retry":
            self.queue_moved()
        return await self._told(verb, args, progress) if progress.is_done else None

    async def _refusal(self, long: _Long) -> str | None:
        """Say why an order about an endpoint is not begun, or not taken up again; None where it is."""
        endpoint = long.args.get("endpoint")
        if endpoint is None:
            return None
        is_known, is_outdated = await self.ledger.do(partial(_look_at, long.order, endpoint), urgent=True)
        if not is_known and endpoint not in self.pace.lanes:
            return unknown_endpoint(endpoint, list(self.pace.lanes))
        if is_outdated:
            return f"A later order about {clean_line(endpoint, 60)} was applied before this one."
        return None

    async def _told(self, verb: BulkVerb, args: dict[str, Any], progress: Progress) -> Outcome:
        if verb == "retry":
            words = retry_words(self.reader, progress.samples, args["samples"], suspect=args["suspect"])
            return Outcome(progress.changed, words)
        endpoint = args["endpoint"]
        if verb == "release":
            moved = Quarantined(progress.samples, progress.cost_pico, progress.changed)
            return Outcome(progress.changed, release_words(endpoint, moved))
        moved = await self.ledger.do(lambda writer: writer.quarantined(endpoint, progress), urgent=True)
        return Outcome(progress.changed, quarantine_words(endpoint, moved))

    def _close_lane(self, endpoint: str, *, closed: bool) -> None:
        """Stop asking an endpoint that is on offer, or ask it again."""
        if endpoint in self.pace.lanes:
            self.pace.lanes[endpoint].quarantined = closed


def _read(order: CommandRow) -> _Long:
    verb, shape = _SHAPES[order.verb]
    try:
        return _Long(order, verb, msgspec.to_builtins(msgspec.json.decode(order.args_json or "{}", type=shape)))
    except (msgspec.DecodeError, RecursionError) as error:
        return _Long(order, verb, fault=f"{order.verb}: {clean_line(str(error), 200)}")


def _look_at(order: CommandRow, endpoint: str, writer: LedgerWriter) -> tuple[bool, bool]:
    return writer.knows_endpoint(endpoint), writer.is_about_later(endpoint, order.id)
