"""What is looked at again and again beside the loop: signs of life, the disk, the clock, prices, the key."""

import asyncio
import contextlib
import random
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from eagletui.core.errors import ConfigError
from eagletui.core.money import format_usd
from eagletui.engine import market
from eagletui.engine.gates import Gates
from eagletui.engine.ledger_thread import LedgerThread
from eagletui.engine.market import Market
from eagletui.engine.pace import JITTER, Pace
from eagletui.engine.settle import Settler
from eagletui.ledger.rows import LimitedBy
from eagletui.ledger.writer import LedgerWriter
from eagletui.providers.base import Provider, ProviderFailure
from eagletui.runs.folder import RunFolder

BEAT_S: Final = 1.0
DISK_FLOOR_BYTES: Final = 200 * 2**20
KEY_LOOK_S: Final = 60.0
CLOCK_FALL_S: Final = 2.0
"""A wall clock that falls back by less is being slewed or was read late."""


class ClockWatch:
    """Notices a wall clock that was set back; times of retries are on it."""

    def __init__(self, wall_s: float, monotonic_s: float) -> None:
        """Take the first reading of both clocks."""
        self._ahead_s = wall_s - monotonic_s

    def fell_back(self, wall_s: float, monotonic_s: float) -> float:
        """Return by how many seconds the wall clock fell back since the last reading, or 0."""
        ahead_s = wall_s - monotonic_s
        fell_s, self._ahead_s = self._ahead_s - ahead_s, ahead_s
        return fell_s if fell_s >= CLOCK_FALL_S else 0.0


class ReceiverBeat(NamedTuple):
    """What the engine writes of a receiver that it has heard."""

    slot: int
    pid: int
    ready: bool
    detail: dict[str, object]


@dataclass(slots=True)
class Rounds:
    """The rounds of a run; each runs until cancelled."""

    folder: RunFolder
    provider: Provider
    ledger: LedgerThread
    gates: Gates
    pace: Pace
    market: Market
    settler: Settler
    limited_by: Callable[[], LimitedBy]
    detail: Callable[[], dict[str, object]]
    """Figures for the screens."""
    receivers: Callable[[], Sequence[ReceiverBeat]]
    """Signs of life of the receivers."""
    queue_moved: Callable[[], None]
    """Samples are due sooner than was thought."""
    prices_doubted: asyncio.Event = field(default_factory=asyncio.Event)
    """Prices are fetched again at once."""
    _doubted: set[str] = field(default_factory=set)
    """Endpoints that refused a request as dearer than its ceiling."""

    def doubt_price(self, tag: str) -> None:
        """Have the prices fetched again, because the router found no endpoint within the ceiling of a request."""
        self._doubted.add(tag)
        self.prices_doubted.set()

    async def beat(self) -> None:
        """Give signs of life, and see that the disk, the ledger's file and the clock are what they were."""
        clock = ClockWatch(time.time(), time.monotonic())
        while True:
            free = shutil.disk_usage(self.folder.path).free
            if free < DISK_FLOOR_BYTES:
                self.gates.want_pause("disk", f"Only {free // 2**20} MiB are free on the disk of the run.")
            self.ledger.require_in_place()
            fell_s = clock.fell_back(time.time(), time.monotonic())
            if fell_s:
                await self.ledger.do(partial(_follow_clock, fell_s))
                self.queue_moved()
            self.pace.reweigh(self.market.weights(self.pace.speeds))
            limited_by = self.limited_by() if self.gates.is_open else None
            await self.ledger.do(partial(_write_beat, self.detail(), limited_by, self.receivers()))
            await asyncio.sleep(BEAT_S)

    async def refresh_prices(self) -> None:
        """Fetch endpoints and prices every few minutes, and at once where one is in doubt."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_about(market.REFRESH_S)):
                    await self.prices_doubted.wait()
            self.prices_doubted.clear()
            try:
                fetched = await self.provider.endpoints()
            except (ProviderFailure, ConfigError) as error:
                await self.ledger.do(partial(_write_warning, "prices", f"Prices could not be fetched again: {error}"))
                continue
            self.market.take(fetched)
            await self.heed_prices()
            await self._record_prices()
            doubted, self._doubted = self._doubted, set()
            for tag in sorted(doubted & self.market.offered.keys()):
                if not self.market.rose(tag):
                    await self.ledger.do(partial(_write_warning, "prices", _refuses(tag)))
            self.pace.reweigh(self.market.weights(self.pace.speeds))

    async def heed_prices(self) -> None:
        """Pause a run at work while a price that rose is not accepted; the ledger learns the price after the pause."""
        if self.market.dearer and self.gates.is_open:
            self.gates.want_pause("price", f"Prices rose: {'; '.join(self.market.dearer)}.")
            await self._record_prices()

    async def _record_prices(self) -> None:
        await self.gates.write()
        known = self.market.to_record(asked=self.gates.reason == "price")
        await self.ledger.do(partial(market.record, endpoints=known))

    async def watch_key(self) -> None:
        """Stop when the provider's key shows more than the cap, whatever our own books say."""
        alarm_pico, key_changes = 0, self.settler.key.changes
        while True:
            await asyncio.sleep(_about(KEY_LOOK_S))
            look = await self.settler.key.look_at_work()
            if key_changes != self.settler.key.changes:  # what was accepted was said of another key
                alarm_pico, key_changes = 0, self.settler.key.changes
            if look is not None and look.shown_pico > max(look.books.cap_pico, alarm_pico):
                alarm_pico = 2 * look.shown_pico
                self.gates.want_pause(
                    "breaker",
                    f"The provider's key shows {format_usd(look.shown_pico)} spent since the run began, more than the "
                    f"cap {format_usd(look.books.cap_pico)}.",
                )


def _refuses(tag: str) -> str:
    return (
        f"{tag} refused a request by its price ceiling or routing rules, and its price did not move. It is out of the "
        f"rotation and looked at now and then; `eagletui ctl RUN quarantine {tag}` keeps it out."
    )


def _about(seconds: float) -> float:
    """Return a wait that differs from host to host, so that a fleet does not ask in step."""
    return seconds * random.uniform(1.0 - JITTER, 1.0 + JITTER)


def _follow_clock(fell_s: float, writer: LedgerWriter) -> None:
    with writer.transaction():
        writer.bring_retries_forward(fell_s)
        writer.event("warn", "engine", "clock", f"The clock was set back by {fell_s:.0f} s; retries follow it.")


def _write_beat(
    detail: dict[str, object], limited_by: LimitedBy | None, receivers: Sequence[ReceiverBeat], writer: LedgerWriter
) -> None:
    with writer.transaction():
        writer.tick()
        writer.beat("engine", detail=detail)
        for receiver in receivers:
            writer.beat("receiver", receiver.slot, ready=receiver.ready, detail=receiver.detail, pid=receiver.pid)
    if limited_by is not None and writer.run().limited_by != limited_by:
        writer.set_limited_by(limited_by)


def _write_warning(kind: str, message: str, writer: LedgerWriter) -> None:
    writer.event("warn", "engine", kind, message)
