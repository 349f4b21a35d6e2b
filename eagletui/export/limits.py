"""Which limit of tokens a trainer is started with, and which context its server: the target has room for no more."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from eagletui.core.context import served_length, stated_context, vllm_context
from eagletui.core.loaders import (
    SPECULATORS_ONLINE,
    LoaderRule,
    SampleLength,
    fitting_length,
    largest_limit,
    loader_effect,
)

if TYPE_CHECKING:
    from eagletui.models.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class Limits:
    """What the commands state."""

    max_length: int
    """The trainer's limit of tokens."""
    server_length: int | None = None
    """Context of the vLLM server that computes whole rows; None where there is none."""
    asked: int | None = None
    """What a person wanted, where the trainer's server would not start with that."""
    largest: int | None = None
    """The largest limit that the trainer's server starts with; None: any."""

    @property
    def served(self) -> int | None:
        """Tokens of the longest sample that this server takes; None: any."""
        return None if self.server_length is None else self.server_length - 1

    def notes(self, lengths: Sequence[SampleLength]) -> tuple[str, ...]:
        """Say that another limit was taken, and how many samples the server refuses."""
        found = []
        if self.asked is not None:
            found.append(
                f"--max-length {self.asked:,} is more than SGLang starts with for this target: the limit is "
                f"{self.max_length:,}."
            )
        refused = 0 if self.served is None else sum(sum(length) > self.served for length in lengths)
        if refused:
            found.append(
                f"{refused:,} of {len(lengths):,} samples are longer than the {self.served:,} tokens that vLLM takes "
                "of this target: it refuses each, and speculators ends after 20 refusals in a row."
            )
        return tuple(found)


def refused_note(
    rule: LoaderRule, lengths: Sequence[SampleLength], max_length: int, context: int | None, ledger: Path
) -> str | None:
    """Say what to do about a file that a loader refuses for its longest rows; None where it takes all of it.

    Args:
        rule: the loader's.
        lengths: of every sample.
        max_length: the limit of tokens in the command.
        context: positions of the target; None: unknown.
        ledger: of the run.
    """
    refused = loader_effect(rule, lengths, max_length).refused if rule.refuses_long else 0
    if not refused:
        return None
    rows = "row is" if refused == 1 else "rows are"
    said = f"TorchSpec will not load this file: {refused:,} {rows} longer than {max_length:,} tokens; it cuts none. "
    longest = max(map(sum, lengths))
    fitting = fitting_length(rule, longest, context)
    if fitting >= longest:
        return f"{said}Export with --max-length {fitting}."
    database = f"file:{quote(str(ledger.absolute()))}?mode=ro"
    query = f"SELECT sample_key FROM v_samples WHERE prompt_tokens + output_tokens <= {max_length - rule.headroom}"
    return (
        f"{said}The target has no room for more: leave them out with --only fitting.txt, made by "
        f"{shlex.join(['sqlite3', database, query])} > fitting.txt"
    )


def sglang_positions(checkpoint: "Checkpoint | None", file_context: int | None = None) -> int | None:
    """Return the target's context as SGLang counts it; None where it is not known.

    Args:
        checkpoint: the target's folder, where there is one.
        file_context: what its `.gguf` file states, where that is what is known.
    """
    return file_context if checkpoint is None else stated_context(checkpoint.text_config)


def vllm_positions(checkpoint: "Checkpoint | None", file_context: int | None = None) -> int | None:
    """Return the target's context as vLLM counts it, as above."""
    return file_context if checkpoint is None else vllm_context(checkpoint.text_config)


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
    """
    if rule is SPECULATORS_ONLINE:
        length = asked or fitting_length(rule, longest)
        return Limits(length, served_length(max(longest, length), vllm_positions(checkpoint)))
    context = sglang_positions(checkpoint) if online else None
    largest = largest_limit(rule, context)
    if asked is not None and largest is not None and asked > largest:
        return Limits(largest, asked=asked, largest=largest)
    return Limits(asked or fitting_length(rule, longest, context), largest=largest)
