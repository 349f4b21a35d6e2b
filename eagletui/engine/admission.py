"""Take samples from the queue, reserve their money, and launch them; know what holds the pace back."""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from eagletui.engine.answers import AnswerDesk, ReadySample
from eagletui.engine.budget import PromptBounds
from eagletui.engine.dispatch import Dispatcher, Flight
from eagletui.engine.fitness import Limits, Needs, fits, limits_of, needs_of, why_none
from eagletui.engine.gates import LIMIT_REACHED, Gates
from eagletui.engine.ledger_thread import LedgerThread
from eagletui.engine.load import StreamShare
from eagletui.engine.market import Market
from eagletui.engine.pace import Pace
from eagletui.engine.spread import Manner
from eagletui.ledger.orders import Admission, AdmitRequest
from eagletui.ledger.rows import LimitedBy
from eagletui.ledger.turns import WAITS
from eagletui.ledger.writer import LedgerWriter
from eagletui.ledger.writer_engine import Tags

READY_ROWS: Final = 128
"""So many prompts are kept rendered; more are fetched when half of them are used."""
HELD_BACK_ROWS: Final = 256
"""So many samples that wait for the few endpoints they fit are kept beside those, so that other endpoints have work."""
HELD_LOOK_S: Final = 0.1
"""More of them than are kept rendered of others are looked at this often: each look walks over all."""
PREPARE_ROWS: Final = 8
"""Rendered at a time, so that replies wait for the same thread only briefly."""
ADMIT_ROWS: Final = 64
"""Admitted at a time, which is also the ramp: one batch per turn of the loop."""
UNJUDGED_LIMIT: Final = 200
"""With so many replies waiting to be rebuilt, the CPU holds the pace back."""
UNPARK_ROWS: Final = 1_000
"""Parked samples return so many at a time, because others write to the ledger meanwhile."""
LOOK_AGAIN_S: Final = 0.5
"""An empty queue is looked at again after so long, because prompts may be added by another process."""


class _Market(NamedTuple):
    """The endpoints, as far as they decide who can be asked for a sample."""

    offered: Mapping[str, Limits]
    """By tag."""
    usable: Set[str]
    """Of these."""


