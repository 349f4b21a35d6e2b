"""Single parts of an engine, put together without the rest."""

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
