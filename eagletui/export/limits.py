"""Which limit of tokens a trainer is started with, and which context its server: the target has room for no more."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eagletui.core.context import served_length, stated_context, vllm_context
from eagletui.core.errors import InputError
from eagletui.core.loaders import SPECULATORS_ONLINE, LoaderRule, SampleLength, fitting_length, largest_limit

if TYPE_CHECKING:
    from eagletui.models.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class Limits:
    """What the commands state."""

    max_length: int
    """The trainer's limit of tokens."""
    server_length: int | None
    """Context of the vLLM server that computes whole rows; None where there is none."""

    @property
    def served(self) -> int | None:
        """Tokens of the longest sample that this server takes; None: any."""
        return None if self.server_length is None else self.server_length - 1

    def notes(self, lengths: Sequence[SampleLength]) -> tuple[str, ...]:
        """Say how many samples the server refuses."""
        refused = 0 if self.served is None else sum(sum(length) > self.served for length in lengths)
        if not refused:
            return ()
        return (
            f"{refused:,} of {len(lengths):,} samples are longer than the {self.served:,} tokens that vLLM takes of "
            "this target: it refuses each, and speculators ends after 20 refusals in a row.",
        )


def sglang_positions(checkpoint: "Checkpoint | None") -> int | None:
    """Return the target's context as SGLang counts it; None where it is not known."""
    return None if checkpoint is None else stated_context(checkpoint.text_config)


def vllm_positions(checkpoint: "Checkpoint | None") -> int | None:
    """Return the target's context as vLLM counts it; None where it is not known."""
    return None if checkpoint is None else vllm_context(checkpoint.text_config)


def trainer_limits(
    rule: LoaderRule, asked: int | None, longest: int, checkpoint: "Checkpoint | None", *, online: bool
) -> Limits:
    """Choose the limits for a trainer's folder.

    Args:
        rule: the loader's.
        asked: the limit that a person wants; None: one that cuts nothing the target has room for.
        longest: tokens of the longest sample.
        checkpoint: of the target, where one is known.
        online: a server computes the hidden states.

    Raises:
        InputError: the limit is more than the server starts with.
    """
    if rule is SPECULATORS_ONLINE:
        length = asked or fitting_length(rule, longest)
        return Limits(length, served_length(max(longest, length), vllm_positions(checkpoint)))
    context = sglang_positions(checkpoint) if online else None
    return Limits(asked_length(rule, asked, longest, context), None)


def asked_length(rule: LoaderRule, asked: int | None, longest: int, context: int | None) -> int:
    """Return the limit that a person wants, or a fitting one.

    Raises:
        InputError: it is more than the trainer's server starts with.
    """
    largest = largest_limit(rule, context)
    if asked is not None and largest is not None and asked > largest:
        raise InputError(
            f"--max-length: found {asked}, expected at most {largest}: the target has {context} positions, and SGLang "
            "refuses to start with more."
        )
    return asked or fitting_length(rule, longest, context)
