"""Turn samples into sealed shards: the part that a run and a file of ids share."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from eagletui.core.reports import Report
from eagletui.core.text import clean_line
from eagletui.extract.computing import Backend
from eagletui.extract.open_shard import LostInFp8
from eagletui.extract.shard_writer import ShardWriter
from eagletui.extract.shards import IdsSample

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
    """Has samples computed and feeds their records to the writer of shards."""

    backend: Backend
    report: Report
    after_sample: Callable[[Progress], None] = lambda _: None
    """Called after each sample, for progress bars."""
    progress: Progress = field(default_factory=Progress)
    refused: set[str] = field(default_factory=set)
    """Keys that will not be tried again by this process."""

    def add(self, samples: Sequence[IdsSample], writer: ShardWriter, go_on: Callable[[], bool]) -> None:
        """Compute samples and gather their records.

        Args:
            samples: a window.
            writer: takes the records.
            go_on: asked before each forward; False leaves the rest undone.

        Raises:
            ModelError: nothing more can be computed.
            RunError: a shard could not be written.
        """
        started = time.perf_counter()
        for computed in self.backend.compute(samples, go_on):
            self.progress.compute_s += time.perf_counter() - started
            if computed.hidden_states is None:
                self._refuse(computed.sample, str(computed.refusal))
            else:
                try:
                    writer.add(computed.sample, computed.hidden_states)
                except LostInFp8 as error:
                    self._refuse(computed.sample, str(error))
                else:
                    self.progress.samples += 1
                    self.progress.rows += len(computed.sample.token_ids)
            self.after_sample(self.progress)
            del computed  # it holds the rows of a whole forward, which would lie in memory during the next one
            started = time.perf_counter()

    def _refuse(self, sample: IdsSample, why: str) -> None:
        self.refused.add(sample.key)
        self.progress.refused += 1
        if self.progress.refused <= _REPORTED_REFUSALS:
            self.report("error", "sample_refused", f"{clean_line(sample.key, 80)} gets no features: {why}")
        elif self.progress.refused == _REPORTED_REFUSALS + 1:
            self.report("error", "sample_refused", "More samples get no features; they are counted, not listed.")
