"""What a trainer's loader does to samples it is given as token ids: nothing, cut them, or drop them.

Each rule was read in the trainer's released source, the version beside it, and is held to it by the conformance tests.
No route here tokenizes again: ids go in as they are.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

Trainer = Literal["specforge", "speculators", "torchspec"]
Route = Literal["online", "offline"]


@dataclass(frozen=True, slots=True)
class LoaderRule:
    """How one loader treats a sample."""

    trainer: Trainer
    version: str
    """The release, or the commit, that was read."""
    default_length: int
    """The trainer's own limit of tokens, where none is set."""
    headroom: int = 0
    """Tokens of the limit that a sample cannot use."""
    context_beyond: int = 0
    """Tokens of the target's context that the trainer's server needs beyond the limit."""
    drops_last_loss: bool = False
    """The last position never counts for the loss."""
    shifts: bool = False
    """The first position is taken off before the cut, with its loss."""
    refuses_long: bool = False
    """One sample over the limit, and the loader refuses the whole file; others cut it."""


SPECFORGE_ONLINE: Final = LoaderRule("specforge", "0.2.0", 2048, context_beyond=7)
"""`prepare_prompt_tasks`: cuts at `data.max_length`, drops what has no loss left. SGLang is started with a context of
`SGLANG_CAPTURE_CONTEXT_HEADROOM` more."""

SPECFORGE_OFFLINE: Final = LoaderRule("specforge", "0.2.0", 2048, drops_last_loss=True)
"""`normalize_offline_sample`: cuts at `data.max_length` and zeroes the mask of the last position."""

SPECULATORS_PREPARE: Final = LoaderRule("speculators", "0.9.0", 8192, context_beyond=1)
"""`prepare-data` cuts at `--seq-length` and drops what has no loss left; what it leaves, the training takes whole. Its
vLLM generates one token behind a row."""

SPECULATORS_OFFLINE: Final = LoaderRule("speculators", "0.9.0", 8192, shifts=True)
"""`shift_batch` takes the first position off, then `CollateFn` cuts at `--total-seq-len`."""

SPECULATORS_ONLINE: Final = LoaderRule("speculators", "0.9.0", 8192, shifts=True)
"""The same over states that vLLM computes of a whole row: a row it has no room for is refused, however it is cut."""

TORCHSPEC_CACHE: Final = LoaderRule("torchspec", "09aa71b1", 8192, headroom=7)
"""The cache is taken as it is, but SGLang cuts at its context length, `training.max_seq_length`, of which it keeps one
slot for a generated token and six for itself (SpecForge's SGLANG_CAPTURE_CONTEXT_HEADROOM)."""

TORCHSPEC_PARQUET: Final = LoaderRule("torchspec", "601a44cf", 8192, headroom=7, refuses_long=True)
"""From this commit on, Parquet with ids and masks is read without rendering; one row over the limit, and the file is
refused. Of a row within it SGLang cuts what lies in the last seven slots, as for the cache."""


class SampleLength(NamedTuple):
    """What decides a sample's fate."""

    prompt_tokens: int
    output_tokens: int
    """At least 1; all of them count for the loss."""


@dataclass(frozen=True, slots=True)
class LoaderEffect:
    """What a loader would do to a training set."""

    max_length: int
    samples: int
    truncated: int
    """Cut, by the loader or its server, with some loss left."""
    dropped: int
    """Left without any loss."""
    refused: int = 0
    """The trainer's server refuses them; or the loader does, and with them the whole file (`refuses_long`)."""
    retokenized: int = 0
    """Samples whose ids would be others: none, where ids are what is handed over."""

    @property
    def changed(self) -> int:
        """Samples that would not be trained on as they are."""
        return self.truncated + self.dropped + self.refused + self.retokenized


def loader_effect(
    rule: LoaderRule, lengths: Iterable[SampleLength], max_length: int, served: int | None = None
) -> LoaderEffect:
    """Compute what a loader would do.

    Args:
        rule: the loader's.
        lengths: of every sample.
        max_length: the limit of tokens that the trainer is started with.
        served: tokens of the longest sample that the trainer's server takes whole; None: any.
    """
    limit = max_length - rule.headroom + (1 if rule.shifts else 0)
    samples = truncated = dropped = refused = 0
    for prompt, output in lengths:
        samples += 1
        tokens = prompt + output
        with_loss = min(tokens, limit) - max(prompt, 1 if rule.shifts else 0) - (1 if rule.drops_last_loss else 0)
        if (served is not None and tokens > served) or (rule.refuses_long and tokens > max_length):
            refused += 1
        elif with_loss < 1:
            dropped += 1
        elif tokens > limit:
            truncated += 1
    return LoaderEffect(max_length, samples, truncated, dropped, refused)


def largest_limit(rule: LoaderRule, context: int | None) -> int | None:
    """Return the largest limit that a trainer can be started with; None: any.

    Args:
        rule: the loader's.
        context: positions of the target as the trainer's server counts them; None: unknown, or no server.
    """
    return None if context is None else context - rule.context_beyond


def fitting_length(rule: LoaderRule, longest: int, context: int | None = None) -> int:
    """Return the limit to start a trainer with so that nothing is cut that the target has room for.

    It is the trainer's own limit, or more where that is too short, and never more than its server starts with.

    Args:
        rule: the loader's.
        longest: tokens of the longest sample.
        context: positions of the target as the trainer's server counts them; None: unknown, or no server.
    """
    wanted = max(rule.default_length, longest + rule.headroom)
    largest = largest_limit(rule, context)
    return wanted if largest is None else min(wanted, largest)
