from hypothesis import given
from hypothesis import strategies as st

from eagletui.extract.pack import plan_packs


@given(st.lists(st.integers(1, 300), max_size=60), st.integers(1, 200))
def test_every_sample_is_in_one_row_and_no_shared_row_passes_the_budget(lengths: list[int], budget: int) -> None:
    packs = plan_packs(lengths, budget)
    assert sorted(index for pack in packs for index in pack) == list(range(len(lengths)))
    assert all(len(pack) == 1 or sum(lengths[index] for index in pack) <= budget for pack in packs)


def test_short_samples_fill_the_room_beside_long_ones_and_the_longest_comes_first() -> None:
    assert plan_packs([90, 10, 60, 40, 500], 100) == ((4,), (0, 1), (2, 3))
