"""Apply the orders people give through the ledger; each says whether it changed anything."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, Final

import msgspec

from eagletui.core.broken_off import BrokenOff, broken_off_words
from eagletui.core.errors import ConfigError, LedgerError
from eagletui.core.money import cap_text, other_limit_text, stop_at_text, usd_to_pico
from eagletui.core.text import clean_line
from eagletui.engine.dispatch import Dispatcher, Flight
from eagletui.engine.gates import WAY_OUT, Gates
from eagletui.engine.ledger_thread import LedgerThread
from eagletui.engine.long_orders import LongOrders, Outcome
from eagletui.engine.market import Market, record
from eagletui.engine.open_files import OpenFiles
from eagletui.engine.pace import Pace
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.rows import CommandRow, Verb
from eagletui.ledger.writer import LedgerWriter

MAX_IN_FLIGHT: Final = 20_000
_SETTINGS: Final = ("cap", "stop-at", "in-flight")
"""An order that waited while nobody worked must not undo a later one that was applied without a worker."""


class _Pause(msgspec.Struct):
    now: bool = False


class _Usd(msgspec.Struct):
    usd: Decimal


class _Count(msgspec.Struct):
    n: int


class _Nothing(msgspec.Struct):
    pass


@dataclass(slots=True)
class Steering:
    """Reads orders and turns the controls."""

    reader: LedgerReader
    ledger: LedgerThread
    gates: Gates
    pace: Pace
    files: OpenFiles
    market: Market
    dispatcher: Dispatcher
    money_moved: Callable[[], None]
    """The cap or stop-at changed: admission may be tried again."""
    long_orders: LongOrders
    """Those that concern many samples."""
    rekey: Callable[[], Awaitable[str]]
    """Reads the API key again and says what came of it."""
    seen_version: int = -1

    @property
    def is_busy(self) -> bool:
        """An order is not done: `poll` goes on with it."""
        return self.long_orders.is_busy

    async def poll(self) -> None:
        """Apply what waits, of an order for many samples the next slice. Costs one pragma when nothing has changed."""
        version = self.reader.data_version()
        if version != self.seen_version:
            self.seen_version = version
            for order in self.reader.commands_pending():
                if not self.long_orders.take(order):
                    outcome = await self._apply(order)
                    await self.ledger.do(partial(_record, order.id, outcome), urgent=True)
        ended = await self.long_orders.carry_on()
        if ended is not None:
            order, outcome = ended
            await self.ledger.do(partial(_record, order.id, outcome), urgent=True)

    async def doubt_files(self) -> str | None:
        """Say, also in the log, where the limit of open files leaves room for fewer requests than are wanted."""
        doubt = self.files.doubt(self.pace.max_in_flight)
        if doubt is not None:
            await self.ledger.do(lambda writer: writer.event("warn", "engine", "files", doubt), urgent=True)
        return doubt

    async def _apply(self, order: CommandRow) -> Outcome:
        if order.verb not in _VERBS:
            return Outcome(False, f"No verb is called {clean_line(order.verb, 40)}.")
        if order.verb in _SETTINGS and await self.ledger.do(partial(_was_overtaken, order), urgent=True):
            return Outcome(False, f"A later {order.verb} was applied before this one.")
        shape, act = _VERBS[order.verb]
        try:
            args = msgspec.json.decode(order.args_json or "{}", type=shape)
        except (msgspec.DecodeError, RecursionError) as error:
            return Outcome(False, f"{order.verb}: {clean_line(str(error), 200)}")
        try:
            return await act(self, args)
        except (LedgerError, ValueError) as error:
            return Outcome(False, f"{order.verb}: {clean_line(str(error), 300)}")

    async def _pause(self, args: _Pause) -> Outcome:
        await self.gates.write()
        if self.gates.state not in ("running", "paused"):
            return Outcome(False, f"The run is {self.gates.state}; it cannot be paused.")
        was_paused = self.gates.state == "paused" and self.gates.reason == "user"
        if not was_paused:
            await self.gates.pause("user", f"Paused by hand. {WAY_OUT['user']}")
        aborted = self.dispatcher.abort() if args.now else []
        left = len(self.dispatcher.flights) - len(aborted)
        if was_paused and not aborted:
            return Outcome(False, "The run was paused already.")
        if args.now:
            said = f"Paused; {len(aborted)} requests were broken off, their cost is asked for."
            return Outcome(True, f"{said} {broken_off_words(_priced(aborted))}".rstrip())
        return Outcome(True, f"Paused; {left} requests under way come to their end.")

    async def _resume(self, args: _Nothing) -> Outcome:
        await self.gates.write()
        if self.gates.state == "running":
            return Outcome(False, "The run was running already.")
        if self.gates.state != "paused":
            return Outcome(False, f"The run is {self.gates.state}; start it with `eagletui run`.")
        if self.gates.reason == "price":
            self.market.accept()
            await self.ledger.do(partial(record, endpoints=self.market.offered), urgent=True)
        key = ""
        if self.gates.reason == "key_limit":
            try:
                key = await self.rekey()
            except ConfigError as error:
                return Outcome(False, clean_line(str(error), 300))
        self.pace.mend()
        await self.gates.move("running", "Resumed by hand.")
        self.money_moved()
        return Outcome(True, f"Resumed. {key}".rstrip())

    async def _stop(self, args: _Nothing) -> Outcome:
        await self.gates.write()
        if self.gates.state not in ("running", "paused"):
            return Outcome(False, f"The run is {self.gates.state}.")
        await self.gates.stop()
        return Outcome(True, f"Stopping; {len(self.dispatcher.flights)} requests under way come to their end.")

    async def _cap(self, args: _Usd) -> Outcome:
        cap_pico = usd_to_pico(args.usd)
        changed = await self.ledger.do(lambda writer: writer.set_cap(cap_pico), urgent=True)
        books = await self.ledger.do(lambda writer: writer.books(), urgent=True)
        self.money_moved()
        return Outcome(changed, cap_text(books) + other_limit_text(books, "cap"))

    async def _stop_at(self, args: _Usd) -> Outcome:
        stop_at_pico = usd_to_pico(args.usd)
        changed = await self.ledger.do(lambda writer: writer.set_stop_at(stop_at_pico), urgent=True)
        books = await self.ledger.do(lambda writer: writer.books(), urgent=True)
        self.money_moved()
        return Outcome(changed, stop_at_text(books) + other_limit_text(books, "stop_at"))

    async def _in_flight(self, args: _Count) -> Outcome:
        if not 1 <= args.n <= MAX_IN_FLIGHT:
            return Outcome(False, f"At least 1 and at most {MAX_IN_FLIGHT:,} requests in flight, not {args.n}.")
        changed = await self.ledger.do(lambda writer: writer.set_max_in_flight(args.n), urgent=True)
        self.pace.max_in_flight = args.n
        doubt = await self.doubt_files()
        return Outcome(changed, doubt or f"At most {args.n} requests in flight.")


def _priced(flights: Sequence[Flight]) -> list[BrokenOff]:
    """Leave out requests to servers that bill nothing."""
    return [
        BrokenOff(flight.endpoint.tag, flight.endpoint.provider_name, flight.manner.stream)
        for flight in flights
        if not flight.endpoint.price.is_free
    ]


def _was_overtaken(order: CommandRow, writer: LedgerWriter) -> bool:
    return writer.has_later_applied(order.verb, order.id)


def _record(order_id: int, outcome: Outcome, writer: LedgerWriter) -> None:
    writer.apply_command(order_id, outcome.changed, outcome.result)


_VERBS: Final[dict[Verb, tuple[type[msgspec.Struct], Callable[[Steering, Any], Awaitable[Outcome]]]]] = {
    "pause": (_Pause, Steering._pause),
    "resume": (_Nothing, Steering._resume),
    "stop": (_Nothing, Steering._stop),
    "cap": (_Usd, Steering._cap),
    "stop-at": (_Usd, Steering._stop_at),
    "in-flight": (_Count, Steering._in_flight),
}
"""The shape of each verb's arguments, and the act that takes them."""
