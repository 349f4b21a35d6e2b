"""Take one reply: receive it, keep it on disk, say what it is. The same in the engine and in its receivers."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from eagletui.core.drift import Verdict
from eagletui.engine.answers import AnswerDesk, Judged, ReadySample
from eagletui.engine.spool import Kept, Spool, keep, unkeep
from eagletui.providers.base import ChatRequest, OnHeaders, Provider, ProviderFailure

NEVER_BEGUN: Final = ProviderFailure("aborted", "Aborted on request before anything was sent.", void=True)
"""Of a request whose task was cancelled before its first step, so that no byte went out."""


@dataclass(frozen=True, slots=True)
class Order:
    """One request whose money is held."""

    attempt_id: int
    request: ChatRequest
    ready: ReadySample
    endpoint: str
    """Tag of the one asked."""
    verdict: Verdict
    """What the endpoint's answers said when it was asked."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What came of a request: an answer that was judged, or a failure."""

    kept: Kept | None
    """None where no body began."""
    judged: Judged | None
    failure: ProviderFailure | None


Received = Callable[[], None]
"""Called once the reply is all here, before it is judged."""


@dataclass(slots=True)
class Taker:
    """Takes replies in this process."""

    provider: Provider
    desk: AnswerDesk
    spool: Spool
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    """What is known of endpoints since their orders were given, by tag."""

    async def take(self, order: Order, on_headers: OnHeaders, received: Received) -> Taken:
        """Send a request and take its reply; cancelling breaks it off until `received` is called."""
        try:
            raw = await self.provider.send(order.request, on_headers)
        except ProviderFailure as failure:
            return Taken(None, None, failure)
        finally:
            received()
        kept = keep(order.attempt_id, raw)
        await self.spool.put(kept)
        try:
            verdict = self.verdicts.get(order.endpoint, order.verdict)
            return Taken(kept, await self.desk.judge(raw, order.ready, order.endpoint, verdict), None)
        except ProviderFailure as failure:
            return Taken(kept, None, failure)

    async def take_kept(self, kept: Kept, order: Order) -> Taken:
        """Judge a reply that another process received and did not live to report."""
        try:
            return Taken(kept, await self.desk.judge(unkeep(kept), order.ready, order.endpoint, order.verdict), None)
        except ProviderFailure as failure:
            return Taken(kept, None, failure)

    def filed(self, attempt_ids: Iterable[int]) -> None:
        """Hear what the ledger has."""
        self.spool.forget(attempt_ids)
