from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagletui.core.draft_vocabulary import DraftVocabulary, choose_vocabulary, read_vocabulary
from eagletui.core.errors import InputError

COUNTS = st.dictionaries(st.integers(0, 63), st.integers(0, 9), max_size=64)


def test_the_most_frequent_tokens_are_taken_and_the_lower_id_wins_among_equals() -> None:
    chosen = choose_vocabulary({9: 5, 4: 2, 7: 2, 8: 2, 1: 1}, 3, 16)
    assert chosen == DraftVocabulary(16, (4, 7, 9))
    assert chosen.offsets() == [4, 6, 7]
    assert chosen.coverage({9: 5, 4: 2, 7: 2, 8: 2, 1: 1}) == pytest.approx(9 / 12)


def test_too_few_sampled_tokens_are_filled_up_with_the_lowest_ids() -> None:
    assert choose_vocabulary({9: 5, 1: 3}, 4, 16).ids == (0, 1, 2, 9)


def test_a_small_target_is_taken_whole() -> None:
    chosen = choose_vocabulary({3: 1}, 32_000, 5)
    assert chosen.ids == (0, 1, 2, 3, 4)
    assert chosen.offsets() == [0, 0, 0, 0, 0]


def test_ids_of_another_model_are_refused() -> None:
    with pytest.raises(InputError, match="Token 16 was sampled, but the target's vocabulary has 16 tokens"):
        choose_vocabulary({16: 1}, 4, 16)
    with pytest.raises(InputError, match="A draft vocabulary of 0 tokens"):
        choose_vocabulary({}, 0, 16)


@given(COUNTS, st.integers(1, 80))
def test_no_other_choice_of_that_size_covers_more_and_both_arrays_give_it_back(
    counts: dict[int, int], size: int
) -> None:
    chosen = choose_vocabulary(counts, size, 64)
    assert chosen.size == min(size, 64)
    assert sorted(set(chosen.ids)) == list(chosen.ids)
    best = sum(sorted(counts.values(), reverse=True)[: chosen.size])
    assert sum(counts.get(token, 0) for token in chosen.ids) == best
    marks = [token in chosen.ids for token in range(64)]
    assert read_vocabulary(chosen.offsets(), marks) == chosen
    assert choose_vocabulary(Counter(counts), size, 64) == chosen


@pytest.mark.parametrize(
    ("offsets", "marks", "sentence"),
    [
        ([0, 0], [True, False, False], "d2t has 2 tokens, t2d marks 1"),
        ([0, 1], [True, True, False], "draft token 1 is target token 2 by d2t and 1 by t2d"),
    ],
)
def test_arrays_that_contradict_each_other_are_named(offsets: list[int], marks: list[bool], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        read_vocabulary(offsets, marks)
