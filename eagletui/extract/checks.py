"""Questions that a verification asks, their answers, and what comparisons with the model say."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from eagletui.core.text import clean_line
from eagletui.extract.replay import Comparison

CHANCE: Final = 0.05
"""Below this share of sampled tokens that are also the most likely ones, the ids are hardly this model's own."""

_SHOWN: Final = 3


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

    @property
    def ok(self) -> bool:
        """No check of level error failed."""
        return all(check.ok or check.level == "warn" for check in self.checks)


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
    yield Check("sampled", top1 >= CHANCE, "warn", detail)
