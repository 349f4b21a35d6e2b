"""Read everything a report shows."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from eagletui.core.billing import EndpointBill
from eagletui.core.errors import InputError
from eagletui.core.verdicts import Basis
from eagletui.ledger.reader import Attention, LedgerReader
from eagletui.ledger.reader_spend import SpendReader
from eagletui.ledger.rows import FindingRow, PriceRow, ShardRow, SourceRow, TickRow, VerdictRow
from eagletui.ledger.snapshot import Snapshot
from eagletui.ledger.verdict_basis import read_basis

POINTS: Final = 1_200
"""Most ticks that a plot is made of."""
LATENCIES: Final = 10_000
_WORTH_A_LOOK: Final = 30
_MOST_DOUBTFUL: Final = 20_000
"""Samples read one by one for what a verdict rests on; beyond it the report says so instead."""


@dataclass(frozen=True, slots=True)
class Story:
    """A run at one moment."""

    snapshot: Snapshot
    ticks: Sequence[TickRow]
    """Of the whole run, thinned."""
    tick_every_s: int
    """One tick in so many seconds was read."""
    latencies_s: Sequence[float]
    """Of the last answers."""
    drifts: Mapping[str, Mapping[int, int]]
    """Samples by drift other than 0, by endpoint, of the last ones that drift."""
    findings: Sequence[FindingRow]
    """Open and closed, oldest first."""
    verdicts: Sequence[VerdictRow]
    """Oldest first."""
    bases: Mapping[str, Basis | None]
    """What a verdict rests on, by data set with answers; None where too many samples are in doubt to read."""
    prices: Mapping[str, PriceRow]
    """The last one seen, by endpoint."""
    bills: Sequence[EndpointBill]
    attention: Sequence[Attention]
    shards: Sequence[ShardRow]
    sources: Sequence[SourceRow]


class _TooManyError(Exception):
    """More samples are in doubt than a report reads."""


def read_story(path: Path, clock: Callable[[], float]) -> Story:
    """Read a run, alive or finished.

    Args:
        path: the ledger; opened for reading only.
        clock: Unix seconds.

    Raises:
        LedgerError: absent, damaged or of another version.
    """
    with ExitStack() as stack:
        reader = stack.enter_context(LedgerReader(path, clock))
        stack.enter_context(reader.moment())
        snapshot = reader.snapshot()
        run = snapshot.run
        since = run.started_at or run.created_at
        every = reader.tick_step(since, POINTS)
        story = Story(
            snapshot=snapshot,
            ticks=reader.ticks(since, every),
            tick_every_s=every,
            latencies_s=reader.latencies(LATENCIES),
            drifts=reader.drift_counts(),
            findings=reader.findings(),
            verdicts=reader.verdicts(),
            bases={figures.name: _basis(path, figures.name) for figures in snapshot.datasets if figures.evidence},
            prices={price.endpoint: price for price in reader.prices()},
            bills=stack.enter_context(SpendReader(path, clock)).bills(),
            attention=reader.attention(_WORTH_A_LOOK),
            shards=reader.shards(),
            sources=reader.sources(),
        )
    return story


def _basis(path: Path, dataset: str) -> Basis | None:
    def step(number: int) -> None:
        if number > _MOST_DOUBTFUL:
            raise _TooManyError

    try:
        return read_basis(path, dataset, step)
    except (_TooManyError, InputError):
        # InputError: all of its answers are set aside, so that a verdict has nothing to rest on.
        return None
