from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagletui.core.run_parts import RunPart


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "1/", "/2", "1/2/3", "-1/2", " 1/2", "1/1001", "1.0/2", ""])
def test_what_is_no_part_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a part such as 1/4"):
        RunPart.parse(text)


@given(of=st.integers(1, 40), prompts=st.integers(0, 400))
def test_every_prompt_belongs_to_exactly_one_part_and_parts_differ_by_at_most_one_prompt(of: int, prompts: int) -> None:
    parts = [RunPart(number, of) for number in range(1, of + 1)]
    owners = [[part.number for part in parts if part.takes(place)] for place in range(prompts)]
    assert all(len(owner) == 1 for owner in owners)
    sizes = Counter(owner[0] for owner in owners)
    counts = [sizes[part.number] for part in parts]
    assert max(counts) - min(counts) <= 1


def test_files_that_alternate_between_kinds_put_every_kind_into_every_part() -> None:
    kinds = [place % 3 for place in range(90)]
    for number in (1, 2, 3):
        taken = Counter(kind for place, kind in enumerate(kinds) if RunPart(number, 3).takes(place))
        assert taken == {0: 10, 1: 10, 2: 10}


@given(
    amount=st.integers(0, 10**15),
    samples=st.lists(st.integers(0, 50), min_size=1, max_size=30).filter(lambda counts: sum(counts) > 0),
)
def test_shares_make_exactly_the_amount_and_none_is_more_than_rounding_away_from_its_samples(
    amount: int, samples: list[int]
) -> None:
    by_part = dict(enumerate(samples, 1))
    shares = [RunPart(number, len(samples)).share(amount, by_part) for number in by_part]
    assert sum(shares) == amount
    for share, here in zip(shares, samples, strict=True):
        assert abs(share - amount * here / sum(samples)) <= 1 + amount * 1e-12
