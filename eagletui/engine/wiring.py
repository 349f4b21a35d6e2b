"""The parts of an engine: what there is, who knows whom, and what follows when a request ends or money moves."""

import asyncio
import time
from array import array
from collections.abc import Sequence

from eagletui.config.run_config import RunConfig
from eagletui.core.findings import Finding
from eagletui.engine.admission import Admissions
from eagletui.engine.answers import AnswerDesk
from eagletui.engine.budget import PromptBounds
from eagletui.engine.dispatch import Dispatcher, Landing, RetryRule
from eagletui.engine.filing import Filing, event_of
from eagletui.engine.fleet import Fleet
from eagletui.engine.gates import Gates
from eagletui.engine.kept_replies import KeptReplies
from eagletui.engine.key_account import KeyAccount
from eagletui.engine.ledger_thread import LedgerThread
from eagletui.engine.lessons import Lessons
from eagletui.engine.load import Load
from eagletui.engine.long_orders import LongOrders
from eagletui.engine.market import Market
from eagletui.engine.open_files import OpenFiles, raise_limit
from eagletui.engine.pace import Pace
from eagletui.engine.rekey import Rekey
from eagletui.engine.rounds import Rounds
from eagletui.engine.second_look import SecondLook
from eagletui.engine.settle import Settler
from eagletui.engine.steering import Steering
from eagletui.engine.watch import Watch
from eagletui.ledger.orders import Answered, Failed, Finished, OpenAttempt, Overrun
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.reader_counts import CountsReader
from eagletui.ledger.rows import FindingRow, RunRow
from eagletui.providers.base import Provider
from eagletui.runs.folder import RunFolder


class Alarm:
    """Wakes the loop, and keeps the first fault of this program for it."""

    def __init__(self) -> None:
        """Be silent."""
        self.rung = asyncio.Event()
        self.crash: BaseException | None = None

    def wake(self) -> None:
        """Say that there is something to do."""
        self.rung.set()

    def crashed(self, error: BaseException) -> None:
        """Say that a part ended by a fault."""
        self.crash = self.crash or error
        self.rung.set()


