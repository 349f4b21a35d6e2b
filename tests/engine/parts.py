"""Single parts of an engine, put together without the rest."""

import json
from typing import cast

from eagletui.engine.admission import Admissions
from eagletui.engine.answers import AnswerDesk
from eagletui.engine.budget import PromptBounds
from eagletui.engine.dispatch import Dispatcher
from eagletui.engine.gates import Gates
from eagletui.engine.ledger_thread import LedgerThread
from eagletui.engine.load import StreamShare
from eagletui.engine.market import Market
from eagletui.engine.pace import Pace


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


def offer_of_maker(usd_per_token: str) -> bytes:
    """Return the body of `/endpoints` with one endpoint, `maker`, at one price for prompt and completion."""
    pricing = {"prompt": usd_per_token, "completion": usd_per_token, "request": "0"}
    records = [{"tag": "maker", "provider_name": "Maker", "pricing": pricing}]
    return json.dumps({"data": {"endpoints": records}}).encode()
