"""The engine: one loop that steers, admits and waits, with filing, settling and signs of life beside it."""

import asyncio
import contextlib
import time
from array import array
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, Final

from eagletui.config import RunConfig
from eagletui.core.findings import Finding
from eagletui.core.lifecycle import FINISHED_RUNS
from eagletui.engine.admission import Admissions
from eagletui.engine.answers import AnswerDesk
from eagletui.engine.budget import PromptBounds
from eagletui.engine.dispatch import Dispatcher, Landing, RetryRule
from eagletui.engine.filing import Filing, event_of
from eagletui.engine.fleet import Fleet
from eagletui.engine.gates import Gates, lifts
from eagletui.engine.kept_replies import KeptReplies
from eagletui.engine.ledger_thread import LedgerThread
from eagletui.engine.lessons import Lessons
from eagletui.engine.load import Load
from eagletui.engine.long_orders import LongOrders
from eagletui.engine.market import Market
from eagletui.engine.open_files import OpenFiles, raise_limit
from eagletui.engine.pace import Pace
from eagletui.engine.rekey import Rekey
from eagletui.engine.rounds import ReceiverBeat, Rounds
from eagletui.engine.second_look import SecondLook
from eagletui.engine.settle import Settler
from eagletui.engine.steering import Steering
from eagletui.engine.watch import Watch
from eagletui.ledger.orders import Answered, Failed, Finished, OpenAttempt, Overrun
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.reader_counts import CountsReader
from eagletui.ledger.rows import FindingRow, RunRow
from eagletui.ledger.writer import LedgerWriter
from eagletui.providers.base import KeyStatus, Provider
from eagletui.runs import RunFolder

POLL_S: Final = 0.05
"""Orders are looked for this often; they promise to take effect within 250 ms."""
LAND_S: Final = 10.0
"""So long an engine that ends by a fault tries to keep what it has received."""

DONE, FAILED_SAMPLES, PAUSED, INTERRUPTED = 0, 1, 3, 130


