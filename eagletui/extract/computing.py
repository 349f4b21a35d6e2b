"""What computes features: a model in this process, or a server that returns its hidden states."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, Protocol

import torch

from eagletui.core.errors import ModelError
from eagletui.core.features import FeatureLayers
from eagletui.extract.shards import IdsSample
from eagletui.models.facts import ModelFacts

Engine = Literal["local", "vllm", "sglang", "ray"]

WINDOW_SAMPLES: Final = 64
"""Samples planned together: enough to fill rows, few enough to look soon at what else there is to do."""


class Computed(NamedTuple):
    """One sample's streams, or why there are none."""

    sample: IdsSample
    hidden_states: torch.Tensor | None
    """[T, 4, H] on the CPU. It stays as it is as long as it is held, and may hold the memory of its neighbours."""
    refusal: str | None
    """One sentence; None where there are streams."""


class Described(Protocol):
    """A target model and where it runs, as manifests and events tell it."""

    @property
    def facts(self) -> ModelFacts:
        """The model."""

    @property
    def layers(self) -> FeatureLayers:
        """The streams."""

    @property
    def place(self) -> str:
        """Where it computes: a device, or a server's address."""

    @property
    def choice(self) -> str:
        """How samples are run, one sentence for the manifest; `undecided` before the first ones."""

    @property
    def versions(self) -> Mapping[str, str]:
        """Of what computes, by name."""

    def close(self) -> None:
        """Let go of the model, the server or the cluster."""


class Backend(Described, Protocol):
    """Computes samples with one target model."""

    @property
    def window_samples(self) -> int:
        """How many samples to hand over at once; between two windows nothing is computed ahead."""

    def prepare(self, samples: Sequence[IdsSample]) -> str | None:
        """Look on a first window of samples whether and how they can be computed; `compute` does so where nobody did.

        Returns:
            why none of these samples can be computed, where that says nothing about others; else None.

        Raises:
            ModelError: nothing can be computed.
        """

    def compute(self, samples: Sequence[IdsSample], go_on: Callable[[], bool]) -> Iterator[Computed]:
        """Compute samples.

        Args:
            samples: a window of samples.
            go_on: asked before each forward or request; False ends the work.

        Yields:
            each sample once, unless the work was ended.

        Raises:
            ModelError: nothing more can be computed.
        """


def require_vocabulary(facts: ModelFacts, samples: Sequence[IdsSample]) -> None:
    """Check that ids can be this model's.

    Raises:
        ModelError: an id lies outside its vocabulary: it is another model's data.
    """
    for sample in samples:
        largest = max(sample.token_ids)
        if largest >= facts.vocab_size:
            raise ModelError(
                f"Sample {sample.key} holds id {largest}, but {facts.path} has a vocabulary of {facts.vocab_size}: "
                "these ids are another model's. Name the model that the data came from."
            )


def too_long(facts: ModelFacts, sample: IdsSample) -> str | None:
    """Say why a sample has no states that the model was made for, one sentence; None where it is short enough."""
    if facts.positions is None or len(sample.token_ids) <= facts.positions:
        return None
    return f"{len(sample.token_ids):,} tokens do not fit: the model has {facts.positions:,} positions."


def are_finite(streams: torch.Tensor) -> torch.Tensor:
    """Tell whether all numbers are finite: a bool [] on their device."""
    # Extremes let NaN and infinities through, in a twentieth of the time that a look at every number takes.
    low, high = torch.aminmax(streams)
    return torch.isfinite(low) & torch.isfinite(high)


def refuse_broken(sample: IdsSample, streams: torch.Tensor) -> Computed:
    """Return the streams, or a refusal where they are not finite."""
    if bool(are_finite(streams)):
        return Computed(sample, streams, None)
    bad = int((~torch.isfinite(streams)).flatten(1).any(dim=1).sum())
    return Computed(sample, None, f"{bad} of {len(streams)} rows are not finite; the dtype may be too narrow.")
