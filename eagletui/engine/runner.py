"""The engine: one loop that steers, admits and waits, with filing, settling and signs of life beside it."""

import asyncio
import contextlib
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, Final

from eagletui.core.findings import Finding
from eagletui.core.lifecycle import FINISHED_RUNS
from eagletui.engine.gates import lifts
from eagletui.engine.rounds import ReceiverBeat
from eagletui.engine.wiring import Parts
from eagletui.ledger.writer import LedgerWriter
from eagletui.providers.base import KeyStatus

POLL_S: Final = 0.05
"""Orders are looked for this often; they promise to take effect within 250 ms."""
LAND_S: Final = 10.0
"""So long an engine that ends by a fault tries to keep what it has received."""

DONE, FAILED, PAUSED, INTERRUPTED = 0, 1, 3, 130


class Runner:
    """One run's engine, from its ready row to its exit code."""

    def __init__(
        self, parts: Parts, doubts: Sequence[Finding], *, rekeyed: KeyStatus | None, exit_when_paused: bool
    ) -> None:
        """Take the parts over.

        Args:
            parts: put together.
            doubts: what does not fit between format and tokenizer.
            rekeyed: of the key, where the engine before this one used another.
            exit_when_paused: end with code 3 once paused and nothing is in flight.
        """
        self._parts = parts
        self._alarm = parts.alarm
        self._ledger = parts.ledger
        self._reader = parts.reader
        self._fleet = parts.fleet
        self._desk = parts.desk
        self._gates = parts.gates
        self._filing = parts.filing
        self._lessons = parts.lessons
        self._dispatcher = parts.dispatcher
        self._admissions = parts.admissions
        self._settler = parts.settler
        self._steering = parts.steering
        self._rounds = parts.rounds
        self._doubts = doubts
        self._rekeyed = rekeyed
        self._exit_when_paused = exit_when_paused
        self._signals = 0
        self._reconciling: asyncio.Task[None] | None = None
        self._cross_checking: asyncio.Task[None] | None = None

    def signalled(self) -> None:
        """Take a SIGTERM or SIGINT: the first drains, the second breaks off."""
        self._signals += 1
        self._parts.is_ending = True
        if self._signals > 1:
            self._ledger.give_up()
        self._alarm.wake()

    async def run(self) -> int:
        """Work until the run ends, pauses (with `exit_when_paused`) or is interrupted; return the exit code."""
        self._settler.add(self._reader.open_attempts())
        await self._open()
        if self._gates.state in FINISHED_RUNS and self._rekeyed is None:
            await self._settler.cross_check()
        await self._lessons.doubt_format(self._doubts)
        if self._gates.state not in FINISHED_RUNS:
            self._parts.load.begin()
            await self._fleet.until_ready()
            await self._steering.doubt_files()
        await self._ledger.do(lambda writer: writer.beat("engine", ready=True, detail=self._parts.detail()))
        tasks = [
            self._spawn(self._filing.run()),
            self._spawn(self._settler.run()),
            self._spawn(self._lessons.second_look.run()),
            self._spawn(self._rounds.beat()),
            self._spawn(self._parts.load.run()),
            self._spawn(self._rounds.refresh_prices()),
        ]
        try:
            await self._keep_spooled()
            if self._rekeyed is not None and self._alarm.crash is None:
                await self._parts.rekey.begin(self._rekeyed)
            tasks.append(self._spawn(self._rounds.watch_key()))
            while True:
                if self._alarm.crash is not None:
                    raise self._alarm.crash
                if self._signals > 1:
                    self._dispatcher.abort()
                self._alarm.rung.clear()
                await self._lessons.review()
                await self._gates.write()
                await self._steering.poll()
                code = await self._ending() if self._signals or not self._steering.is_busy else None
                if code is not None:
                    return code
                if self._signals == 0:
                    await self._rounds.heed_prices()
                    await self._admissions.admit()
                    self._admissions.refill()
                if not self._steering.is_busy:
                    await self._rest()
        finally:
            await self._admissions.close()
            await self._land()
            beats = self._fleet.beats()
            await self._fleet.close()
            tasks += [task for task in (self._reconciling, self._cross_checking) if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._reader.close()
            await self._ledger.do(partial(_say_goodbye, beats))

    async def _land(self) -> None:
        """After a fault: break off what is under way and file what has arrived, as far as that can be."""
        self._dispatcher.abort()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAND_S):
                while (self._dispatcher.flights or self._filing.waiting) and not self._filing.failed:
                    self._alarm.rung.clear()
                    await self._alarm.rung.wait()

    async def _keep_spooled(self) -> None:
        """File the replies that processes of an engine that died had received, before anything is bought again."""
        await self._parts.kept.land()
        while self._filing.waiting and self._alarm.crash is None:
            self._alarm.rung.clear()
            await self._alarm.rung.wait()
        if self._alarm.crash is None:  # else the ledger lacks some of them: the segments stay for the next start
            await self._parts.kept.forget()

    async def _open(self) -> None:
        """Begin, or begin again, where the ledger says the run stands."""
        if self._gates.state == "new":
            await self._gates.move("running", "The run begins.")
        elif self._gates.state in FINISHED_RUNS:
            if await self._ledger.do(lambda writer: writer.has_queued()):
                await self._gates.move("running", "The run goes on: samples are queued.")

    async def _ending(self) -> int | None:
        """Decide whether to end, and do what the end of a quiet run asks for."""
        if self._gates.state in FINISHED_RUNS:
            return self._code() if self._signals or await self._explained() else None
        if self._signals == 0 and await self._lifted():
            return None
        if self._gates.state == "running" and self._cross_checking is not None:
            self._cross_checking.cancel()  # it was begun in a pause, and money moves again
            self._cross_checking = None
        if self._dispatcher.flights or self._filing.waiting or self._desk.waiting or self._lessons.is_busy:
            return None
        if self._signals:
            return INTERRUPTED
        if self._gates.state == "running" and not self._admissions.is_exhausted:
            if self._admissions.money_waits and await self._explained() and self._settler.unexplained:
                self._gates.want_pause("cap", "What is unsettled leaves no room under the cap.")
            return None
        if not await self._explained():
            return None
        if self._gates.state == "paused":
            may_end = self._exit_when_paused and not self._parts.limits_may_lift
            return PAUSED if may_end and self._is_cross_checked() else None
        if self._gates.is_open and self._admissions.parked:
            self._gates.want_pause("check", self._admissions.wait_words())
        elif self._gates.is_open:
            await self._gates.move("draining", "Every sample has ended.")
        elif self._gates.state == "draining":
            if not self._is_cross_checked():
                return None
            left = await self._ledger.do(lambda writer: writer.has_queued())
            await self._gates.move("stopped" if left else "done", "Everything under way has ended.")
            return self._code()
        return None

    async def _explained(self) -> bool:
        """Tell whether every cost is known; begin to settle in sum what has no id, and say that it takes long."""
        if self._settler.is_explained:
            return True
        await self._settler.say_wait()
        if self._settler.is_quiet and self._reconciling is None:
            self._reconciling = self._spawn(self._settler.reconcile(self._is_still))
            self._reconciling.add_done_callback(self._reconciled)
        return False

    def _is_cross_checked(self) -> bool:
        """Tell whether the run so far was held against the key; begin to, beside the loop, which goes on to steer."""
        if self._cross_checking is None:
            self._cross_checking = self._spawn(self._settler.cross_check())
            self._cross_checking.add_done_callback(lambda _: self._alarm.wake())
        if not self._cross_checking.done():
            return False
        checked, self._cross_checking = self._cross_checking, None
        checked.result()
        return True

    def _is_still(self) -> bool:
        return not self._parts.is_busy() and self._settler.is_quiet

    def _reconciled(self, task: asyncio.Task[None]) -> None:
        self._reconciling = None
        self._alarm.wake()

    async def _lifted(self) -> bool:
        """Go on by itself when the number that caused the pause was raised."""
        if self._gates.reason not in ("cap", "stop_at"):
            self._parts.limits_may_lift = False
            return False
        hold_pico = self._admissions.next_hold()
        if not self._parts.limits_may_lift or (hold_pico is None and not self._admissions.is_exhausted):
            return False
        self._parts.limits_may_lift = False
        books = await self._ledger.do(lambda writer: writer.books())
        holds_move = bool(self._dispatcher.flights) or not self._settler.is_explained
        if not lifts(self._gates.reason, books, hold_pico, holds_move=holds_move):
            if hold_pico is not None:
                await self._gates.name_limit(books, hold_pico)
            return False
        await self._gates.move("running", "The limit was raised: the run goes on.")
        self._admissions.money_moved()
        return True

    async def _rest(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(POLL_S):
                await self._alarm.rung.wait()

    def _code(self) -> int:
        snapshot = self._reader.snapshot()
        is_breach = snapshot.key_excess is not None and self._lessons.check.on_breach != "warn"
        return FAILED if snapshot.states["failed"] or is_breach else DONE

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._alarm.crashed(error)


def _say_goodbye(receivers: Sequence[ReceiverBeat], writer: LedgerWriter) -> None:
    writer.tick()
    for receiver in receivers:
        writer.stop_beat("receiver", receiver.slot, pid=receiver.pid)
    writer.stop_beat("engine")
