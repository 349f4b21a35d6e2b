"""Answers that were filed before their endpoint's constant or profile was known, rebuilt from kept replies once it is.

A label follows a constant by arithmetic; proof does not: only with the constant undone do the pieces of a stream add
up to their bill. Another loss profile gives other texts, so what those answers counted is counted anew.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from eagletui.core.drift import Verdict
from eagletui.engine.answers import AnswerDesk, Remade
from eagletui.engine.ledger_thread import LedgerThread
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
    recount: Callable[[str, Remade], None] | None
    """Told of each answer; then it is every one of them, whatever its evidence."""
    then: Callable[[LedgerWriter], None] | None
    """Written once all of them are."""


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

    def ask(
        self,
        endpoint: str,
        verdict: Verdict,
        samples: Sequence[int],
        recount: Callable[[str, Remade], None] | None = None,
        then: Callable[[LedgerWriter], None] | None = None,
    ) -> None:
        """Have answered samples of one endpoint rebuilt under a verdict.

        Args:
            endpoint: the one that answered.
            verdict: what its answers say.
            samples: rows on disk.
            recount: told of each answer after it was written, where their counts are to be taken anew.
            then: written once all are made: an engine that dies before it has them made again by the next one.
        """
        if samples:
            self.waiting += 1
            self._asked.put_nowait(_Look(endpoint, verdict, samples, recount, then))

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            look = await self._asked.get()
            changed = 0
            with LedgerReader(self._path) as reader:
                for start in range(0, len(look.samples), PART):
                    items = _read(reader, look.samples[start : start + PART])
                    if look.recount is None:
                        items = [i for i in items if i.tokens is None or i.tokens.evidence not in SETTLED]
                    made = await self._desk.again(items, look.verdict)
                    changed += await self._ledger.do(partial(_store, items, made))
                    if look.recount is not None:
                        for one in made:
                            look.recount(look.endpoint, one)
            if look.then is not None:
                await self._ledger.do(look.then)
            if changed:
                what = "constant" if look.recount is None else "loss profile"
                await self._ledger.do(partial(_tell, look.endpoint, changed, what))
            self.waiting -= 1


def _tell(endpoint: str, changed: int, what: str, writer: LedgerWriter) -> None:
    message = f"{endpoint}: {changed} samples have other ids or evidence now that its {what} is another."
    writer.event("info", "engine", "rebuilt", message)


def _read(reader: LedgerReader, samples: Sequence[int]) -> list[ToRebuild]:
    return [item for sample in samples for item in reader.to_rebuild(sample - 1, 1) if item.row.id == sample]


def _store(items: Sequence[ToRebuild], made: Sequence[Remade], writer: LedgerWriter) -> int:
    """Write what came out otherwise, and return how many samples that are."""
    before = {item.row.id: item for item in items}
    changed = 0
    with writer.transaction():
        for one in made:
            if not _is_as_before(before[one.sample_id], one):
                writer.store_tokens(one.sample_id, one.result)
                changed += 1
    return changed


def _is_as_before(item: ToRebuild, made: Remade) -> bool:
    old, label, new = item.tokens, item.label, made.result
    if old is None or label is None:
        return False
    same_ids = list(old.output_ids or ()) == list(new.output_ids or ()) and old.raw == new.raw
    figures = (label.usability, label.excess, label.plain_excess) == (new.usability, new.excess, new.plain_excess)
    return same_ids and old.evidence == new.evidence and figures