class Parts:
    """What an engine is made of."""

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
        *,
        is_doubted: bool,
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
            is_doubted: something does not fit between format and tokenizer.
        """
        self.ledger = ledger
        self.fleet = fleet
        self.alarm = Alarm()
        self.is_ending = False
        """A signal asked the engine to end."""
        self.desk = desk
        self.reader = LedgerReader(folder.ledger_path)
        self.pace = Pace(offered.weights(), run.max_in_flight)
        self.files = OpenFiles(raise_limit(), lambda: fleet.ready)
        self.pace.files_room = self.files.room
        self.gates = Gates(ledger, run.state, run.pause_reason)
        self.filing = Filing(ledger, self._filed)
        restored = desk.restore(self.reader)
        watch = Watch(config.check, doubted=is_doubted, awaits_profiles=desk.awaits_profiles)
        for row in self.reader.endpoints():
            if row.tag in self.pace.lanes:
                self.pace.lanes[row.tag].quarantined = row.state == "quarantined"
            if row.profile is not None:
                watch.decided(row.tag)
        bounds = PromptBounds()
        with CountsReader(folder.ledger_path) as counts:
            for prompt in counts.dearest_prompts():
                bounds.learn(*prompt)
            for overrun in counts.overruns():
                bounds.learn_overcharge(overrun.endpoint, overrun.charge)
            standing = [_finding(row) for row in self.reader.findings() if row.closed_at is None]
            watch.restore(counts.counted_groups(), standing)
        self.lessons = Lessons(
            ledger=ledger,
            gates=self.gates,
            pace=self.pace,
            check=config.check,
            watch=watch,
            bounds=bounds,
            second_look=SecondLook(folder.ledger_path, desk, ledger),
            unprofiled={tag: array("q", samples) for tag, samples in restored.samples.items()},
        )
        for tag, choice in restored.chosen.items():
            self.lessons.take_profile(tag, choice)
        self.dispatcher = Dispatcher(
            provider=provider,
            model_id=config.model.id,
            pace=self.pace,
            fleet=fleet,
            ledger=ledger,
            retry=RetryRule(config.run.seed, config.pace.max_attempts),
            landed=self._landed,
            crashed=self.alarm.crashed,
            verdict_of=watch.verdict,
        )
        self.load = Load(
            fleet=fleet,
            ledger=ledger,
            stream=config.pace.stream,
            receivers=config.pace.receivers,
            streams=lambda: any(manner.stream for manner in offered.manners.values()),
        )
        self.admissions = Admissions(
            ledger=ledger,
            gates=self.gates,
            pace=self.pace,
            market=offered,
            desk=desk,
            share=self.load.share,
            unjudged=lambda: fleet.unjudged,
            cpu_is_full=lambda: self.load.is_saturated,
            dispatcher=self.dispatcher,
            bounds=self.lessons.bounds,
            avoid=self.lessons.avoid,
            crashed=self.alarm.crashed,
        )
        self.settler = Settler(
            provider=provider,
            ledger=ledger,
            backoff_s=config.pace.generation_backoff_s,
            settled=self._settled,
            key=KeyAccount(provider, ledger, run.key_usage_at_start_pico),
        )
        self.rekey = Rekey(config, provider, folder, fleet, self.settler, ledger, self.is_busy)
        self.steering = Steering(
            reader=self.reader,
            ledger=ledger,
            gates=self.gates,
            pace=self.pace,
            files=self.files,
            market=offered,
            dispatcher=self.dispatcher,
            money_moved=self.money_moved,
            long_orders=LongOrders(self.reader, ledger, self.pace, self.admissions.queue_moved),
            rekey=self.rekey.read_again,
        )
        self.kept = KeptReplies(
            spool_dir=folder.spool_dir,
            ledger=ledger,
            desk=desk,
            market=offered,
            dispatcher=self.dispatcher,
            fleet=fleet,
            steering=self.steering,
        )
        self._unsettled: dict[int, OpenAttempt] = {}
        self.limits_may_lift = True
        """Money moved or a limit changed since a pause was last looked at."""
        self.rounds = Rounds(
            folder=folder,
            provider=provider,
            ledger=ledger,
            gates=self.gates,
            pace=self.pace,
            market=offered,
            settler=self.settler,
            limited_by=self.admissions.limited_by,
            detail=self.detail,
            receivers=fleet.beats,
            queue_moved=self.admissions.queue_moved,
        )

    def is_busy(self) -> bool:
        """Tell whether a request is under way, or its end is not in the ledger yet."""
        return bool(self.dispatcher.flights or self.filing.waiting)

    def _landed(self, landing: Landing) -> None:
        flight, outcome = landing.flight, landing.finished.outcome
        self.lessons.landed(landing)
        if landing.failure is not None and landing.failure.kind == "price":
            self.rounds.doubt_price(flight.endpoint.tag)
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
        self.filing.put(landing.finished, event_of(landing))
        self.alarm.wake()

    def _filed(self, batch: Sequence[Finished], overruns: Sequence[Overrun]) -> None:
        for finished in batch:
            outcome = finished.outcome
            if isinstance(outcome, Failed) and outcome.retry_at is not None:
                self.admissions.queue_moved(max(0.0, outcome.retry_at - time.time()))
            elif isinstance(outcome, Answered) and outcome.next_turn is not None:
                self.admissions.queue_moved()
        self.fleet.filed(row.attempt_id for row in batch)
        self.settler.forget(row.attempt_id for row in batch if row.attempt_id not in self._unsettled)
        self.settler.add([self._unsettled.pop(row.attempt_id) for row in batch if row.attempt_id in self._unsettled])
        self.lessons.filed(batch, overruns)
        self.money_moved()

    def _settled(self, overruns: Sequence[Overrun]) -> None:
        self.lessons.overcharged(overruns)
        self.money_moved()

    def money_moved(self) -> None:
        """Holds were released or limits changed."""
        self.limits_may_lift = True
        self.admissions.money_moved()
        self.alarm.wake()

    def _waits(self) -> str | None:
        """Say what people may wonder about: nothing is sent because of open costs, or of endpoints set aside."""
        if self.settler.is_long_wait:
            return self.settler.wait_words()
        return self.admissions.wait_words() if self.admissions.parked and self.gates.is_open else None

    def detail(self) -> dict[str, object]:
        """Return the engine's figures for the screens."""
        return {
            "in_flight": len(self.dispatcher.flights),
            "limited_by": self.admissions.limited_by() if self.gates.is_open else None,
            "unjudged": self.fleet.unjudged,
            "stream_share": round(self.load.share.share, 2),
            "unfiled": self.filing.waiting,
            "unsettled": len(self.settler.questions) + len(self.settler.nameless),
            "waits": self._waits(),
            "key": self.settler.key.seen and self.settler.key.seen._asdict(),
            "draining": self.is_ending,
            "endpoints": self.pace.standing(time.monotonic()),
        }


def _cost_is_open(outcome: Answered | Failed) -> bool:
    if isinstance(outcome, Answered):
        return outcome.cost_pico is None
    return outcome.attempt_state == "unsettled"


def _finding(row: FindingRow) -> Finding:
    return Finding(row.kind, row.sentence, row.affected, row.examined, row.example_key, row.action, row.endpoint)
