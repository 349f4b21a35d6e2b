"""Send admitted requests and turn each end into a row: an answer, or a failure with what it means for the money."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from eagletui.core.drift import Verdict
from eagletui.core.text import clean_line
from eagletui.core.turns import next_turn
from eagletui.engine.answers import Judged, ReadySample
from eagletui.engine.fleet import Fleet
from eagletui.engine.ledger_thread import LedgerThread
from eagletui.engine.pace import Pace, backoff_s
from eagletui.engine.spool import Kept
from eagletui.engine.spread import Manner
from eagletui.engine.taking import NEVER_BEGUN, Order, Taken
from eagletui.engine.throttles import Throttles
from eagletui.ledger.orders import Answered, Failed, Finished
from eagletui.ledger.turns import WAITS
from eagletui.providers.base import ChatRequest, Endpoint, FailureKind, Provider, ProviderFailure, Stranger

THROTTLED: Final[tuple[FailureKind, ...]] = ("rate_limited", "overloaded")
THROTTLES: Final = (429, 503)
"""Statuses that say "later" before any work, at no cost. A 529, or the same words inside a reply, may have been billed,
and counts: what it holds stays held, and must not add up without end."""
OF_THE_SAMPLE: Final[tuple[FailureKind, ...]] = ("bad_request", "moderation")
"""Refusals that say nothing about the endpoint."""
SHUT_FAILURES: Final = 5
"""An endpoint that forbids so many requests and answers none is shut to this client, and not for minutes only. One that
answered lately is gone once it is missing for so many: what one request asks for may be all that it does not have."""
PATIENCE: Final = (20, 10)
"""A throttled sample waits for so many answers that were due to it, and for so many per attempt that it has."""
GENERATION_ID_CELLS: Final = 200
ABORTED: Final = ProviderFailure("aborted", "Aborted on request while the reply was on its way.")


@dataclass(slots=True)
class Flight:
    """One request under way."""

    ready: ReadySample
    endpoint: Endpoint
    manner: Manner
    attempt_id: int
    hold_pico: int
    sent_at: float
    """Monotonic seconds; the same for those that were admitted together."""
    generation_id: str | None = None
    """Once the headers arrived."""
    receiving: bool = True
    """The reply is not all here yet: aborting loses it."""
    task: asyncio.Task[None] | None = None


@dataclass(frozen=True, slots=True)
class Landing:
    """How a flight ended, for the parts that learn from it."""

    flight: Flight
    finished: Finished
    failure: ProviderFailure | None
    judged: Judged | None
    stranger: Stranger | None = None
    """Who answered, where it was not the one asked."""


@dataclass(frozen=True, slots=True)
class RetryRule:
    """When a failed sample is tried again."""

    seed: int
    max_attempts: int

    @property
    def patience(self) -> int:
        """After how many answers that were due to it a throttled sample is throttled for what it asks."""
        least, per_attempt = PATIENCE
        return max(least, per_attempt * self.max_attempts)

    def retry_at(
        self, failure: ProviderFailure, sample_key: str, tries: int, now: float, *, is_own: bool = False
    ) -> float | None:
        """Return the time of the next attempt, or None to give up.

        Args:
            failure: of the last attempt.
            sample_key: whose.
            tries: attempts that count, the failed one included; after `ctl retry` they begin anew.
            now: Unix seconds.
            is_own: it is a throttle that is the sample's own, and counts.
        """
        is_throttle = _is_throttle(failure)
        if excuses(failure) and not is_throttle:
            return now
        is_throttle = is_throttle and not is_own
        may_repeat = failure.retryable or failure.pause == "breaker"
        if not may_repeat or (tries >= self.max_attempts and not is_throttle):
            return None
        return now + backoff_s(self.seed, sample_key, tries) + (failure.retry_after_s or 0.0)


def excuses(failure: ProviderFailure) -> bool:
    """Tell whether a failure is no fault of the sample: it was aborted, throttled before any work, or pauses the run.

    A missing endpoint may be its fault: there may be none for what the sample asks. A sample that is throttled waits,
    unless the throttle is its own (`throttles.py`); an endpoint that does nothing else is taken out (`breaker.py`), and
    the run pauses when it was the last.
    """
    return failure.kind == "aborted" or failure.pause not in (None, "breaker") or _is_throttle(failure)


def _is_throttle(failure: ProviderFailure) -> bool:
    return failure.void and failure.kind in THROTTLED and failure.http_status in THROTTLES


@dataclass(slots=True)
class Dispatcher:
    """Keeps the flights."""

    provider: Provider
    model_id: str
    pace: Pace
    fleet: Fleet
    ledger: LedgerThread
    retry: RetryRule
    landed: Callable[[Landing], None]
    """Called once per flight, before its end is on disk."""
    crashed: Callable[[BaseException], None]
    """Called when a flight ends in a fault of this program; its hold stays for the next start to settle."""
    verdict_of: Callable[[str], Verdict]
    """What the answers of an endpoint say so far, by tag."""
    clock: Callable[[], float] = time.time
    flights: dict[int, Flight] = field(default_factory=dict)
    """By attempt id."""
    throttles: Throttles = field(init=False)

    def __post_init__(self) -> None:
        """Wait for throttled samples as the rule says."""
        self.throttles = Throttles(self.retry.patience)

    def launch(self, flight: Flight) -> None:
        """Send a request whose hold is in the ledger and which is marked as sent."""
        self.flights[flight.attempt_id] = flight
        flight.task = asyncio.create_task(self._fly(flight))
        flight.task.add_done_callback(partial(self._collect, flight))

    def abort(self) -> list[Flight]:
        """Break off every reply that is not all here, and return whose; those being broken off are left alone."""
        return [
            flight
            for flight in self.flights.values()
            if flight.receiving and flight.task is not None and not flight.task.cancelling() and flight.task.cancel()
        ]

    def _collect(self, flight: Flight, task: asyncio.Task[None]) -> None:
        if self.flights.pop(flight.attempt_id, None) is not None:
            # `_fly` takes its flight out, so this one was broken off before it took its first step.
            flight.receiving = False
            self.pace.leave(flight.endpoint.tag, flight.sent_at)
            self.land(flight, Taken(None, None, NEVER_BEGUN))
            return
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.crashed(error)

    async def _fly(self, flight: Flight) -> None:
        is_own = False
        try:
            taken = await self._take(flight)
            is_own = taken.failure is not None and await self._is_own(flight, taken.failure)
        except asyncio.CancelledError:
            taken = Taken(None, None, ABORTED)
        finally:
            del self.flights[flight.attempt_id]
        self._learn(flight, taken, is_own=is_own)
        self.land(flight, taken, is_own=is_own)

    async def _is_own(self, flight: Flight, failure: ProviderFailure) -> bool:
        """Tell whether a failure is a throttle for what the sample asks."""
        if not _is_throttle(failure):
            return False
        sample_id = flight.ready.sample.id
        cause = self.throttles.throttled(flight.endpoint.tag, sample_id, flight.sent_at, time.monotonic())
        if cause != "sample if alone" or len(self.flights) > 1:
            return cause == "sample"
        due_at = await self.ledger.do(lambda writer: writer.next_due_at())
        return due_at is None or due_at >= WAITS

    def land(self, flight: Flight, taken: Taken, *, is_own: bool = False) -> None:
        """Make a row of what came of a request.

        Args:
            flight: the request.
            taken: its reply or its failure.
            is_own: it is a throttle for what the sample asks.
        """
        judged = taken.judged
        stranger = None if judged is None else self.provider.stranger(judged.reply, flight.endpoint)
        outcome = (
            self._failed(flight, taken.failure, taken.kept, is_own=is_own)
            if taken.failure
            else self._answered(flight, taken, stranger)
        )
        self.landed(Landing(flight, Finished(flight.attempt_id, outcome), taken.failure, judged, stranger))

    def order(self, flight: Flight) -> Order:
        """Return what is asked for a flight."""
        ready, tag = flight.ready, flight.endpoint.tag
        request = ChatRequest(
            prompt=ready.sample.prompt,
            model_id=self.model_id,
            endpoint=tag,
            sampling=ready.sampling,
            max_tokens=ready.max_tokens,
            stream=flight.manner.stream,
            logprobs=flight.manner.logprobs,
            max_price=flight.endpoint.price,
            quantization=flight.endpoint.quantization,
            variants=flight.endpoint.variants,
        )
        return Order(flight.attempt_id, request, ready, tag, self.verdict_of(tag))

    async def _take(self, flight: Flight) -> Taken:
        tag = flight.endpoint.tag

        async def on_headers(generation_id: str | None, http_status: int) -> None:
            flight.generation_id = generation_id
            if http_status == 200:
                self.pace.accepted(tag, time.monotonic())
            await self.ledger.note_headers(flight.attempt_id, generation_id, http_status)

        def received() -> None:
            flight.receiving = False
            self.pace.leave(tag, flight.sent_at)

        return await self.fleet.take(self.order(flight), on_headers, received)

    def _learn(self, flight: Flight, taken: Taken, *, is_own: bool = False) -> None:
        failure, tag, now = taken.failure, flight.endpoint.tag, time.monotonic()
        if failure is None:
            self.pace.answered(tag, now, _tokens_per_s(taken))
            self.throttles.answered(tag, flight.ready.sample.id, flight.sent_at)
            return
        if failure.kind == "aborted":
            return
        if failure.kind in THROTTLED:
            self.pace.throttled(tag, flight.sent_at, now, failure.retry_after_s)
        elif failure.kind == "connect":
            self.pace.unreachable(tag, now)
        elif failure.retryable:
            self.pace.faulted(tag, now)
        # A refusal that pauses the run is about the key; a missing or dearer endpoint is about this one.
        is_gone = failure.pause in ("breaker", "price")
        breaker = self.pace.lanes[tag].breaker
        if failure.kind == "forbidden" or (failure.pause == "breaker" and breaker.answered_lately(now)):
            is_gone = breaker.failures + 1 >= SHUT_FAILURES
        if not is_own and failure.kind not in OF_THE_SAMPLE and failure.pause in (None, "breaker", "price"):
            what = f"{failure.kind}, {failure.detail}"
            awaits = partial(self._awaits, tag)
            self.pace.failed(tag, what, flight.sent_at, now, awaits=awaits, at_once=is_gone)

    def _awaits(self, tag: str, sent_before: float) -> bool:
        """Tell whether a reply of an endpoint is still on its way that was asked for by then."""
        return any(
            flight.endpoint.tag == tag and flight.receiving and flight.sent_at <= sent_before
            for flight in self.flights.values()
        )

    def _answered(self, flight: Flight, taken: Taken, stranger: Stranger | None) -> Answered:
        judged, kept = taken.judged, taken.kept
        assert judged is not None
        assert kept is not None
        usage, sample = judged.reply.usage, flight.ready.sample
        return Answered(
            body=kept.body,
            encoding=kept.encoding,
            cost_pico=self.provider.cost(judged.reply, flight.endpoint),
            endpoint=flight.endpoint.tag if stranger is None else stranger.label,
            finish_reason=judged.reply.finish_reason,
            latency_s=kept.ended_at - kept.started_at,
            billed_prompt_tokens=usage.prompt_tokens if usage else None,
            billed_output_tokens=usage.completion_tokens if usage else None,
            first_event_at=kept.first_event_at,
            generation_id=_known_id(flight, judged.reply.generation_id),
            tokens=judged.tokens,
            next_turn=next_turn(sample.whole, sample.turn, judged.reply) if sample.whole is not None else None,
        )

    def _failed(self, flight: Flight, failure: ProviderFailure, kept: Kept | None, *, is_own: bool) -> Failed:
        cost_pico = failure.cost_pico_usd
        sample = flight.ready.sample
        tries = sample.attempts - sample.excused + 1
        retry_at = self.retry.retry_at(failure, sample.key, tries, self.clock(), is_own=is_own)
        if retry_at is None:
            self.throttles.forget(sample.id)
        return Failed(
            attempt_state="void" if failure.void else "unsettled" if cost_pico is None else "settled",
            error_kind=failure.kind,
            error_detail=failure.detail,
            cost_pico=None if failure.void else cost_pico,
            http_status=failure.http_status,
            retry_at=retry_at,
            excused=excuses(failure) and not is_own,
            refused=failure.kind == "moderation",
            generation_id=_known_id(flight, failure.generation_id),
            body=kept.body if kept and kept.body_bytes else None,
            encoding=kept.encoding if kept else "json",
        )


def _tokens_per_s(taken: Taken) -> float | None:
    """Output tokens a second of an answer, from its request to its end."""
    kept, usage = taken.kept, taken.judged.reply.usage if taken.judged else None
    if kept is None or usage is None or not usage.completion_tokens or kept.ended_at <= kept.started_at:
        return None
    return usage.completion_tokens / (kept.ended_at - kept.started_at)


def _known_id(flight: Flight, in_body: str | None) -> str | None:
    """The header's id, which is on disk already, or else the body's."""
    return flight.generation_id or (clean_line(in_body, GENERATION_ID_CELLS) if in_body else None)
