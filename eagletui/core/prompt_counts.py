"""Billed prompt tokens against those that the chat template writes: did the model read the prompt we think it read?"""

from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

from eagletui.core.drift import LEAST_SAMPLES
from eagletui.core.findings import Finding, who

_LENGTHS: Final = 3
"""Prompts of so many different lengths must show a difference, so that it is the server's and not one prompt's."""

ACTION: Final = (
    "Compare the template, its kwargs and how it writes tools and the system prompt with what is served; "
    "a server that returns prompt ids settles it. The prompt ids of these samples are not proved."
)


class PromptCounts(NamedTuple):
    """One prompt's tokens."""

    billed: int
    rendered: int
    """As the chat template writes it."""
    has_tools: bool

    @property
    def excess(self) -> int:
        """billed - rendered."""
        return self.billed - self.rendered


def prompt_finding(endpoint: str, counts: Mapping[PromptCounts, int], example: str | None) -> Finding | None:
    """Word that an endpoint reads other prompts than the chat template writes.

    A constant difference is what a server adds or leaves out; a difference in prompts with tools alone is how it
    writes tools. Differences without any rule say nothing about the template and are no finding.

    Args:
        endpoint: its name; empty for a direct server.
        counts: samples by the tokens of their prompt.
        example: a sample that differs.
    """
    constant = _constant(endpoint, counts, example, "")
    if constant is not None:
        return constant
    with_tools = {prompt: number for prompt, number in counts.items() if prompt.has_tools}
    without = {prompt: number for prompt, number in counts.items() if not prompt.has_tools}
    if not with_tools or 2 * _off(without) > sum(without.values()):
        return None
    constant = _constant(endpoint, with_tools, example, " with tools")
    of_all, off = sum(with_tools.values()), _off(with_tools)
    if constant is not None or not without or of_all < LEAST_SAMPLES or 2 * off <= of_all:
        return constant
    sentence = (
        f"On {who(endpoint)}, {off} of {of_all} prompts with tools are billed otherwise than the chat template writes "
        "them, those without tools are not: tools are written in another way"
    )
    return Finding("prompt", sentence, off, of_all, example, ACTION, endpoint)


def _constant(endpoint: str, counts: Mapping[PromptCounts, int], example: str | None, which: str) -> Finding | None:
    by_excess: Counter[int] = Counter()
    for prompt, number in counts.items():
        by_excess[prompt.excess] += number
    of_all = sum(by_excess.values())
    excess, number = max(by_excess.items(), key=lambda found: (found[1], -abs(found[0])), default=(0, 0))
    lengths = {prompt.rendered for prompt in counts if prompt.excess == excess}
    if not excess or number < LEAST_SAMPLES or 2 * number <= of_all or len(lengths) < _LENGTHS:
        return None
    tokens = "1 token" if abs(excess) == 1 else f"{abs(excess)} tokens"
    sentence = (
        f"On {who(endpoint)}, {number} of {of_all} prompts{which} are billed {tokens} "
        f"{'more' if excess > 0 else 'less'} than the chat template writes: the model read another prompt"
    )
    return Finding("prompt", sentence, number, of_all, example, ACTION, endpoint)


def _off(counts: Mapping[PromptCounts, int]) -> int:
    return sum(number for prompt, number in counts.items() if prompt.excess)
