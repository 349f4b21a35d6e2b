"""What a sampler makes of a model's logits: log-probabilities after temperature and cuts, with soft edges."""

from collections.abc import Sequence
from math import exp, log
from typing import Any, Final

import torch

from eagletui.core.likelihood import Likelihood
from eagletui.core.sampling import Sampling

EDGE: Final = 0.06
"""How far, in log of the tail's probability, a token may lie outside the nucleus before that counts: servers compute in
low precision. Of 16,468 tokens that vLLM sampled at top-p 0.95 in bfloat16, ten lay outside, the farthest by 0.15."""

LEAK: Final = 1e-4
"""Probability that a token outside the nucleus came all the same: the request may not be what the server did."""

COLD: Final = 0.05
"""Least temperature: the most likely token of one machine may be the second of another, by so much of a logit."""

_UNLIKELY: Final = 1e-7
"""Probability below which a token is outside of every nucleus."""

_OFTEN_ENOUGH: Final = (64, 1024, 8192)
"""Likeliest tokens among which a nucleus is looked for, before all tokens of a row are put in order."""


class SampledRows:
    """The sampled distribution at some positions."""

    def __init__(self, logits: Any, sampling: Sampling) -> None:
        """Take logits, [rows, vocabulary], and how the answer was sampled."""
        self._sampling = sampling
        logits = logits.float()
        self._logs = torch.log_softmax(logits / max(sampling.temperature, COLD), dim=-1)
        self._chances = self._logs.exp()
        self._cut_logs, self._cut_chances = self._logs, self._chances
        """What the cuts are made of."""
        if sampling.cuts_first and sampling.temperature != 1.0 and not sampling.is_plain:
            self._cut_logs = torch.log_softmax(logits, dim=-1)
            self._cut_chances = self._cut_logs.exp()

    def scores(self, wanted: Sequence[Sequence[int]]) -> list[dict[int, float]]:
        """Log-probability of some tokens of each row; far outside of the cuts it is low and finite."""
        rows = [row for row, ids in enumerate(wanted) for _ in ids]
        columns = [token_id for ids in wanted for token_id in ids]
        found: list[dict[int, float]] = [{} for _ in wanted]
        if not rows:
            return found
        device = self._logs.device
        places = torch.tensor(rows, device=device), torch.tensor(columns, device=device)
        own, uncut = self._logs[places].tolist(), self._cut_logs[places].tolist()
        tops = self._cut_logs.amax(dim=-1).tolist()
        kept = [] if self._sampling.is_plain else self._kept(tops)
        for row, token_id, score, before in zip(rows, columns, own, uncut, strict=True):
            cut = 0.0 if self._sampling.is_plain else self._cut(row, before, tops[row]) - kept[row]
            found[row][token_id] = score + cut
        return found

    def likelihood(self, ids: Sequence[int]) -> Likelihood:
        """Compare a token of each of the first rows with what the sampling gives there on average."""
        if not ids:
            return Likelihood()
        inside = self._inside()[: len(ids)]
        weights = torch.where(inside, self._chances[: len(ids)], 0.0)
        weights /= weights.sum(dim=-1, keepdim=True)
        logs = torch.where(inside, self._logs[: len(ids)], 0.0)
        weighted = weights * logs
        expected = weighted.sum(dim=-1)
        variance = (weighted * logs).sum(dim=-1) - expected**2
        own = self._logs.gather(1, torch.tensor(ids, device=self._logs.device)[:, None])
        return Likelihood(len(ids), float(own.sum()), float(expected.sum()), float(variance.clamp(min=0).sum()))

    def _kept(self, tops: Sequence[float]) -> list[float]:
        """Log of what the cuts leave of each row's probability."""
        if self._cut_logs is self._logs:
            return [log(max(self._sampling.top_p, exp(top))) for top in tops]
        kept: list[float] = torch.where(self._inside(), self._chances, 0.0).sum(dim=-1).log().tolist()
        return kept

    def _cut(self, row: int, score: float, top: float) -> float:
        """Log-probability that the cuts leave a token.

        Args:
            row: where it stands.
            score: its log-probability where the cuts are made.
            top: that of the most likely token.
        """
        sampling = self._sampling
        if score >= top:
            return 0.0
        if exp(score) < _UNLIKELY:
            return log(LEAK)
        chances = self._cut_chances[row]
        inside = 1.0
        if sampling.top_p < 1.0:
            likelier = float(torch.threshold(chances, exp(score), 0.0).sum())
            inside *= _sigmoid((log(max(1.0 - likelier, exp(score))) - log(1.0 - sampling.top_p)) / EDGE)
        if sampling.top_k is not None and int((chances > exp(score)).sum()) >= sampling.top_k:
            inside = 0.0
        if sampling.min_p > 0.0:
            inside *= _sigmoid((score - top - log(sampling.min_p)) / EDGE)
        return log(LEAK + (1.0 - LEAK) * inside)

    def _inside(self) -> Any:
        """Which tokens can come, bool [rows, vocabulary]."""
        sampling = self._sampling
        logs = self._cut_logs
        top = logs.amax(dim=-1, keepdim=True)
        inside = logs >= top + (log(sampling.min_p) if sampling.min_p > 0.0 else -float("inf"))
        if sampling.top_k is not None and sampling.top_k < logs.shape[-1]:
            inside &= logs >= logs.topk(sampling.top_k, dim=-1).values[:, -1:]
        if sampling.top_p < 1.0:
            inside &= logs >= self._least_of_nucleus()
        return inside

    def _least_of_nucleus(self) -> Any:
        """Log-probability of the least likely token that top-p keeps, [rows, 1]."""
        logs, vocabulary = self._cut_logs, self._cut_logs.shape[-1]
        least = torch.empty(logs.shape[0], device=logs.device)
        open_rows = torch.arange(logs.shape[0], device=logs.device)
        for size in (*_OFTEN_ENOUGH, vocabulary):
            likeliest = logs[open_rows].topk(min(size, vocabulary)).values
            reached = likeliest.exp().cumsum(dim=-1) >= self._sampling.top_p
            # Rounding may keep the sum of a whole row below a top-p close to 1: then all of it is kept.
            reached[:, -1] |= size >= vocabulary
            least[open_rows] = likeliest.gather(1, reached.int().argmax(dim=-1, keepdim=True))[:, 0]
            open_rows = open_rows[~reached[:, -1]]
            if not len(open_rows):
                break
        return least[:, None]


def _sigmoid(value: float) -> float:
    return 1.0 / (1.0 + exp(-max(-60.0, min(60.0, value))))
