"""Replies that processes of an engine that died had received: filed before anything is bought again."""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from eagletui.engine.answers import AnswerDesk
from eagletui.engine.dispatch import Dispatcher, Flight
from eagletui.engine.fleet import Fleet
from eagletui.engine.ledger_thread import LedgerThread
from eagletui.engine.market import Market, unlisted
from eagletui.engine.spool import read_segment, segments
from eagletui.engine.spread import Manner
from eagletui.engine.steering import Steering
from eagletui.ledger.orders import SpooledFor
from eagletui.ledger.writer import LedgerWriter


@dataclass(slots=True)
class KeptReplies:
    """The segments of a spool that an engine found when it started."""

    spool_dir: Path
    ledger: LedgerThread
    desk: AnswerDesk
    market: Market
    dispatcher: Dispatcher
    fleet: Fleet
    steering: Steering
    _paths: list[Path] = field(default_factory=list)
    _landed: int = 0

    async def land(self) -> None:
        """Judge every reply that the ledger lacks, and hand it over to be filed; orders are heeded meanwhile."""
        self._paths = segments(self.spool_dir)
        for path in self._paths:
            for kept in read_segment(path):
                found = await self.ledger.do(partial(_spooled_for, kept.attempt_id))
                if found is None or found.is_known:
                    continue
                (ready,) = await self.desk.prepare([found.sample])
                endpoint = self.market.endpoints.get(found.endpoint) or unlisted(found.endpoint)
                flight = Flight(
                    ready=ready,
                    endpoint=endpoint,
                    manner=Manner("text", stream=kept.encoding == "sse", logprobs=False),
                    attempt_id=kept.attempt_id,
                    hold_pico=found.hold_pico,
                    sent_at=0.0,
                    generation_id=kept.generation_id,
                )
                self.dispatcher.land(flight, await self.fleet.take_kept(kept, self.dispatcher.order(flight)))
                self._landed += 1
                await self.steering.poll()

    async def forget(self) -> None:
        """Delete the segments, once all that was handed over is filed."""
        for path in self._paths:
            path.unlink(missing_ok=True)
        if self._landed:
            message = f"{self._landed} replies that had arrived when the engine died were found on disk and kept."
            await self.ledger.do(lambda writer: writer.event("info", "engine", "spool", message))


def _spooled_for(attempt_id: int, writer: LedgerWriter) -> SpooledFor | None:
    return writer.spooled_for(attempt_id)
