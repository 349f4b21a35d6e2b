"""How fast, and where to: one adaptive limit per endpoint, and a choice among those that are open.

The limit of an endpoint grows once it was used up and replies begin (to its double until the first cut, then by one),
is cut once per burst of 429, and waits as long as `Retry-After` says. An endpoint that fails again and again is asked
by one request at a time; one that gave nothing for minutes is taken out (`breaker.py`).

Each request is pinned to one endpoint, chosen by smooth weighted round robin over those that are open. The weight is
that of `spread.py`, times, where a 429 has shown the limit, how much of its last tenth is free.

Times are the caller's monotonic seconds.
"""

import math
import random
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from eagletui.engine.breaker import Breaker

SPEED_ANSWERS: Final = 5
"""From so many answers on an endpoint's speed is known."""
SPEED_PART: Final = 0.1
"""Weight of the newest answer in an endpoint's speed."""

START_LIMIT: Final = 64.0
RAMP_PER_S: Final = 250.0
"""So many more requests than a moment ago may be under way each second: each costs a handshake, two commits and a
prompt sent, which a core must carry beside the replies."""
CUT: Final = 0.7
HEADROOM_PART: Final = 0.1
"""An endpoint whose limit a 429 has shown gets less of the rest once less than this part of it is free."""
JITTER: Final = 0.1
"""Waits are longer by up to this part, by chance, so that the hosts of a fleet do not come back together."""
FAULT_PAUSE_S: Final = 10.0
"""After a server fault an endpoint does not grow for so long."""
THROTTLE_S: Final = 1.0
"""First wait of an endpoint after a 429 without `Retry-After`; doubles with each burst until a reply begins."""
THROTTLE_MAX_S: Final = 8.0
"""No longer, so that an endpoint that takes one request in three is asked often enough not to be taken for broken."""
UNREACHABLE_S: Final = 1.0
"""First wait of an endpoint that cannot be reached or only fails; doubles with each, up to `UNREACHABLE_MAX_S`."""
UNREACHABLE_MAX_S: Final = 30.0
FAULTS_IN_A_ROW: Final = 20
"""After so many server faults without a reply in between, one request at a time looks whether there is a point."""

BACKOFF_S: Final = 0.5
BACKOFF_MAX_S: Final = 60.0


@dataclass(slots=True)
class Speed:
    """Output tokens a second of one request, smoothed over answers."""

    answers: int = 0
    _mean: float = 0.0

    def learn(self, tokens_per_s: float) -> None:
        """Take in an answer."""
        self.answers += 1
        self._mean += (tokens_per_s - self._mean) * max(SPEED_PART, 1.0 / self.answers)

    @property
    def tokens_per_s(self) -> float | None:
        """None: too few answers yet."""
        return self._mean if self.answers >= SPEED_ANSWERS else None


def backoff_s(seed: int, sample_key: str, attempts: int) -> float:
    """Return the wait before the next attempt: exponential with jitter, the same for the same run and sample.

    Args:
        seed: of the run.
        sample_key: of the sample; unlike its row, another one in each part of a job that several hosts share.
        attempts: made so far, at least 1.
    """
    dice = random.Random(f"{seed}:{sample_key}:{attempts}")
    return min(BACKOFF_MAX_S, BACKOFF_S * 2.0 ** (attempts - 1)) * dice.uniform(0.5, 1.0)


@dataclass(slots=True)
class Lane:
    """One endpoint's share of the pace."""

    tag: str
    weight: float
    limit: float
    """How many requests may be in flight."""
    in_flight: int = 0
    blocked_until: float = 0.0
    quarantined: bool = False
    offered: bool = True
    """The provider still lists it."""
    growing: bool = True
    """No 429 so far: the limit may grow fast."""
    full_limit: float = 0.0
    """The limit when it was last used up, which is where it may grow from: replies to a burst begin all at once."""
    cut_at: float = 0.0
    throttled: int = 0
    """Bursts of 429 without `Retry-After` since the last reply that began."""
    fault_at: float = -FAULT_PAUSE_S
    faults: int = 0
    """Server faults since the last reply that began."""
    silent: int = 0
    """How often it was given a wait for that; until a reply begins, one request at a time looks whether it is back."""
    look_at: float | None = None
    """When the request was chosen that looks whether it is back; None: none is under way."""
    credit: float = 0.0
    """Smooth weighted round robin: who has waited longest for its share."""
    speed: Speed = field(default_factory=Speed)
    breaker: Breaker = field(default_factory=Breaker)

    @property
    def is_usable(self) -> bool:
        """On offer, and no person or check has closed it."""
        return self.offered and not self.quarantined

    @property
    def is_doubted(self) -> bool:
        """One request at a time looks whether it is back; those that were under way before are not counted."""
        return self.silent > 0 or self.breaker.is_broken

    def is_open(self, now: float) -> bool:
        """Tell whether one more request may go here."""
        has_room = self.look_at is None if self.is_doubted else self.in_flight < int(self.limit)
        return self.is_usable and now >= self.blocked_until and has_room

    @property
    def pull(self) -> float:
        """Weight as of now. A limit that no 429 has shown says nothing about the room there is."""
        if self.growing:
            return self.weight
        free = 1.0 - self.in_flight / self.limit
        return self.weight * min(1.0, free / HEADROOM_PART)


