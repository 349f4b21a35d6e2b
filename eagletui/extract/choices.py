"""What a caller decides over a run's config when its features are extracted, and what it hears in the end."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from eagletui.config.run_config import RunConfig
from eagletui.core.errors import ModelError
from eagletui.core.reports import Report
from eagletui.extract.computing import Engine
from eagletui.extract.engines import Order, StoredChoice
from eagletui.extract.gather import Progress
from eagletui.extract.manifest import Manifest
from eagletui.extract.space import DiskSpace

SEAL_AFTER_S: Final = 20.0
"""While a run is followed, a shard is sealed after so long, full or not: a crash costs little, and progress shows."""


@dataclass(frozen=True, slots=True)
class Choices:
    """What a caller decides over the run's config."""

    follow: bool
    """Wait for more until the run is over; else end when nothing waits."""
    model: Path | None = None
    """Instead of `model.weights`."""
    dtype: StoredChoice | None = None
    """Instead of `extract.dtype`."""
    engine: Engine | None = None
    """Instead of `extract.engine`."""
    server: str | None = None
    """Instead of `extract.server`."""
    trust_server: bool = False
    """As well as `extract.trust_server`: take a server that does not tell its layers."""
    address: str | None = None
    """Of the Ray cluster: `auto`, or the head's; None starts one on this machine. For the ray engine."""
    storage: str | None = None
    """Instead of `extract.storage`."""
    gpus_per_worker: float = 1.0
    """Of the ray engine, where the cluster has any."""
    token_budget: int | None = None
    """Tokens that the features may have in the end; None: no limit. Not while following."""
    space: DiskSpace | None = None
    """The disk; None looks at the real one."""
    start: Callable[[int, int], None] = lambda _samples, _rows: None
    """Told once how much waits, where nothing is followed."""
    step: Callable[[Progress], None] = lambda _: None
    """Told after each sample."""
    echo: Report = lambda _level, _kind, _message: None
    """Hears what goes into the ledger as events."""
    seal_after_s: float = SEAL_AFTER_S
    device: str | None = None
    """Instead of `extract.device`."""
    stream_ahead: int | None = None
    """Sealed shards that may wait for the trainer, instead of `extract.stream_ahead`; None: its choice."""

    def order(self, config: RunConfig) -> Order:
        """Say what is to compute the features of a run.

        Raises:
            ModelError: nobody names a target model.
        """
        path = self.model or config.model.weights
        if path is None:
            raise ModelError("The run names no target model: set model.weights in its config, or give --model.")
        asked = config.extract
        return Order(
            model=path,
            engine=self.engine or asked.engine,
            server=self.server or asked.server,
            trust_server=self.trust_server or asked.trust_server,
            dtype=self.dtype or asked.dtype,
            device=self.device or asked.device,
            layers=None if asked.layers is None else tuple(asked.layers),
        )


@dataclass(frozen=True, slots=True)
class Done:
    """What this process did."""

    progress: Progress
    without_prompt: int
    """Samples whose prompt ids are unknown."""
    manifest: Manifest | None
    """None if it was stopped before the model was loaded."""
    left_out: int = 0
    """Samples beyond the token budget."""
    to_acknowledge: int | None = None
    """Sealed shards that the trainer has not acknowledged; None where features are kept."""
