"""How busy the engine is, and what follows from it: another receiver, or fewer streams.

A stream proves ids that a whole body cannot, so as many samples are streamed as the CPU carries; the ledger and the
orders of people come first.
"""

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal

from eagletui.engine.fleet import Fleet
from eagletui.engine.ledger_thread import LedgerThread
from eagletui.engine.spread import Manner
from eagletui.ledger.writer import LedgerWriter

LOOK_S: Final = 0.5
LAG_LOOK_S: Final = 0.05

BUSY_CORES: Final = 0.7
"""From here on a process is near the one core that Python can use, and a receiver is worth its memory."""
FULL_CORES: Final = 0.85
FULL_LAG_S: Final = 0.2
"""Orders promise to take effect within 250 ms."""
SATURATED_CORES: Final = 0.95
"""A process that uses so much of its core, or whose loop is so late, holds the pace back."""
FULL_UNJUDGED: Final = 60
BUSY_LOOKS: Final = 10
"""A receiver costs more than a second of CPU to start, which a shorter burst does not give back."""
EASY_PART: Final = 0.75
"""Of each limit; between this and the limit the share stays."""

CUT: Final = 0.7
CUT_EVERY_S: Final = 3.0
GROWTH: Final = 0.05
LEAST_SHARE: Final = 0.02
"""Some are streamed all the same: without them nobody would know when there is room again."""
TOLD_AT: Final = 0.2
"""A share that moved by so much is worth a line in the log."""


@dataclass(frozen=True, slots=True)
class Strain:
    """One look at how busy the processes are."""

    cores: float
    """CPU seconds a second of the busiest process."""
    lag_s: float
    """How late the busiest loop was."""
    unjudged: int

    @property
    def level(self) -> float:
        """1 is as much as should be; the worst of the three counts."""
        return max(self.cores / FULL_CORES, self.lag_s / FULL_LAG_S, self.unjudged / FULL_UNJUDGED)


@dataclass(slots=True)
class StreamShare:
    """The part of the samples that is streamed. Cut at most every few seconds, because streams under way go on."""

    share: float = 1.0
    _moved_at: float = -CUT_EVERY_S
    _owed: float = 0.0

    def look(self, strain: Strain, now: float) -> None:
        """Follow the strain.

        Args:
            strain: as just seen.
            now: monotonic seconds.
        """
        if now - self._moved_at < CUT_EVERY_S:
            return
        if strain.level > 1.0:
            self.share = max(LEAST_SHARE, self.share * CUT)
            self._moved_at = now
        elif strain.level < EASY_PART and self.share < 1.0:
            self.share = min(1.0, self.share + GROWTH)
            self._moved_at = now

    def next(self) -> bool:
        """Tell whether the next sample is streamed, so that the share comes out evenly."""
        self._owed += self.share
        if self._owed < 1.0 - 1e-9:
            return False
        self._owed -= 1.0
        return True

    def manner(self, best: Manner) -> Manner:
        """Return how the next sample is asked: as `best` says, or whole.

        Where logprobs prove the ids, a stream adds nothing, so it is the first to go.
        """
        if not best.stream or self.share >= 1.0:
            return best
        if best.rung == "logprobs":
            return Manner("logprobs", stream=False, logprobs=True)
        return best if self.next() else Manner("text", stream=False, logprobs=False)


@dataclass(slots=True)
class Load:
    """Looks at the processes of an engine, starts receivers and moves the share."""

    fleet: Fleet
    ledger: LedgerThread
    stream: Literal["auto", "always", "never"]
    receivers: Literal["auto"] | int
    streams: Callable[[], bool]
    """Some endpoint is asked for streams."""
    share: StreamShare = field(default_factory=StreamShare)
    cores: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    _lag_s: float = 0.0
    _told: float = 1.0
    _cpu_s: float = field(default_factory=time.process_time)
    _looked_at: float = field(default_factory=time.monotonic)
    _busy_looks: int = 0
    _saturated_looks: int = 0

    def begin(self) -> None:
        """Start the receivers that the config asks for."""
        if self.receivers != "auto":
            for slot in range(1, self.receivers + 1):
                self.fleet.start(slot)

    async def run(self) -> None:
        """Look until cancelled."""
        clock = asyncio.get_running_loop().time
        while True:
            due = clock() + LOOK_S
            while (now := clock()) < due:
                await asyncio.sleep(LAG_LOOK_S)
                self._lag_s = max(self._lag_s, clock() - now - LAG_LOOK_S)
            self.fleet.require_life()
            await self._look()

    @property
    def is_saturated(self) -> bool:
        """The CPU holds the pace back, as two looks in a row saw."""
        return self._saturated_looks >= 2

    def _note(self, strain: Strain) -> None:
        is_saturated = strain.cores >= SATURATED_CORES or strain.lag_s >= FULL_LAG_S
        self._saturated_looks = self._saturated_looks + 1 if is_saturated else 0

    async def _look(self) -> None:
        now, cpu_s = time.monotonic(), time.process_time()
        own = (cpu_s - self._cpu_s) / (now - self._looked_at)
        remotes = list(self.fleet.remotes.values())
        strain = Strain(
            cores=max([own, *(remote.cores for remote in remotes)]),
            lag_s=max([self._lag_s, *(remote.last.lag_s for remote in remotes)]),
            unjudged=self.fleet.unjudged,
        )
        self._cpu_s, self._looked_at, self._lag_s = cpu_s, now, 0.0
        self._note(strain)
        if self._helps(strain):
            self.fleet.start(len(self.fleet.remotes) + 1)
            return
        if self.stream == "auto" and self.streams():
            self.share.look(strain, now)
            await self._tell()

    def _helps(self, strain: Strain) -> bool:
        """Tell whether another receiver is due: busy for seconds on end, and a core for it."""
        remotes = self.fleet.remotes.values()
        if self.receivers != "auto" or any(not remote.ready for remote in remotes) or self.fleet.deaths:
            return False
        is_busy = strain.cores >= BUSY_CORES or strain.unjudged >= FULL_UNJUDGED
        self._busy_looks = self._busy_looks + 1 if is_busy else 0
        if self._busy_looks < BUSY_LOOKS or len(remotes) >= self.cores - 1:
            return False
        self._busy_looks = 0
        return True

    async def _tell(self) -> None:
        share = self.share.share
        if abs(share - self._told) >= TOLD_AT or (share >= 1.0) != (self._told >= 1.0):
            self._told = share
            await self.ledger.do(partial(_write_share, share))


def _write_share(share: float, writer: LedgerWriter) -> None:
    if share >= 1.0:
        sentence = "Every sample is streamed again where its endpoint can."
    else:
        sentence = (
            f"The CPU carries streams for about {share:.0%} of the samples; the others are asked for in one piece, and "
            "their ids can be counted but not proved by their pieces."
        )
    writer.event("info", "engine", "stream", sentence)
