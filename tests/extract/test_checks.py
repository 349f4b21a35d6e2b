"""How many samples a verification compares, which ones, and what their tokens say."""

from itertools import accumulate

import pytest

from eagletui.core.checks import Verdict
from eagletui.extract.checks import judge, spread_over, worth_comparing
from eagletui.extract.replay import Comparison, Limits


def _comparison(sampled: int, top1: int) -> Comparison:
    return Comparison("s0", sampled, 0.0, 0.0, sampled, top1, sampled, None, Limits(0.02, 0.5, 0.98))


@pytest.mark.parametrize(("sampled", "top1", "level", "is_good"), [(2000, 60, "error", False), (100, 3, "warn", True)])
def test_tokens_that_the_model_would_hardly_sample_are_a_fault_once_there_are_enough(
    sampled: int, top1: int, level: str, is_good: bool
) -> None:
    checks = tuple(judge([_comparison(sampled, top1)]))
    (replayed,) = [check for check in checks if check.name == "sampled"]
    assert (replayed.ok, replayed.level) == (False, level)
    assert replayed.detail.startswith(f"3.0% of {sampled} sampled tokens are the model's most likely ones: hardly")
    verdict = Verdict(checks, 1, sampled, 1, 1)
    assert (verdict.ok, verdict.to_look_at) == (is_good, ("sampled",) if is_good else ())


@pytest.mark.parametrize(
    ("samples", "files", "count"), [(5, 1, 5), (1000, 1, 16), (50_000, 40, 100), (1_000_000, 900, 256), (300, 30, 30)]
)
def test_more_samples_are_compared_of_a_larger_run(samples: int, files: int, count: int) -> None:
    assert worth_comparing(samples, files) == count


def test_every_file_is_compared_before_any_is_twice() -> None:
    sizes = [3, 50, 0, 1, 700, 20]
    starts = list(accumulate(sizes, initial=0))
    picked = spread_over(sizes, 8, 7)
    assert len(picked) == 8
    assert picked == spread_over(sizes, 8, 7)
    per_file = [sum(low <= number < low + size for number in picked) for low, size in zip(starts, sizes, strict=False)]
    assert [size for size, found in zip(sizes, per_file, strict=True) if not found] == [0]
    assert len(spread_over(sizes, 3, 7)) == 3
    assert spread_over([2, 1], 99, 7) == {0, 1, 2}
