"""Answers that were filed before their endpoint's constant was known, rebuilt from their kept replies once it is.

A label follows a constant by arithmetic; proof does not: only with the constant undone do the pieces of a stream add
up to their bill.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from eagletui.core.drift import Verdict
from eagletui.engine.answers import AnswerDesk
from eagletui.engine.ledger_thread import LedgerThread
from eagletui.ledger.orders import TokensResult
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.reader_samples import ToRebuild
from eagletui.ledger.writer import LedgerWriter

PART: Final = 20
"""Answers rebuilt at a time, so that live ones wait for no more than these."""

SETTLED: Final = ("served", "inferred")
"""Evidence that no constant changes."""


class _Look(NamedTuple):
    endpoint: str
    verdict: Verdict
    samples: Sequence[int]


class SecondLook:
    """A queue of endpoints to look at again and the task that does it."""

    def __init__(self, path: Path, desk: AnswerDesk, ledger: LedgerThread) -> None:
        """Prepare the queue.

        Args:
            path: the ledger to read kept replies from.
            desk: rebuilds them.
            ledger: where the outcome is written.
        """
        self._path = path
        self._desk = desk
        self._ledger = ledger
        self._asked: asyncio.Queue[_Look] = asyncio.Queue()
        self.waiting = 0
        """Looks asked for and not done."""

    def ask(self, endpoint: str, verdict: Verdict, samples: Sequence[int]) -> None:
        """Have answered samples of one endpoint rebuilt under a verdict."""
        if samples:
            self.waiting += 1
            self._asked.put_nowait(_Look(endpoint, verdict, samples))

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            look = await self._asked.get()
            changed = 0
            with LedgerReader(self._path) as reader:
                for start in range(0, len(look.samples), PART):
                    items = _unsettled(reader, look.samples[start : start + PART])
                    made = await self._desk.again(items, look.verdict)
                    changed += await self._ledger.do(partial(_store, items, made))
            if changed:
                await self._ledger.do(partial(_tell, look.endpoint, changed))
            self.waiting -= 1


def _tell(endpoint: str, changed: int, writer: LedgerWriter) -> None:
    message = f"{endpoint}: {changed} samples have other ids or evidence now that its constant is another."
    writer.event("info", "engine", "rebuilt", message)


def _unsettled(reader: LedgerReader, samples: Sequence[int]) -> list[ToRebuild]:
    found = [item for sample in samples for item in reader.to_rebuild(sample - 1, 1) if item.row.id == sample]
    return [item for item in found if item.tokens is None or item.tokens.evidence not in SETTLED]


def _store(items: Sequence[ToRebuild], made: Sequence[tuple[int, TokensResult]], writer: LedgerWriter) -> int:
    """Write what came out otherwise, and return how many samples that are."""
    before = {item.row.id: item.tokens for item in items}
    changed = 0
    with writer.transaction():
        for sample_id, result in made:
            old = before[sample_id]
            has_same_ids = old is not None and list(old.output_ids or ()) == list(result.output_ids or ())
            if old is None or not has_same_ids or old.evidence != result.evidence:
                writer.store_tokens(sample_id, result)
                changed += 1
    return changed
