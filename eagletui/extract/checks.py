"""What comparisons of stored features with the model say, and which samples to compare."""

import random
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final, Literal

from eagletui.core.checks import Check, Faults
from eagletui.core.features import FeatureLayers
from eagletui.extract.capture import Capture
from eagletui.extract.replay import Comparison, LastNorm, compare
from eagletui.extract.shards import Record
from eagletui.models.load import TargetModel

CHANCE: Final = 0.05
"""Below this share of sampled tokens that are also the most likely ones, the ids are hardly this model's own."""

TELLING_TOKENS: Final = 1000
"""Sampled tokens from which on so few likely ones are a fault; fewer tokens only ask for a look."""

LEAST_COMPARED: Final = 16
MOST_COMPARED: Final = 256
_ONE_IN: Final = 500


def worth_comparing(samples: int, files: int) -> int:
    """Return how many samples to run a fresh forward over: one of each file and of every 500, within bounds.

    Args:
        samples: in all.
        files: they lie in, written one after the other; each may have a fault of its own.
    """
    return min(samples, max(LEAST_COMPARED, min(MOST_COMPARED, max(files, samples // _ONE_IN))))


def spread_over(sizes: Sequence[int], count: int, seed: int) -> set[int]:
    """Pick samples at random, one of each file first, and return their numbers.

    Args:
        sizes: samples in each file; they are numbered through all files.
        count: how many to pick.
        seed: the same seed picks the same samples.
    """
    chance = random.Random(seed)
    starts = list(accumulate(sizes, initial=0))
    firsts = [start + chance.randrange(size) for start, size in zip(starts, sizes, strict=False) if size]
    chance.shuffle(firsts)
    picked = set(firsts[:count])
    others = [number for number in range(starts[-1]) if number not in picked]
    return picked | set(chance.sample(others, k=min(len(others), count - len(picked))))


class Comparing:
    """Compares samples with a model as they are read, so that none has to be kept."""

    def __init__(self, target: TargetModel, layers: FeatureLayers, last: LastNorm = "pre", *, was_fp8: bool) -> None:
        """Hook the model.

        Args:
            target: the model.
            layers: the streams that were stored.
            last: what the last slot is meant to be.
            was_fp8: states were rounded to eight bits.
        """
        self.capture = Capture(target, layers)
        self.found: list[Comparison] = []
        self._how: tuple[LastNorm, bool] = last, was_fp8

    def add(self, record: Record) -> None:
        """Compare a sample; one that cannot be this model's is left to the checks of ids and sizes."""
        target, ids = self.capture.target, record.token_ids
        is_fitting = 0 <= int(ids.min()) <= int(ids.max()) < target.vocab_size
        if is_fitting and record.hidden_states.shape[2] == target.hidden_size:
            last, was_fp8 = self._how
            self.found.append(compare(self.capture, record, last, was_fp8=was_fp8))

    def close(self) -> None:
        """Take the hooks off."""
        self.capture.close()


def judge(compared: Sequence[Comparison]) -> Iterator[Check]:
    """Answer what comparisons with a fresh forward say: streams, head, sampled tokens."""
    if not compared:
        yield Check("streams", False, "error", "no sample could be compared with the model")
        return
    streams = Faults("streams", "")
    for comparison in compared:
        if comparison.fault is not None:
            streams.add(f"{comparison.key}: {comparison.fault}")
    worst = max(comparison.worst_error for comparison in compared)
    limits = compared[0].limits
    streams.fine = (
        f"{len(compared)} samples equal a fresh forward, worst relative error of a row {worst:.1e} "
        f"(their median may be {limits.median:.0e})"
    )
    yield streams.check()
    rows = sum(comparison.rows for comparison in compared)
    share = sum(comparison.agreeing for comparison in compared) / rows
    detail = f"the head over the stored last stream gives the model's own next token on {share:.1%} of {rows} rows"
    yield Check("head", share >= limits.agreement, "error", detail)
    sampled = sum(comparison.sampled for comparison in compared)
    top1 = sum(comparison.top1 for comparison in compared) / max(1, sampled)
    detail = f"{top1:.1%} of {sampled} sampled tokens are the model's most likely ones"
    if top1 < CHANCE:
        detail += ": hardly this model's answers, or sampled very hot"
    level: Literal["error", "warn"] = "error" if top1 < CHANCE and sampled >= TELLING_TOKENS else "warn"
    yield Check("sampled", top1 >= CHANCE, level, detail)