@dataclass(slots=True)
class Admissions:
    """The path from the queue to the wire."""

    ledger: LedgerThread
    gates: Gates
    pace: Pace
    market: Market
    desk: AnswerDesk
    share: StreamShare
    """How many of the samples are streamed."""
    unjudged: Callable[[], int]
    """Replies that wait to be rebuilt, over all processes."""
    cpu_is_full: Callable[[], bool]
    """A process is at the end of its core."""
    dispatcher: Dispatcher
    bounds: PromptBounds
    avoid: Mapping[int, str]
    """By sample id: the endpoint that failed it last."""
    crashed: Callable[[BaseException], None]
    ready: deque[ReadySample] = field(default_factory=deque)
    queue_is_empty: bool = False
    """No sample is queued, not even one that waits for its time, but those that wait for an endpoint."""
    money_waits: bool = False
    """The next request fits only after open holds are released."""
    _unasked: list[tuple[ReadySample, str]] = field(default_factory=list)
    """Samples for which nobody can be asked, and why."""
    _to_park: dict[Tags, list[int]] = field(default_factory=dict)
    """Ids of samples that are to wait, by the quarantined endpoints that they fit."""
    _parking: set[int] = field(default_factory=set)
    """Ids of these, until the ledger has them."""
    _parked: Counter[Tags] = field(default_factory=Counter)
    """Samples that stay queued, by the quarantined endpoints that they fit: no other one does."""
    _parked_under: _Market | None = None
    """The endpoints under which all samples that wait were parked; None: some may have been under others."""
    _held_back: int = 0
    """Of those ready: samples that wait for the few endpoints that they fit."""
    _held_look_at: float = 0.0
    """Monotonic seconds: when many of these are worth another look."""
    _refilling: asyncio.Task[None] | None = None
    _is_rendering: bool = False
    """Prompts of samples that are due are not ready yet."""
    _look_at: float = 0.0
    """Monotonic seconds: when the queue is worth another look."""

    def money_moved(self) -> None:
        """Holds were released or limits changed: admission may be tried again."""
        self.money_waits = False

    def queue_moved(self, due_in_s: float = 0.0) -> None:
        """Samples were queued, to be sent after a wait."""
        self.queue_is_empty = False
        self._look_at = min(self._look_at, time.monotonic() + due_in_s)

    @property
    def is_exhausted(self) -> bool:
        """Nothing is left to send, now or later, while the usable endpoints are what they are."""
        is_empty = self.queue_is_empty and not self.ready and self._refilling is None
        return is_empty and self._parked_under == self._endpoints()

    @property
    def parked(self) -> int:
        """Samples that stay queued, because every endpoint that they fit is quarantined."""
        return self._parked.total()

    def wait_words(self) -> str:
        """Say for which endpoints parked samples wait, and how to have them asked."""
        samples = f"{self.parked:,} samples wait: they fit" if self.parked > 1 else "1 sample waits: it fits"
        tags = sorted({tag for tags, samples in self._parked.items() if samples for tag in tags})
        are = "are quarantined" if len(tags) > 1 else "is quarantined"
        return (
            f"{samples} no endpoint but {' and '.join(tags)}, which {are}. "
            "`eagletui ctl RUN release ENDPOINT` has an endpoint asked again."
        )

    def refill(self) -> None:
        """Fetch and render more prompts in the background when few are left."""
        if self._refilling is None and self._wants_more(time.monotonic()):
            self._refilling = asyncio.create_task(self._fetch())
            self._refilling.add_done_callback(self._fetched)

    def _wants_more(self, now: float) -> bool:
        fit_for_any = len(self.ready) - min(self._held_back, HELD_BACK_ROWS)
        return fit_for_any < READY_ROWS // 2 and now >= self._look_at

    async def close(self) -> None:
        """Give up a fetch under way."""
        if self._refilling is not None:
            self._refilling.cancel()
            await asyncio.gather(self._refilling, return_exceptions=True)

    def next_hold(self) -> int | None:
        """Return the smallest bound of the next sample over the endpoints, or None when no sample is ready."""
        if not self.ready:
            return None
        return min((self._hold(self.ready[0], tag) for tag in self.market.endpoints), default=None)

    async def admit(self) -> None:
        """Reserve and launch as many as money, pace and prompts allow, up to one batch."""
        picked = self._pick()
        under = self._endpoints() if self._to_park else None
        if self._unasked:
            await self._give_up_unasked()
        if under is not None:
            await self._park(under)
        if not picked:
            return
        manners = [self.share.manner(self.market.manners[tag]) for _, tag in picked]
        requests = [
            AdmitRequest(ready.sample.id, tag, self._hold(ready, tag), manner.stream)
            for (ready, tag), manner in zip(picked, manners, strict=True)
        ]
        admissions = await self.ledger.do(lambda writer: writer.admit(requests))
        sent = [admission.attempt_id for admission in admissions if admission.attempt_id is not None]
        if sent:
            # A transaction of its own, so that either may be tried again: both are on disk before a byte goes out.
            await self.ledger.do(lambda writer: writer.mark_sent(sent))
        sent_at = time.monotonic()
        back: list[ReadySample] = []
        for (ready, tag), manner, request, admission in zip(picked, manners, requests, admissions, strict=True):
            if admission.attempt_id is not None:
                self._launch(ready, tag, manner, request, admission.attempt_id, sent_at)
                continue
            self.pace.leave(tag)
            if admission.verdict != "not_queued":
                back.append(ready)
        self.ready.extendleft(reversed(back))
        self._heed(admissions)

    def limited_by(self) -> LimitedBy:
        """Say what holds the pace back now."""
        if self.money_waits:
            return "cap"
        if self.unjudged() >= UNJUDGED_LIMIT or self.cpu_is_full():
            return "cpu"
        now = time.monotonic()
        if self.pace.is_full(now):
            return "pace"
        if not self.pace.has_open_lane(now):
            return "endpoint"
        if self._held_back and self._held_back == len(self.ready):
            return "endpoint"
        if self.ready or self._is_rendering:
            return "cpu"  # there are prompts and room for them, and this process does not get to it
        return "prompts"

    def _pick(self) -> list[tuple[ReadySample, str]]:
        if not self.gates.is_open or self.money_waits or self.unjudged() >= UNJUDGED_LIMIT:
            return []
        now = time.monotonic()
        if self.ready and not self.pace.has_working_lane:
            self._want_endpoints(now)
            return []
        usable = self._usable()
        working = {tag for tag in usable if not self.pace.lanes[tag].breaker.is_broken}
        picked: list[tuple[ReadySample, str]] = []
        waiting: list[ReadySample] = []
        closed: set[tuple[str, ...]] = set()
        # Of those held back: whether one fits an endpoint that works, or was not looked at now.
        may_work = self._held_back > READY_ROWS and now < self._held_look_at
        if may_work:
            waiting = [self.ready.popleft() for _ in range(self._held_back)]
        else:
            self._held_look_at = now + HELD_LOOK_S
        while self.ready and len(picked) < ADMIT_ROWS:
            needs = needs_of(self.ready[0])
            never = tuple(tag for tag, endpoint in self.market.endpoints.items() if not fits(endpoint, needs))
            if usable.issubset(never):
                self._set_aside(self.ready.popleft(), needs, self.market.offered.keys() - set(never))
                continue
            avoided = self.avoid.get(self.ready[0].sample.id)
            tag = None if never in closed else self.pace.choose(now, () if avoided is None else (avoided,), never)
            if tag is not None:
                picked.append((self.ready.popleft(), tag))
            elif not never or self.pace.is_full(now):
                break
            else:
                closed.add(never)
                may_work = may_work or not working.issubset(never)
                waiting.append(self.ready.popleft())  # others need not wait for the few endpoints that this one fits
        self._held_back = len(waiting)
        if waiting and not (picked or self.ready or may_work):
            self._want_others(now)
        self.ready.extendleft(reversed(waiting))
        return picked

    def _usable(self) -> frozenset[str]:
        return frozenset(tag for tag, lane in self.pace.lanes.items() if lane.is_usable)

    def _endpoints(self) -> _Market:
        """Return what says of each sample whether it has an endpoint, and which one it waits for."""
        offered = {tag: limits_of(self.market.endpoints[tag]) for tag in self.market.offered}
        return _Market(offered, self._usable() & offered.keys())

    def _set_aside(self, ready: ReadySample, needs: Needs, closed: Set[str]) -> None:
        """Let a sample that no usable endpoint fits wait for those that are quarantined, or fail where none fits it."""
        if closed:
            self._to_park.setdefault(tuple(sorted(closed)), []).append(ready.sample.id)
            self._parking.add(ready.sample.id)
        else:
            self._unasked.append((ready, why_none(self.market.offered, needs)))

    async def _park(self, under: _Market) -> None:
        """Let samples wait that no usable endpoint fits; they are looked at again where that was said of others."""
        waiting, self._to_park = self._to_park, {}
        parked = await self.ledger.do(lambda writer: writer.park(waiting))
        self._parked += parked
        self._parking.difference_update(*waiting.values())
        if under != self._parked_under:
            self._parked_under = None

    async def _unpark(self) -> None:
        """Have those parked samples looked at again that wait for an endpoint which may be asked now; all of them where
        the offer is another than when they were parked."""
        before, now = self._parked_under, self._endpoints()
        if now == before:
            return
        self._parked_under = now  # before the first wait: `_park` says meanwhile where it parks under others
        parts: list[Tags | None] = [None]
        if before is not None and before.offered == now.offered:
            parts = [tags for tags in self._parked if not now.usable.isdisjoint(tags)]
        for tags in parts:
            while await self.ledger.do(partial(_unpark, tags)) == UNPARK_ROWS:
                pass
        self._parked = await self.ledger.do(lambda writer: writer.parked())

    async def _give_up_unasked(self) -> None:
        """Let samples fail for which nobody can be asked, before any money is held for them."""
        given_up = [(ready.sample.id, why) for ready, why in self._unasked]
        self._unasked.clear()
        await self.ledger.do(lambda writer: writer.give_up_unasked(given_up))

    def _want_endpoints(self, now: float) -> None:
        if self.pace.has_lane:
            self.gates.want_pause("breaker", f"No endpoint is left that works. {self.pace.broken(now)}.")
        else:
            self.gates.want_pause("check", "No endpoint is left: each is quarantined or no longer on offer.")

    def _want_others(self, now: float) -> None:
        """Pause where nothing is under way and all that is left fits only endpoints that are broken."""
        if not self.dispatcher.flights and self._refilling is None and not self._wants_more(now):
            told = "No endpoint is left that works among those that the next samples fit."
            self.gates.want_pause("breaker", f"{told} {self.pace.broken(now)}.")

    def _hold(self, ready: ReadySample, tag: str) -> int:
        price = self.market.endpoints[tag].price
        return self.bounds.hold(tag, ready.prompt_tokens, ready.max_tokens, price)

    def _launch(
        self, ready: ReadySample, tag: str, manner: Manner, request: AdmitRequest, attempt_id: int, sent_at: float
    ) -> None:
        self.dispatcher.launch(
            Flight(
                ready=ready,
                endpoint=self.market.endpoints[tag],
                manner=manner,
                attempt_id=attempt_id,
                hold_pico=request.hold_pico,
                sent_at=sent_at,
            )
        )

    def _heed(self, admissions: Sequence[Admission]) -> None:
        verdicts = {admission.verdict for admission in admissions}
        if "stop_at" in verdicts:
            self.gates.want_pause("stop_at", LIMIT_REACHED["stop_at"])
        elif "wait" in verdicts:
            self.money_waits = True
        elif "cap" in verdicts and "admit" not in verdicts:
            self.gates.want_pause("cap", LIMIT_REACHED["cap"])

    async def _fetch(self) -> None:
        await self._unpark()
        known = {ready.sample.id for ready in self.ready} | self._parking
        rows = await self.ledger.do(lambda writer: writer.claim(len(known) + READY_ROWS))
        fresh = [sample for sample in rows if sample.id not in known]
        self._is_rendering = bool(fresh)
        for start in range(0, len(fresh), PREPARE_ROWS):
            self.ready.extend(await self.desk.prepare(fresh[start : start + PREPARE_ROWS]))
        if fresh:
            self.queue_is_empty = False
            return
        due_at = await self.ledger.do(lambda writer: writer.next_due_at())
        # A turn that waits for one that is parked waits for its endpoint, too.
        self.queue_is_empty = due_at is None or (due_at >= WAITS and self.parked > 0)
        # What is due now is rendered already, so only a retry that comes due sooner is a reason to look sooner.
        due_in_s = LOOK_AGAIN_S if due_at is None or known else max(0.0, due_at - time.time())
        self._look_at = time.monotonic() + min(LOOK_AGAIN_S, due_in_s)

    def _fetched(self, task: asyncio.Task[None]) -> None:
        self._refilling, self._is_rendering = None, False
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.crashed(error)


def _unpark(tags: Tags | None, writer: LedgerWriter) -> int:
    return writer.unpark(tags, UNPARK_ROWS)
