"""The likeliest cut of a delta, against a plain enumeration and hand-made streams."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagletui.core.likely_cuts import even_sizes, likeliest_cut
from eagletui.core.vocabulary import Vocabulary

LETTERS = Vocabulary((b"a", b"b", b"ab", b"ba", b"abb", b"\xf0\x9f", b"\x8e", b"\x89", b"\x8e\x89"), {})
texts = st.lists(st.sampled_from(sorted({bytes(p) for p in LETTERS.pieces if p})), max_size=5).map(b"".join)


def every_cut(data: bytes) -> list[tuple[int, ...]]:
    """All segmentations, by trying every cut."""
    if not data:
        return [()]
    return [
        (token_id, *rest)
        for end in range(1, len(data) + 1)
        if (token_id := LETTERS.id_of(data[:end])) is not None
        for rest in every_cut(data[end:])
    ]


def rarity(ids: tuple[int, ...]) -> float:
    return sum(math.log(token_id + 1) for token_id in ids)


@given(texts, st.integers(0, 8))
def test_the_cut_of_a_size_has_the_lowest_ids_of_all(data: bytes, size: int) -> None:
    every = [ids for ids in every_cut(data) if len(ids) == size and ids]
    found = likeliest_cut(data, size, LETTERS)
    if not every:
        assert found == ()
    else:
        assert found in every
        assert rarity(found) == pytest.approx(min(map(rarity, every)))


def test_deltas_of_two_tokens_each_are_told_from_their_sum() -> None:
    deltas = [b"aa", b"ab", b"ba", b"b"]
    assert even_sizes(deltas, [2, 1, 2, 1], 7, LETTERS) == [2, 2, 2, 1]


def test_a_first_delta_of_one_token_is_no_exception_to_even_sizes() -> None:
    assert even_sizes([b"a", b"aa", b"ab", b"bb", b"bb"], [1, 2, 1, 2, 2], 9, LETTERS) == [1, 2, 2, 2, 2]


def test_tokens_held_back_for_a_character_are_counted_to_the_next_delta() -> None:
    deltas = [b"aa", b"a", "🎉b".encode(), b"bb"]
    assert even_sizes(deltas, [2, 1, 3, 2], 8, LETTERS) == [2, 1, 3, 2]


def test_tokens_that_a_cut_hides_behind_the_last_delta_are_not_in_it() -> None:
    assert even_sizes([b"aa", b"aa", b"bb"], [2, 2, 2], 8, LETTERS) == [2, 2, 2]


def test_sizes_that_do_not_come_out_even_are_not_guessed() -> None:
    assert even_sizes([b"aa", b"ab", b"bb"], [2, 1, 2], 12, LETTERS) is None
    assert even_sizes([b"a", b"b", b"a"], [1, 1, 1], 4, LETTERS) is None
