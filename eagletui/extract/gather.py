"""Turn samples into sealed shards: the part that a run and a file of ids share."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from eagletui.core.features import Stored
from eagletui.core.text import clean_line
from eagletui.extract.computing import Backend
from eagletui.extract.sealer import Report, Sealer
from eagletui.extract.shards import IdsSample, LostInFp8, OpenShard

WINDOW_SAMPLES: Final = 64
"""Samples planned together: enough to fill rows, few enough to stop soon."""

_REPORTED_REFUSALS: Final = 20


@dataclass(slots=True)
class Progress:
    """What was done so far, readable from any thread."""

    samples: int = 0
    """Computed."""
    rows: int = 0
    """Their tokens."""
    refused: int = 0
    """Samples that got no features."""
    compute_s: float = 0.0
    """Time in forwards, or in waiting for a server."""

    @property
    def rows_per_s(self) -> float:
        """Tokens per second of computation."""
        return self.rows / self.compute_s if self.compute_s else 0.0


@dataclass(slots=True)
class Gatherer:
    """Feeds computed records into the open shard and hands full ones over."""

    backend: Backend
    report: Report
    stored: Stored
    """How states lie on disk."""
    capacity_rows: int
    """Of a shard."""
    after_sample: Callable[[Progress], None] = lambda _: None
    """Called after each sample, for progress bars."""
    progress: Progress = field(default_factory=Progress)
    refused: set[str] = field(default_factory=set)
    """Keys that will not be tried again by this process."""
    _open: OpenShard | None = None
    _opened_at: float = 0.0

    @property
    def open_for_s(self) -> float:
        """How long the oldest record has been waiting for its shard to be sealed; 0 where none is."""
        return 0.0 if self._open is None else time.monotonic() - self._opened_at

    def add(self, samples: Sequence[IdsSample], sealer: Sealer, go_on: Callable[[], bool]) -> None:
        """Compute samples and gather their records.

        Args:
            samples: a window.
            sealer: takes full shards.
            go_on: asked before each forward; False leaves the rest undone.
        """
        started = time.perf_counter()
        for computed in self.backend.compute(samples, go_on):
            self.progress.compute_s += time.perf_counter() - started
            if computed.hidden_states is None:
                self._refuse(computed.sample, str(computed.refusal))
            else:
                rows = len(computed.sample.token_ids)
                if self._open is not None and not self._open.has_room(rows):
                    self.seal_open(sealer)
                if self._open is None:
                    facts = self.backend.facts
                    self._open = OpenShard(facts.hidden_size, facts.dtype, self.stored, self.capacity_rows)
                    self._opened_at = time.monotonic()
                try:
                    self._open.add(computed.sample, computed.hidden_states)
                except LostInFp8 as error:
                    self._refuse(computed.sample, str(error))
                else:
                    self.progress.samples += 1
                    self.progress.rows += rows
            self.after_sample(self.progress)
            started = time.perf_counter()

    def seal_open(self, sealer: Sealer) -> None:
        """Hand the open shard over, full or not."""
        if self._open is not None and self._open.samples:
            sealer.submit(self._open)
        self._open = None

    def _refuse(self, sample: IdsSample, why: str) -> None:
        self.refused.add(sample.key)
        self.progress.refused += 1
        if self.progress.refused <= _REPORTED_REFUSALS:
            self.report("error", "sample_refused", f"{clean_line(sample.key, 80)} gets no features: {why}")
        elif self.progress.refused == _REPORTED_REFUSALS + 1:
            self.report("error", "sample_refused", "More samples get no features; they are counted, not listed.")