class Pace:
    """The lanes of a run and their common limit."""

    def __init__(self, weights: dict[str, float], max_in_flight: int, dice: random.Random | None = None) -> None:
        """Open a lane per endpoint.

        Args:
            weights: by tag, from `spread`.
            max_in_flight: limit over all lanes.
            dice: for jitter; None: other ones in each process.
        """
        self.max_in_flight = max_in_flight
        self.files_room: Callable[[], int] = lambda: sys.maxsize
        """How many requests the limit of open files leaves room for."""
        self.lanes = {tag: Lane(tag, weight, START_LIMIT) for tag, weight in weights.items()}
        self.news: list[str] = []
        """Lines for the log that nobody has written yet: endpoints taken out of the rotation, or back in it."""
        self._dice = dice or random.Random()
        self._ramp = START_LIMIT
        self._ramp_at = 0.0

    def reweigh(self, weights: dict[str, float]) -> None:
        """Take over weights after another look at the offer: new endpoints get a lane, missing ones are closed."""
        for tag, weight in weights.items():
            self.lanes.setdefault(tag, Lane(tag, weight, START_LIMIT)).weight = weight
        for tag, lane in self.lanes.items():
            lane.offered = tag in weights

    @property
    def in_flight(self) -> int:
        """Requests under way over all lanes."""
        return sum(lane.in_flight for lane in self.lanes.values())

    @property
    def most(self) -> int:
        """How many requests may be under way at all."""
        return min(self.max_in_flight, self.files_room())

    @property
    def speeds(self) -> Mapping[str, float | None]:
        """Output tokens a second of one request, by tag."""
        return {tag: lane.speed.tokens_per_s for tag, lane in self.lanes.items()}

    @property
    def has_lane(self) -> bool:
        """Tell whether any endpoint is left, busy or not."""
        return any(lane.is_usable for lane in self.lanes.values())

    @property
    def has_working_lane(self) -> bool:
        """Tell whether any of those that are left is not broken."""
        return any(lane.is_usable and not lane.breaker.is_broken for lane in self.lanes.values())

    def broken(self, now: float) -> str:
        """Say what is wrong with the endpoints that are left and broken."""
        broken = [lane for lane in self.lanes.values() if lane.is_usable and lane.breaker.is_broken]
        return "; ".join(f"{lane.tag}: {lane.breaker.story(now)}" for lane in broken)

    def has_open_lane(self, now: float) -> bool:
        """Tell whether any endpoint takes one more request."""
        return any(lane.is_open(now) for lane in self.lanes.values())

    def is_full(self, now: float) -> bool:
        """Tell whether as many requests are under way as may be, over all endpoints."""
        return self.in_flight >= self._room(now)

    def standing(self, now: float) -> dict[str, dict[str, object]]:
        """Return what people should know of each endpoint, by tag, for the engine's sign of life."""
        return {
            tag: {
                "offered": lane.offered,
                "in_flight": lane.in_flight,
                "limit": int(min(lane.limit, self.most)),
                "blocked_s": round(max(0.0, lane.blocked_until - now), 1),
                "broken_s": None if (at := lane.breaker.broken_at) is None else round(now - at, 1),
                "failures": lane.breaker.failures,
                "tokens_per_s": (speed := lane.speed.tokens_per_s) and round(speed, 1),
            }
            for tag, lane in self.lanes.items()
        }

    def choose(self, now: float, avoid: Iterable[str] = (), never: Iterable[str] = ()) -> str | None:
        """Pick the next endpoint and count a request on it, or None when there is no room.

        Args:
            now: monotonic seconds.
            avoid: tags to pass over while another is open.
            never: tags that cannot take the request.
        """
        is_full = self.is_full(now)
        unable = set(never)
        lanes = [lane for lane in self.lanes.values() if lane.is_open(now) and lane.tag not in unable]
        if is_full or not lanes:
            return None
        shunned = set(avoid)
        lanes = [lane for lane in lanes if lane.tag not in shunned] or lanes
        pulls = {lane.tag: lane.pull for lane in lanes}
        for lane in lanes:
            lane.credit += pulls[lane.tag]
        best = max(lanes, key=lambda lane: lane.credit)
        best.credit -= sum(pulls.values())
        best.in_flight += 1
        best.look_at = now if best.is_doubted else None
        return best.tag

    def _room(self, now: float) -> int:
        """Return how many may be under way now: what there may be a little later follows what there is."""
        step = RAMP_PER_S * max(0.0, now - self._ramp_at)
        goal = self.in_flight + START_LIMIT
        self._ramp += min(max(-step, goal - self._ramp), step)
        self._ramp_at = max(now, self._ramp_at)
        return min(self.most, int(self._ramp))

    def leave(self, tag: str, sent_at: float = math.inf) -> None:
        """Count a request as ended.

        Args:
            tag: of the endpoint.
            sent_at: when it was sent, after it was chosen; left out: it never was.
        """
        lane = self.lanes[tag]
        lane.in_flight -= 1
        if lane.look_at is not None and sent_at >= lane.look_at:
            lane.look_at = None

    def accepted(self, tag: str, now: float) -> None:
        """An endpoint began to answer."""
        lane = self.lanes[tag]
        lane.silent = lane.faults = lane.throttled = 0
        if lane.in_flight >= int(lane.limit) - 1:
            lane.full_limit = lane.limit
        goal = 2.0 * lane.full_limit if lane.growing else lane.full_limit + 1.0
        if lane.limit < min(goal, self.most) and now - lane.fault_at >= FAULT_PAUSE_S:
            lane.limit += 1.0 if lane.growing else 1.0 / lane.limit

    def answered(self, tag: str, now: float, tokens_per_s: float | None) -> None:
        """An endpoint gave an answer.

        Args:
            tag: of the endpoint.
            now: monotonic seconds.
            tokens_per_s: output tokens a second of this request; None: not known.
        """
        lane = self.lanes[tag]
        if tokens_per_s is not None:
            lane.speed.learn(tokens_per_s)
        mended = lane.breaker.succeeded(now)
        if mended is not None:
            lane.limit, lane.growing = min(lane.limit, START_LIMIT), True
            self.news.append(f"{tag} {mended}")

    def throttled(self, tag: str, sent_at: float, now: float, retry_after_s: float | None) -> None:
        """An endpoint said 429 or 503. One burst is one cut: requests sent before the last cut do not cut again."""
        lane = self.lanes[tag]
        lane.growing = False
        wait_s = THROTTLE_S if retry_after_s is None else retry_after_s
        if sent_at >= lane.cut_at:
            lane.limit = max(1.0, min(lane.limit, float(max(1, lane.in_flight))) * CUT)
            lane.cut_at, lane.full_limit = now, 0.0
            if retry_after_s is None:
                wait_s = min(THROTTLE_MAX_S, THROTTLE_S * 2.0**lane.throttled)
                lane.throttled += 1
        self._block(lane, now, wait_s)

    def faulted(self, tag: str, now: float) -> None:
        """An endpoint failed in another way."""
        lane = self.lanes[tag]
        lane.fault_at = now
        lane.faults += 1
        if lane.faults >= FAULTS_IN_A_ROW:
            self._wait_longer(lane, now)

    def unreachable(self, tag: str, now: float) -> None:
        """No connection to an endpoint."""
        self._wait_longer(self.lanes[tag], now)

    def failed(
        self,
        tag: str,
        what: str,
        sent_at: float,
        now: float,
        *,
        awaits: Callable[[float], bool],
        at_once: bool = False,
    ) -> None:
        """Note a failure that is the endpoint's; see `Breaker.failed`. One that gives nothing is taken out."""
        lane = self.lanes[tag]
        was_broken = lane.breaker.is_broken
        if not lane.breaker.failed(what, sent_at, now, awaits=awaits, at_once=at_once):
            return
        pause_s = lane.breaker.pause_s
        self._block(lane, now, pause_s)
        if not was_broken:
            story = lane.breaker.story(now)
            self.news.append(
                f"{tag} is taken out of the rotation: {story}. One request looks again in {pause_s:.0f} s."
            )

    def mend(self) -> None:
        """Put every broken endpoint back: a person says to go on."""
        for lane in self.lanes.values():
            if lane.breaker.is_broken:
                lane.blocked_until, lane.silent, lane.faults, lane.throttled = 0.0, 0, 0, 0
                lane.limit, lane.growing = min(lane.limit, START_LIMIT), True
            lane.breaker.reset()

    def _wait_longer(self, lane: Lane, now: float) -> None:
        """Wait longer and longer for an endpoint that gives nothing; a burst of failures is one."""
        if now >= lane.blocked_until:
            self._block(lane, now, min(UNREACHABLE_MAX_S, UNREACHABLE_S * 2.0**lane.silent))
            lane.silent += 1

    def _block(self, lane: Lane, now: float, wait_s: float) -> None:
        """Send nothing to an endpoint for at least so long."""
        lane.blocked_until = max(lane.blocked_until, now + wait_s * self._dice.uniform(1.0, 1.0 + JITTER))
