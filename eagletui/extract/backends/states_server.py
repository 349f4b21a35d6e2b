"""A server that returns hidden states, as those who ask it see it: what it answers, and how it fails."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import torch

from eagletui.core.errors import ModelError
from eagletui.core.features import SLOTS
from eagletui.extract.backends.refusals import Unusable
from eagletui.models.facts import ModelFacts


class Unanswered(ModelError):
    """One request failed; asked again, it may not."""


class Unreachable(Unanswered):
    """There is no server now; it may be being started again."""


class Declined(ModelError):
    """The server cannot take this sample, however often it is asked."""


class Answer(NamedTuple):
    """What a server said about one sample."""

    streams: torch.Tensor
    """[T, 4, H] on the CPU."""
    next_id: int
    """The server's most likely next token."""
    next_logprob: float
    """What the server gives it, in nats."""


class StatesServer(Protocol):
    """A server that returns hidden states."""

    url: str
    versions: Mapping[str, str]

    def check(self) -> str:
        """Ask how the server runs, and return what it says as a phrase.

        Raises:
            Unusable: it is not there, or was started in a way that spoils states or leaves streams out.
        """

    def ask(self, token_ids: Sequence[int]) -> Answer:
        """Compute one sample.

        Raises:
            Unanswered, Declined, Unusable: see there.
        """

    def close(self) -> None:
        """Close the connections."""


def require_record(streams: torch.Tensor, facts: ModelFacts, tokens: int, command: str) -> torch.Tensor:
    """Check the shape and type of what a server returned.

    Args:
        streams: as returned.
        facts: of the model.
        tokens: of the sample.
        command: how to start the server.

    Raises:
        Unusable: rows, slots, width or type are not a record's.
    """
    dtype = str(streams.dtype).removeprefix("torch.")
    if streams.dim() != 3 or streams.shape[2] != facts.hidden_size:
        raise Unusable(
            f"The server returns states of shape {list(streams.shape)}; {facts.path} has width {facts.hidden_size}: "
            "it runs another model."
        )
    if streams.shape[1] != SLOTS:
        raise Unusable(
            f"The server returns {streams.shape[1]} streams a token instead of {SLOTS}. Start it with\n{command}"
        )
    if len(streams) != tokens:
        raise Unusable(
            f"The server returned {len(streams)} rows for {tokens} tokens: it took others from its prefix cache, "
            f"or split the prompt. Start it with\n{command}"
        )
    if dtype != facts.dtype:
        raise Unusable(f"The server computes in {dtype}, not {facts.dtype}: give --dtype {dtype}.")
    return streams
