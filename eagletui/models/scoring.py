"""Log-probabilities of many continuations of one text, each computed once.

Continuations form a tree over the text. Every node keeps its keys and values in one cache and sees only its own
ancestors, so that a branch costs its own tokens and nothing of what it shares.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any, Final

import torch
from transformers import DynamicCache

from eagletui.core.likelihood import Likelihood
from eagletui.core.sampling import Sampling
from eagletui.models.load import TargetModel
from eagletui.models.sampler import SampledRows

ROWS: Final = 64
"""Positions whose logits are held at once."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A token to put into the tree."""

    parent: int
    """The node that it follows; may be one asked for in the same call."""
    token_id: int
    wanted: tuple[int, ...]
    """Ids whose log-probability behind it is asked."""


class _Cache(DynamicCache):  # type: ignore[misc]
    """Keys and values of every node, of which a pass is shown those that one of its tokens sees."""

    seen: Any = None
    """Their places in the cache; None for all."""

    def update(self, key_states: Any, value_states: Any, layer_idx: int, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """Add a pass's keys and values to a layer's, [batch, heads, tokens, size], and return what the pass sees."""
        keys, values = super().update(key_states, value_states, layer_idx, *args, **kwargs)
        if self.seen is None:
            return keys, values
        places = self.seen.to(keys.device)
        return keys.index_select(-2, places), values.index_select(-2, places)


class TokenTree:
    """A text and the continuations of it that were looked at.

    Nodes are numbered in the order in which they were asked for, the last token of the prompt being node 0.
    """

    def __init__(self, target: TargetModel, sampling: Sampling) -> None:
        """Start without a text."""
        self._target = target
        self._sampling = sampling
        # transformers before 5.24 names it otherwise.
        named = "cache" if "cache" in signature(target.decoder.forward).parameters else "past_key_values"
        self._cache = _Cache()
        self._cached = {named: self._cache, "use_cache": True}
        self._first = 0
        """Tokens of the cache before node 0."""
        self._trunk = 0
        """Nodes of the text that was put in at once, in a row."""
        self._seen: list[Any] = []
        """Of each node behind the trunk: which tokens of the cache it sees, bool [tokens]."""
        self._depths: list[int] = []

    @property
    def nodes(self) -> int:
        """Nodes computed so far."""
        return len(self._depths)

    def fill(
        self, prompt_ids: Sequence[int], ids: Sequence[int], wanted: Sequence[Sequence[int]]
    ) -> tuple[list[dict[int, float]], Likelihood]:
        """Put a text in.

        Args:
            prompt_ids: at least one.
            ids: the answer; its tokens become nodes 1 and on.
            wanted: for node 0 and each token, the ids whose log-probability behind it is asked.

        Returns:
            Natural logs under the sampling, for each node; and how likely the answer is against what it should be.
        """
        tokens = torch.tensor([[*prompt_ids, *ids]], device=self._target.device)
        scores: list[dict[int, float]] = []
        likelihood = Likelihood()
        with torch.inference_mode():
            hidden = self._target.decoder(input_ids=tokens, **self._cached).last_hidden_state[0]
            hidden = hidden[len(prompt_ids) - 1 :]
            for start in range(0, len(wanted), ROWS):
                rows = self._sampled(hidden[start : start + ROWS])
                scores += rows.scores(wanted[start : start + ROWS])
                likelihood += rows.likelihood(ids[start : start + ROWS])
        self._first = len(prompt_ids) - 1
        self._trunk = len(ids) + 1
        self._depths = list(range(self._trunk))
        return scores, likelihood

    def grow(self, asked: Sequence[Ask]) -> list[dict[int, float]]:
        """Put tokens into the tree.

        Args:
            asked: numbered on from `nodes`.

        Returns:
            Natural logs under the sampling, for each.
        """
        if not asked:
            return []
        before = self._first + self.nodes
        seen = torch.zeros((len(asked), before + len(asked)), dtype=torch.bool)
        for row, ask in enumerate(asked):
            self._inherit(seen, row, ask.parent, before)
            seen[row, before + row] = True
            self._depths.append(self._depths[ask.parent] + 1)
        self._seen += [seen[row, : before + row + 1].clone() for row in range(len(asked))]
        positions = [self._first + depth for depth in self._depths[-len(asked) :]]
        device, dtype = self._target.device, self._target.decoder.dtype
        self._cache.seen = seen.any(dim=0).nonzero()[:, 0]
        seen = seen[:, self._cache.seen]
        mask = torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, torch.finfo(dtype).min)
        scores: list[dict[int, float]] = []
        with torch.inference_mode():
            hidden = self._target.decoder(
                input_ids=torch.tensor([[ask.token_id for ask in asked]], device=device),
                attention_mask=mask[None, None].to(device),
                position_ids=torch.tensor([positions], device=device),
                **self._cached,
            ).last_hidden_state[0]
            for start in range(0, len(asked), ROWS):
                rows = self._sampled(hidden[start : start + ROWS])
                scores += rows.scores([ask.wanted for ask in asked[start : start + ROWS]])
        return scores

    def _sampled(self, hidden: Any) -> SampledRows:
        return SampledRows(self._target.head(hidden), self._sampling)

    def _inherit(self, seen: Any, row: int, parent: int, before: int) -> None:
        """Let a new node see what its parent sees."""
        if parent < self._trunk:
            seen[row, : self._first + parent + 1] = True
        elif self._first + parent < before:
            known = self._seen[parent - self._trunk]
            seen[row, : len(known)] = known
        else:
            seen[row] = seen[self._first + parent - before]
