"""Questions that a verification asks, their answers, and what comparisons with the model say."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final, Literal

from eagletui.core.features import FeatureLayers
from eagletui.core.text import clean_line
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

_SHOWN: Final = 3


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


@dataclass(frozen=True, slots=True)
class Check:
    """One question and its answer."""

    name: str
    ok: bool
    level: Literal["error", "warn"]
    """An `error` that is not ok makes the folder bad; a `warn` only asks for a look."""
    detail: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Everything that was checked."""

    checks: tuple[Check, ...]
    samples: int
    rows: int
    shards: int
    """Files with features that were read."""
    compared: int
    """Samples that a fresh forward was run over."""
    looked_at: tuple[str, ...] = ()
    """Paths of a features folder's shards that were looked at: not those that a trainer acknowledged."""

    @property
    def ok(self) -> bool:
        """No check of level error failed."""
        return all(check.ok or check.level == "warn" for check in self.checks)

    @property
    def to_look_at(self) -> tuple[str, ...]:
        """Names of the checks that only ask for a look."""
        return tuple(check.name for check in self.checks if not check.ok and check.level == "warn")


@dataclass(slots=True)
class Faults:
    """Faults of one kind, the first few in words."""

    name: str
    fine: str
    """What to say where there are none."""
    level: Literal["error", "warn"] = "error"
    shown: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, text: str) -> None:
        """Count one."""
        self.count += 1
        if len(self.shown) < _SHOWN:
            self.shown.append(clean_line(text, 300))

    def check(self) -> Check:
        """Return the answer."""
        rest = f" and {self.count - len(self.shown)} more" if self.count > len(self.shown) else ""
        return Check(self.name, not self.count, self.level, "; ".join(self.shown) + rest if self.count else self.fine)


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
