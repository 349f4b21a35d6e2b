"""Single parts of an engine, put together without the rest."""

import json
from types import SimpleNamespace
from typing import cast

from eagletui.core.drift import Verdict
from eagletui.engine.admission import Admissions
from eagletui.engine.answers import AnswerDesk, ReadySample
from eagletui.engine.budget import PromptBounds
from eagletui.engine.dispatch import Dispatcher, Flight, RetryRule
from eagletui.engine.fleet import Fleet
from eagletui.engine.gates import Gates
from eagletui.engine.ledger_thread import LedgerThread
from eagletui.engine.load import StreamShare
from eagletui.engine.market import Market, unlisted
from eagletui.engine.pace import Pace
from eagletui.engine.spread import Manner
from eagletui.providers.base import Provider


def admissions_of(
    ledger: LedgerThread, gates: Gates, pace: Pace, *, unjudged: int = 0, cpu_is_full: bool = False
) -> Admissions:
    """Make the path from the queue to the wire, which ends where a request would go out."""

    def crashed(error: BaseException) -> None:
        raise error

    return Admissions(
        ledger=ledger,
        gates=gates,
        pace=pace,
        market=Market("auto"),
        desk=cast(AnswerDesk, None),
        share=StreamShare(),
        unjudged=lambda: unjudged,
        cpu_is_full=lambda: cpu_is_full,
        dispatcher=cast(Dispatcher, None),
        bounds=PromptBounds(),
        avoid={},
        crashed=crashed,
    )


def dispatcher_of(pace: Pace, ledger: LedgerThread | None = None) -> Dispatcher:
    """Make what keeps the flights, without a provider to fly to."""
    return Dispatcher(
        provider=cast(Provider, None),
        model_id="m",
        pace=pace,
        fleet=cast(Fleet, None),
        ledger=cast(LedgerThread, ledger),
        retry=RetryRule(7, 3),
        landed=lambda landing: None,
        crashed=lambda error: None,
        verdict_of=lambda tag: Verdict(),
    )


def flight_to(tag: str, sent_at: float, attempt_id: int = 1, sample_id: int = 1) -> Flight:
    """Make a request under way of which nothing but its sample's row is known."""
    manner = Manner("text", stream=False, logprobs=False)
    ready = cast(ReadySample, SimpleNamespace(sample=SimpleNamespace(id=sample_id)))
    return Flight(ready, unlisted(tag), manner, attempt_id, hold_pico=0, sent_at=sent_at)


def offer_of_maker(usd_per_token: str) -> bytes:
    """Return the body of `/endpoints` with one endpoint, `maker`, at one price for prompt and completion."""
    pricing = {"prompt": usd_per_token, "completion": usd_per_token, "request": "0"}
    records = [{"tag": "maker", "provider_name": "Maker", "pricing": pricing}]
    return json.dumps({"data": {"endpoints": records}}).encode()