class Runner:
    """One run's engine, from its ready row to its exit code."""

    def __init__(
        self,
        folder: RunFolder,
        config: RunConfig,
        provider: Provider,
        ledger: LedgerThread,
        desk: AnswerDesk,
        fleet: Fleet,
        offered: Market,
        run: RunRow,
        doubts: Sequence[Finding],
        *,
        rekeyed: KeyStatus | None,
        exit_when_paused: bool,
    ) -> None:
        """Put the parts together.

        Args:
            folder: the run.
            config: its frozen config.
            provider: a client that has answered already.
            ledger: open, after `recover`.
            desk: with the run's tokenizer and format.
            fleet: takes replies.
            offered: endpoints and prices as just fetched.
            run: the run's row.
            doubts: what does not fit between format and tokenizer.
            rekeyed: of the key, where the engine before this one used another.
            exit_when_paused: end with code 3 once paused and nothing is in flight.
        """
        self._folder = folder
        self._fleet = fleet
        self._ledger = ledger
        self._desk = desk
        self._market = offered
        self._doubts = doubts
        self._rekeyed = rekeyed
        self._exit_when_paused = exit_when_paused
        self._reader = LedgerReader(folder.ledger_path)
        self._pace = Pace(offered.weights(), run.max_in_flight)
        self._files = OpenFiles(raise_limit(), lambda: fleet.ready)
        self._pace.files_room = self._files.room
        self._gates = Gates(ledger, run.state, run.pause_reason)
        self._filing = Filing(ledger, self._filed)
        restored = desk.restore(self._reader)
        watch = Watch(config.check, doubted=bool(doubts), awaits_profiles=desk.awaits_profiles)
        for row in self._reader.endpoints():
            if row.tag in self._pace.lanes:
                self._pace.lanes[row.tag].quarantined = row.state == "quarantined"
            if row.profile is not None:
                watch.decided(row.tag)
        bounds = PromptBounds()
        with CountsReader(folder.ledger_path) as counts:
            for prompt in counts.dearest_prompts():
                bounds.learn(*prompt)
            for overrun in counts.overruns():
                bounds.learn_overcharge(overrun.endpoint, overrun.charge)
            standing = [_finding(row) for row in self._reader.findings() if row.closed_at is None]
            watch.restore(counts.counted_groups(), standing)
        self._lessons = Lessons(
            ledger=ledger,
            gates=self._gates,
            pace=self._pace,
            check=config.check,
            watch=watch,
            bounds=bounds,
            second_look=SecondLook(folder.ledger_path, desk, ledger),
            unprofiled={tag: array("q", samples) for tag, samples in restored.samples.items()},
        )
        for tag, choice in restored.chosen.items():
            self._lessons.take_profile(tag, choice)
        self._dispatcher = Dispatcher(
            provider=provider,
            model_id=config.model.id,
            pace=self._pace,
            fleet=fleet,
            ledger=ledger,
            retry=RetryRule(config.run.seed, config.pace.max_attempts),
            landed=self._landed,
            crashed=self._crashed,
            verdict_of=watch.verdict,
        )
        self._load = Load(
            fleet=fleet,
            ledger=ledger,
            stream=config.pace.stream,
            receivers=config.pace.receivers,
            streams=lambda: any(manner.stream for manner in offered.manners.values()),
        )
        self._admissions = Admissions(
            ledger=ledger,
            gates=self._gates,
            pace=self._pace,
            market=offered,
            desk=desk,
            share=self._load.share,
            unjudged=lambda: fleet.unjudged,
            cpu_is_full=lambda: self._load.is_saturated,
            dispatcher=self._dispatcher,
            bounds=self._lessons.bounds,
            avoid=self._lessons.avoid,
            crashed=self._crashed,
        )
        self._settler = Settler(
            provider=provider,
            ledger=ledger,
            backoff_s=config.pace.generation_backoff_s,
            settled=self._settled,
            key_usage_at_start_pico=run.key_usage_at_start_pico,
        )
        self._rekey = Rekey(config, provider, folder, fleet, self._settler, ledger, self._is_busy)
        self._steering = Steering(
            reader=self._reader,
            ledger=ledger,
            gates=self._gates,
            pace=self._pace,
            files=self._files,
            market=offered,
            dispatcher=self._dispatcher,
            money_moved=self._money_moved,
            long_orders=LongOrders(self._reader, ledger, self._pace, self._admissions.queue_moved),
            rekey=self._rekey.read_again,
        )
        self._kept = KeptReplies(
            spool_dir=folder.spool_dir,
            ledger=ledger,
            desk=desk,
            market=offered,
            dispatcher=self._dispatcher,
            fleet=fleet,
            steering=self._steering,
        )
        self._wake = asyncio.Event()
        self._crash: BaseException | None = None
        self._signals = 0
        self._reconciling: asyncio.Task[None] | None = None
        self._cross_checking: asyncio.Task[None] | None = None
        self._unsettled: dict[int, OpenAttempt] = {}
        self._limits_may_lift = True
        """Money moved or a limit changed since a pause was last looked at."""
        self._rounds = Rounds(
            folder=folder,
            provider=provider,
            ledger=ledger,
            gates=self._gates,
            pace=self._pace,
            market=offered,
            settler=self._settler,
            limited_by=self._admissions.limited_by,
            detail=self._detail,
            receivers=fleet.beats,
            queue_moved=self._admissions.queue_moved,
        )

    def signalled(self) -> None:
        """Take a SIGTERM or SIGINT: the first drains, the second breaks off."""
        self._signals += 1
        if self._signals > 1:
            self._ledger.give_up()
        self._wake.set()

    async def run(self) -> int:
        """Work until the run ends, pauses (with `exit_when_paused`) or is interrupted; return the exit code."""
        self._settler.add(self._reader.open_attempts())
        await self._open()
        if self._gates.state in FINISHED_RUNS and self._rekeyed is None:
            await self._settler.cross_check()
        await self._lessons.doubt_format(self._doubts)
        if self._gates.state not in FINISHED_RUNS:
            self._load.begin()
            await self._fleet.until_ready()
            await self._steering.doubt_files()
        await self._ledger.do(lambda writer: writer.beat("engine", ready=True, detail=self._detail()))
        tasks = [
            self._spawn(self._filing.run()),
            self._spawn(self._settler.run()),
            self._spawn(self._lessons.second_look.run()),
            self._spawn(self._rounds.beat()),
            self._spawn(self._load.run()),
            self._spawn(self._rounds.refresh_prices()),
        ]
        try:
            await self._keep_spooled()
            if self._rekeyed is not None and self._crash is None:
                await self._rekey.begin(self._rekeyed)
            tasks.append(self._spawn(self._rounds.watch_key()))
            while True:
                if self._crash is not None:
                    raise self._crash
                if self._signals > 1:
                    self._dispatcher.abort()
                self._wake.clear()
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
                    self._wake.clear()
                    await self._wake.wait()

    async def _keep_spooled(self) -> None:
        """File the replies that processes of an engine that died had received, before anything is bought again."""
        await self._kept.land()
        while self._filing.waiting and self._crash is None:
            self._wake.clear()
            await self._wake.wait()
        if self._crash is None:  # else the ledger lacks some of them: the segments stay for the next start
            await self._kept.forget()

    async def _open(self) -> None:
        """Begin, or begin again, where the ledger says the run stands."""
        if self._gates.state == "new":
            await self._gates.move("running", "The run begins.")
        elif self._gates.state in FINISHED_RUNS:
            if await self._ledger.do(lambda writer: writer.next_due_at()) is not None:
                await self._gates.move("running", "The run goes on: samples are queued.")

    async def _ending(self) -> int | None:
        """Decide whether to end, and do what the end of a quiet run asks for."""
        if self._gates.state in FINISHED_RUNS:
            return self._code() if self._signals or await self._explained() else None
        if self._signals == 0 and await self._lifted():
            return None
        if self._dispatcher.flights or self._filing.waiting or self._desk.waiting or self._lessons.is_busy:
            return None
        if self._signals:
            return INTERRUPTED
        if self._gates.state == "running" and not self._admissions.is_exhausted:
            if self._admissions.money_waits and await self._explained() and self._settler.unexplained:
                self._gates.want_pause("cap", "Holds of requests whose cost is unknown leave no room under the cap.")
            return None
        if not await self._explained():
            return None
        if self._gates.state == "paused":
            return PAUSED if self._exit_when_paused and not self._limits_may_lift else None
        if self._gates.is_open and self._admissions.parked:
            self._gates.want_pause("check", self._admissions.wait_words())
        elif self._gates.is_open:
            await self._gates.move("draining", "Every sample has ended.")
        elif self._gates.state == "draining":
            if not self._is_cross_checked():
                return None
            left = await self._ledger.do(lambda writer: writer.next_due_at())
            await self._gates.move("done" if left is None else "stopped", "Everything under way has ended.")
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
        """Tell whether the whole run was held against the key; begin to, beside the loop, which goes on to steer."""
        if self._cross_checking is None:
            self._cross_checking = self._spawn(self._settler.cross_check())
            self._cross_checking.add_done_callback(lambda _: self._wake.set())
        if not self._cross_checking.done():
            return False
        self._cross_checking.result()
        return True

    def _is_still(self) -> bool:
        return not self._is_busy() and self._settler.is_quiet

    def _is_busy(self) -> bool:
        return bool(self._dispatcher.flights or self._filing.waiting)

    def _reconciled(self, task: asyncio.Task[None]) -> None:
        self._reconciling = None
        self._wake.set()

    async def _lifted(self) -> bool:
        """Go on by itself when the number that caused the pause was raised."""
        if self._gates.reason not in ("cap", "stop_at"):
            self._limits_may_lift = False
            return False
        hold_pico = self._admissions.next_hold()
        if not self._limits_may_lift or (hold_pico is None and not self._admissions.is_exhausted):
            return False
        self._limits_may_lift = False
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
                await self._wake.wait()

    def _code(self) -> int:
        states = self._reader.snapshot().states
        return FAILED_SAMPLES if states["failed"] else DONE

    def _landed(self, landing: Landing) -> None:
        flight, outcome = landing.flight, landing.finished.outcome
        self._lessons.landed(landing)
        if landing.failure is not None and landing.failure.kind == "price":
            self._rounds.doubt_price(flight.endpoint.tag)
        if _cost_is_open(outcome):
            self._unsettled[flight.attempt_id] = OpenAttempt(
                id=flight.attempt_id,
                sample_key=flight.ready.sample.key,
                endpoint=flight.endpoint.tag,
                hold_pico=flight.hold_pico,
                generation_id=flight.generation_id or outcome.generation_id,
                has_answer=isinstance(outcome, Answered),
                sent_at=None,
                ended_at=None,
            )
        self._filing.put(landing.finished, event_of(landing))
        self._wake.set()

    def _filed(self, batch: Sequence[Finished], overruns: Sequence[Overrun]) -> None:
        for finished in batch:
            outcome = finished.outcome
            if isinstance(outcome, Failed) and outcome.retry_at is not None:
                self._admissions.queue_moved(max(0.0, outcome.retry_at - time.time()))
            elif isinstance(outcome, Answered) and outcome.next_turn is not None:
                self._admissions.queue_moved()
        self._fleet.filed(row.attempt_id for row in batch)
        self._settler.forget(row.attempt_id for row in batch if row.attempt_id not in self._unsettled)
        self._settler.add([self._unsettled.pop(row.attempt_id) for row in batch if row.attempt_id in self._unsettled])
        self._lessons.filed(batch, overruns)
        self._money_moved()

    def _settled(self, overruns: Sequence[Overrun]) -> None:
        self._lessons.overcharged(overruns)
        self._money_moved()

    def _money_moved(self) -> None:
        self._limits_may_lift = True
        self._admissions.money_moved()
        self._wake.set()

    def _crashed(self, error: BaseException) -> None:
        self._crash = self._crash or error
        self._wake.set()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._crashed(error)

    def _waits(self) -> str | None:
        """Say what people may wonder about: nothing is sent because of open costs, or of endpoints set aside."""
        if self._settler.is_long_wait:
            return self._settler.wait_words()
        return self._admissions.wait_words() if self._admissions.parked and self._gates.is_open else None

    def _detail(self) -> dict[str, object]:
        return {
            "in_flight": len(self._dispatcher.flights),
            "limited_by": self._admissions.limited_by() if self._gates.is_open else None,
            "unjudged": self._fleet.unjudged,
            "stream_share": round(self._load.share.share, 2),
            "unfiled": self._filing.waiting,
            "unsettled": len(self._settler.questions) + len(self._settler.nameless),
            "waits": self._waits(),
            "key": self._settler.key_seen and self._settler.key_seen._asdict(),
            "draining": self._signals > 0,
            "endpoints": self._pace.standing(time.monotonic()),
        }


def _cost_is_open(outcome: Answered | Failed) -> bool:
    if isinstance(outcome, Answered):
        return outcome.cost_pico is None
    return outcome.attempt_state == "unsettled"


def _finding(row: FindingRow) -> Finding:
    return Finding(row.kind, row.sentence, row.affected, row.examined, row.example_key, row.action, row.endpoint)


def _say_goodbye(receivers: Sequence[ReceiverBeat], writer: LedgerWriter) -> None:
    writer.tick()
    for receiver in receivers:
        writer.stop_beat("receiver", receiver.slot, pid=receiver.pid)
    writer.stop_beat("engine")
