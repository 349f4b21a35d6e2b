"""Counting segmentations, against a plain enumeration."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from eagletui.core.segments import MANY, Ways, assignments, segmentations, smallest
from eagletui.core.vocabulary import Vocabulary

LETTERS = Vocabulary((b"a", b"b", b"ab", b"ba", b"abb", b"\xf0\x9f", b"\x8e", b"\x89", b"\x8e\x89"), {})


def every_segmentation(data: bytes, vocabulary: Vocabulary) -> list[tuple[int, ...]]:
    """All of them, by trying every cut."""
    if not data:
        return [()]
    return [
        (token_id, *rest)
        for end in range(1, len(data) + 1)
        if (token_id := vocabulary.id_of(data[:end])) is not None
        for rest in every_segmentation(data[end:], vocabulary)
    ]


texts = st.lists(st.sampled_from(sorted({bytes(p) for p in LETTERS.pieces if p})), max_size=5).map(b"".join)


@given(texts, st.integers(0, 8))
def test_the_capped_count_is_that_of_a_plain_enumeration(data: bytes, size: int) -> None:
    every = [ids for ids in every_segmentation(data, LETTERS) if len(ids) == size and ids]
    found = segmentations(data, size, LETTERS)
    assert found.number == min(len(every), MANY)
    if found.number:
        assert found.ids in every


@given(texts, st.integers(1, 6), st.integers(0, 8))
def test_a_known_last_token_leaves_the_segmentations_that_end_with_it(data: bytes, size: int, last_id: int) -> None:
    every = [ids for ids in every_segmentation(data, LETTERS) if len(ids) == size and ids[-1] == last_id]
    assert segmentations(data, size, LETTERS, last_id=last_id).number == min(len(every), MANY)


@given(texts)
def test_the_smallest_number_of_pieces_is_that_of_a_plain_enumeration(data: bytes) -> None:
    assert smallest(data, LETTERS) == min(map(len, every_segmentation(data, LETTERS)), default=None)


@given(st.lists(texts.filter(bool), min_size=1, max_size=3), st.integers(1, 9))
def test_stretches_with_a_known_sum_are_counted_as_by_enumeration(stretches: list[bytes], total: int) -> None:
    every = [
        chosen
        for chosen in itertools.product(*(every_segmentation(data, LETTERS) for data in stretches))
        if sum(map(len, chosen)) == total
    ]
    groups = [{size: segmentations(data, size, LETTERS) for size in range(1, 10)} for data in stretches]
    count, chosen = assignments(groups, total)
    assert count == min(len(every), MANY)
    if count:
        assert chosen in every


def test_an_emoji_of_known_size_has_one_segmentation_and_of_unknown_size_two() -> None:
    party = b"\xf0\x9f\x8e\x89"
    assert segmentations(party, 2, LETTERS) == Ways(1, (5, 8))
    assert segmentations(party, 3, LETTERS) == Ways(1, (5, 6, 7))
    assert segmentations(party, 1, LETTERS).number == 0


def test_tokens_that_a_server_held_back_end_inside_a_character() -> None:
    data = b"a\xf0\x9f\x8e\x89"
    assert segmentations(data, 3, LETTERS, held_back=1).number == 0
    assert segmentations(data, 3, LETTERS, held_back=2) == Ways(1, (0, 5, 8))


def test_pieces_that_two_ids_share_are_never_unique() -> None:
    twins = Vocabulary((b"a", b"a", b"b"), {})
    assert segmentations(b"a", 1, twins).number == MANY
    assert segmentations(b"ab", 2, twins).number == MANY


def test_a_stretch_too_long_to_examine_is_not_unique() -> None:
    assert segmentations(b"ab" * 20_000, 30_000, LETTERS) == Ways(MANY, ())
