"""Carry out orders that concern many samples, slice by slice, so that the run and other orders go on meanwhile."""

from collections.abc import Callable
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
class LongOrders:
    """Keeps the orders for many samples that are not done, and does one after another.

    Those about an endpoint come before retries, also before one that is half done: money is spent there meanwhile.
    """

    reader: LedgerReader
    ledger: LedgerThread
    pace: Pace
    queue_moved: Callable[[], None]
    """Samples were queued."""
    _open: dict[int, CommandRow] = field(default_factory=dict)
    """By id, in the order they were given."""
    _begun: int | None = None
    """The one whose first slice this engine has done."""

    @property
    def is_busy(self) -> bool:
        """An order is not done."""
        return bool(self._open)

    def take(self, order: CommandRow) -> bool:
        """Take an order up, unless it is for others; tell whether it was. The same one may come again."""
        if order.verb not in _SHAPES:
            return False
        self._open.setdefault(order.id, order)
        return True

    async def carry_on(self) -> tuple[CommandRow, Outcome] | None:
        """Do the next slice of the order whose turn it is; return what came of the order once it is done."""
        if not self._open:
            return None
        # The first of those that are equal: each kind keeps its order.
        order = min(self._open.values(), key=lambda order: order.verb == "retry")
        try:
            outcome = await self._slice(order)
        except (LedgerError, ValueError) as error:
            outcome = Outcome(False, f"{order.verb}: {clean_line(str(error), 300)}")
        if outcome is None:
            return None
        del self._open[order.id]
        return order, outcome

    async def _slice(self, order: CommandRow) -> Outcome | None:
        verb, shape = _SHAPES[order.verb]
        try:
            args = msgspec.to_builtins(msgspec.json.decode(order.args_json or "{}", type=shape))
        except (msgspec.DecodeError, RecursionError) as error:
            return Outcome(False, f"{order.verb}: {clean_line(str(error), 200)}")
        if self._begun != order.id:
            refusal = await self._refusal(order, args.get("endpoint"))
            if refusal is not None:
                return Outcome(False, refusal)
            if verb == "quarantine":  # nothing more is bought there from here on
                self._close_lane(args["endpoint"], closed=True)
        progress = await self.ledger.do(lambda writer: writer.carry_on(order.id, verb, args), urgent=True)
        if self._begun != order.id and verb == "release":
            self._close_lane(args["endpoint"], closed=False)
        self._begun = order.id
        if verb == "retry":
            self.queue_moved()
        return await self._told(verb, args, progress) if progress.is_done else None

    async def _refusal(self, order: CommandRow, endpoint: str | None) -> str | None:
        """Say why an order about an endpoint is not begun, or not taken up again; None where it is."""
        if endpoint is None:
            return None
        is_known, is_outdated = await self.ledger.do(partial(_look_at, order, endpoint), urgent=True)
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


def _look_at(order: CommandRow, endpoint: str, writer: LedgerWriter) -> tuple[bool, bool]:
    return writer.knows_endpoint(endpoint), writer.is_about_later(endpoint, order.id)
