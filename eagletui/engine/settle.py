"""Find out what unsettled attempts cost: by generation id, and in sum for what has none.

Attempts with an id are asked about at `/generation` until it answers or the back-off steps are used up; a question that
fails uses up none. The rest is settled in sum once nothing is in flight and as much time has passed since the newest of
them ended: what the provider's key shows and the ledger does not is booked as unattributed, and the holds it covers are
released. A bill that comes later still is found by the cross-check at the end of the run, or when it is started again.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from typing import Final, TypeVar

from eagletui.core.money import format_usd
from eagletui.engine.key_account import KeyAccount, KeyLook
from eagletui.engine.ledger_thread import LedgerThread
from eagletui.ledger.orders import OpenAttempt, Overrun
from eagletui.ledger.writer import LedgerWriter
from eagletui.providers.base import Provider, ProviderFailure

T = TypeVar("T")

ASKED_AT_ONCE: Final = 8
KEY_READS: Final = 12
"""How often the key is read before a sum that does not come to rest is left to the next start."""
LOOK_S: Final = 1.0
"""While bills may still come, it is looked this often whether the run has gone on."""
SAID_AFTER_S: Final = 5.0
"""Most costs are known sooner; a longer wait is explained."""


@dataclass(slots=True)
class Question:
    """One attempt whose cost is asked for."""

    attempt: OpenAttempt
    asked: int = 0
    """How often it was answered that the cost is not known yet."""
    failed: int = 0
    """How often the question itself failed since it was answered last."""
    due_at: float = 0.0
    """Monotonic seconds."""


@dataclass(slots=True)
class Settler:
    """Keeps the open questions of money."""

    provider: Provider
    ledger: LedgerThread
    backoff_s: Sequence[float]
    """Waits between questions; together the time within which a provider is believed to bill a broken request."""
    settled: Callable[[Sequence[Overrun]], None]
    """Called after money moved."""
    key: KeyAccount
    """Of the key in use; what has no name is settled by it in sum."""
    questions: dict[int, Question] = field(default_factory=dict)
    nameless: dict[int, OpenAttempt] = field(default_factory=dict)
    """No generation id, or one that `/generation` does not know."""
    unexplained: bool = False
    """The key could not be read or did not come to rest: `nameless` keeps its holds until the next start."""
    booking: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a sum is booked, and while another key is taken."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _billed_by: dict[int, float] = field(default_factory=dict)
    """By attempt whose cost is open: monotonic seconds by which its bill must have come."""
    _throttled_until: float = 0.0
    """Monotonic seconds: the provider asked for so long a rest from questions."""
    _one_at_a_time: bool = False
    """The last questions met a limit of their rate."""
    _waits_since: float | None = None
    """Monotonic seconds: nothing but open costs has kept the run from going on."""
    _said: bool = False

    def add(self, attempts: Sequence[OpenAttempt]) -> None:
        """Take up attempts that ended without a known cost; those that ended long ago are asked about once more."""
        now = time.monotonic()
        for attempt in attempts:
            known = self.nameless.pop(attempt.id, None)
            if known is not None:
                # It was open when the engine before this one died, and what it had received names it now.
                attempt = replace(known, generation_id=attempt.generation_id, has_answer=attempt.has_answer)
            age_s = 0.0 if attempt.ended_at is None else max(0.0, time.time() - attempt.ended_at)
            self._billed_by[attempt.id] = now - age_s + sum(self.backoff_s)
            if attempt.generation_id is None or self.key.usage_at_start_pico is None:
                self.nameless[attempt.id] = attempt
            else:
                passed = sum(step_s <= age_s for step_s in accumulate(self.backoff_s))
                due_at = now + max(0.0, self.backoff_s[0] - age_s)
                self.questions[attempt.id] = Question(attempt, min(passed, len(self.backoff_s) - 1), due_at=due_at)
        if attempts:
            self.unexplained = self._said = False
            self._waits_since = None
            self._changed.set()

    def forget(self, attempt_ids: Iterable[int]) -> None:
        """Let go of attempts whose cost is known, or that are booked, and of none that became open meanwhile."""
        for attempt_id in attempt_ids:
            self.questions.pop(attempt_id, None)
            self.nameless.pop(attempt_id, None)
            self._billed_by.pop(attempt_id, None)

    def take_key(self, usage_at_start_pico: int, booked: Sequence[int]) -> None:
        """Cross-check with another key from here on.

        Args:
            usage_at_start_pico: what that key would have shown before the run.
            booked: attempts whose bounds were booked, as that key cannot show what they cost.
        """
        self.key.take(usage_at_start_pico)
        self.forget(booked)

    @property
    def is_quiet(self) -> bool:
        """Nothing is asked any more: what is left can only be settled in sum."""
        return not self.questions

    @property
    def is_explained(self) -> bool:
        """Every cost is known, or nothing more can be learned now."""
        return not self.questions and (not self.nameless or self.unexplained)

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            now = time.monotonic()
            due = [question for question in self.questions.values() if question.due_at <= now]
            if due and self._throttled_until <= now:
                asked = due[: 1 if self._one_at_a_time else ASKED_AT_ONCE]
                self._one_at_a_time = False
                await asyncio.gather(*(self._ask(question) for question in asked))
                continue
            self._changed.clear()
            next_at = min((question.due_at for question in self.questions.values()), default=None)
            next_at = None if next_at is None else max(next_at, self._throttled_until)
            try:
                async with asyncio.timeout(None if next_at is None else max(0.0, next_at - now)):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def reconcile(self, is_still: Callable[[], bool]) -> None:
        """Settle `nameless` in sum. Call when nothing is in flight and nothing is asked.

        Args:
            is_still: tells whether that still holds; the sum is given up when it does not.
        """
        if self.key.usage_at_start_pico is None:
            await self._book_bounds()
            return
        while (left_s := self._bills_may_come_s()) > 0:
            await asyncio.sleep(min(left_s, LOOK_S))
            if not is_still():
                return
        seen: int | None = None
        key_changes = self.key.changes
        for read in range(KEY_READS):
            pause_s = self.backoff_s[min(read, len(self.backoff_s) - 1)]
            usage_pico = await self.key.usage()
            async with self.booking:
                if not is_still() or key_changes != self.key.changes:
                    return
                books = await self.ledger.do(lambda writer: writer.books())
                if usage_pico is not None and usage_pico == seen:
                    look = KeyLook(usage_pico - self.key.usage_at_start_pico, books)
                    if look.shown_pico >= books.spent_pico:
                        await self._book(look)
                        return
            seen = usage_pico
            await asyncio.sleep(pause_s)
            if not is_still() or key_changes != self.key.changes:
                return
        self.unexplained = True
        held = sum(attempt.hold_pico for attempt in self.nameless.values())
        await self.ledger.do(
            lambda writer: writer.finding(
                "unsettled",
                f"{len(self.nameless)} attempts have no known cost and the provider's key does not explain them; "
                f"{format_usd(held)} stays unsettled.",
                affected=len(self.nameless),
                examined=len(self.nameless),
                action="Start the run again later: their cost is asked for once more.",
            )
        )

    async def say_wait(self) -> None:
        """Say once in the log for how long the run waits for costs, and why. Call while nothing else is left to do."""
        now = time.monotonic()
        if self._waits_since is None:
            self._waits_since = now
        if self._said or now - self._waits_since < SAID_AFTER_S:
            return
        self._said = True
        words = self.wait_words()
        await self.ledger.do(lambda writer: writer.event("info", "engine", "unsettled", words))

    def wait_words(self) -> str:
        """Say whose costs are open, for how long they are asked for, and how not to wait."""
        attempts = [*(question.attempt for question in self.questions.values()), *self.nameless.values()]
        held = format_usd(sum(attempt.hold_pico for attempt in attempts))
        whose = f"{len(attempts)} broken requests have" if len(attempts) > 1 else "1 broken request has"
        left_s = self._bills_may_come_s()
        goes_on = f"the cost is asked for {_time(left_s)} more" if left_s else "the key is read until it is at rest"
        return (
            f"{whose} no known cost, and the provider may bill {_time(sum(self.backoff_s))} late: {held} stays "
            f"unsettled and {goes_on}. To wait no longer, end the engine (Ctrl-C in `eagletui run --headless`, or "
            "SIGTERM): it stays unsettled until the next `eagletui run RUN` asks."
        )

    @property
    def is_long_wait(self) -> bool:
        """The run has waited for costs alone for so long that a person wonders."""
        return self._said and not self.is_explained

    def _bills_may_come_s(self) -> float:
        """Return for how many seconds bills of open attempts may still come."""
        latest = max((self._billed_by[attempt_id] for attempt_id in (*self.questions, *self.nameless)), default=0.0)
        return max(0.0, latest - time.monotonic())

    async def cross_check(self) -> None:
        """Compare the whole run with what the key shows: settle bills that came late, name what nothing explains.

        Call when nothing is in flight and every hold is explained. What was named while the run worked is no finding
        any more where the key now shows what the ledger does.
        """
        covered = await self.ledger.do(lambda writer: writer.covered_attempts())
        look = await self.key.look()
        is_odd = look is not None and look.excess_pico > 0
        if is_odd or (covered and (await self.ledger.do(lambda writer: writer.books())).unattributed_pico):
            named = [attempt for attempt in covered if attempt.generation_id is not None]
            for start in range(0, len(named), ASKED_AT_ONCE):
                await asyncio.gather(*(_or_none(self._settle(it)) for it in named[start : start + ASKED_AT_ONCE]))
            look = await self.key.look()
        if look is None:
            return
        left_pico = look.excess_pico - await self.ledger.do(partial(_book_late, look.excess_pico))
        if not await self.key.name_excess(left_pico, look):
            await self.key.drop_excess()

    async def _ask(self, question: Question) -> None:
        attempt = question.attempt
        try:
            is_known = await self._settle(attempt)
        except ProviderFailure as failure:
            self._ask_again(question, failure)
            return
        if is_known:
            self.forget([attempt.id])
            return
        question.asked += 1
        question.failed = 0
        if question.asked >= len(self.backoff_s):
            self._give_up(attempt)
        else:
            question.due_at = time.monotonic() + self.backoff_s[question.asked]

    def _ask_again(self, question: Question, failure: ProviderFailure) -> None:
        """Ask later what could not be asked: that says nothing about the cost and uses up no step."""
        question.failed += 1
        if question.failed >= len(self.backoff_s):
            self._give_up(question.attempt)
            return
        wait_s = max(self.backoff_s[question.failed - 1], failure.retry_after_s or 0.0)
        question.due_at = time.monotonic() + wait_s
        if failure.kind in ("rate_limited", "overloaded"):
            self._one_at_a_time = True
            if failure.retry_after_s is not None:
                self._throttled_until = max(self._throttled_until, time.monotonic() + failure.retry_after_s)

    def _give_up(self, attempt: OpenAttempt) -> None:
        if self.questions.pop(attempt.id, None) is not None:
            self.nameless[attempt.id] = attempt
        self.settled(())

    async def _settle(self, attempt: OpenAttempt) -> bool:
        """Ask for the cost of an attempt once, and tell whether it is known now.

        Raises:
            ProviderFailure: it could not be asked.
        """
        assert attempt.generation_id is not None
        record = await self.provider.generation(attempt.generation_id)
        if record is None:
            return False
        overruns = await self.ledger.do(
            lambda writer: writer.settle(
                attempt.id,
                record.cost_pico_usd,
                billed_prompt_tokens=record.prompt_tokens,
                billed_output_tokens=record.completion_tokens,
            )
        )
        self.settled(overruns)
        return True

    async def _book(self, look: KeyLook) -> None:
        """Book what the key shows; an attempt cannot have cost more than its hold, so the rest is someone else's."""
        missing_pico = look.shown_pico - look.books.spent_pico
        ids = list(self.nameless)
        held = sum(attempt.hold_pico for attempt in self.nameless.values())
        amount = min(missing_pico, held)
        detail = f"{len(ids)} attempts without a known generation; the key shows {format_usd(missing_pico, 12)} more."
        await self.ledger.do(lambda writer: writer.adjust_unattributed(amount, ids, detail))
        await self.key.name_excess(missing_pico - held, look)
        self.forget(ids)
        self.settled(())

    async def _book_bounds(self) -> None:
        """A server without accounts will never say: take each attempt at its bound, which is 0 where it is free."""
        bounds = [(attempt.id, attempt.hold_pico) for attempt in self.nameless.values()]

        def settle(writer: LedgerWriter) -> list[Overrun]:
            return [overrun for attempt_id, hold in bounds for overrun in writer.settle(attempt_id, hold)]

        overruns = await self.ledger.do(settle)
        self.forget([attempt_id for attempt_id, _ in bounds])
        self.settled(overruns)


def _book_late(excess_pico: int, writer: LedgerWriter) -> int:
    """Book bills that came after their holds were released, and return how much of the excess those explain."""
    covered = writer.covered_attempts()
    room_pico = sum(attempt.hold_pico for attempt in covered) - writer.books().unattributed_pico
    amount_pico = min(excess_pico, max(0, room_pico))
    if amount_pico > 0:
        detail = f"Bills that came late for some of {len(covered)} attempts, after their holds were released."
        writer.adjust_unattributed(amount_pico, [], detail)
    return max(0, amount_pico)


def _time(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


async def _or_none(asked: Awaitable[T | None]) -> T | None:
    """A question that failed is asked again later, like one whose answer is not known yet."""
    try:
        return await asked
    except ProviderFailure:
        return None
