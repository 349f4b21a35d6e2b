"""Whatever the arbiter tries, it tries with the same bytes and the same special tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagletui.core.alternatives import Change, Lattice, differences, disjoint, replaced
from eagletui.core.vocabulary import Vocabulary

PIECES = [bytes([byte]) for byte in range(256)] + [
    piece.encode() for piece in ("ab", "bc", "abc", "cab", "ca", " a", "aa", "aaa", "é", "née", "end>")
]
END = len(PIECES)
VOCABULARY = Vocabulary.from_pieces(dict(enumerate(PIECES)), {"<end>": END})
A, B, C = b"abc"
AB, BC, ABC = (PIECES.index(piece) for piece in (b"ab", b"bc", b"abc"))

texts = st.text(alphabet="abcé ", min_size=1, max_size=24).map(str.encode)


@st.composite
def tokenizations(draw: st.DrawFn, data: bytes) -> tuple[int, ...]:
    """Cut bytes at random."""
    ids: list[int] = []
    offset = 0
    while offset < len(data):
        ends = [end for end in range(offset + 1, len(data) + 1) if VOCABULARY.id_of(data[offset:end]) is not None]
        end = draw(st.sampled_from(ends))
        token_id = VOCABULARY.id_of(data[offset:end])
        assert token_id is not None
        ids.append(token_id)
        offset = end
    return tuple(ids)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two tokenizations of the same bytes, with specials between and behind them."""
    one: tuple[int, ...] = ()
    other: tuple[int, ...] = ()
    for data in draw(st.lists(texts, min_size=1, max_size=3)):
        one += (*draw(tokenizations(data)), END)
        other += (*draw(tokenizations(data)), END)
    return one, other


@given(pairs())
def test_every_piece_of_the_lattice_is_what_the_bytes_are(pair: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    lattice = Lattice(pair[0], VOCABULARY)
    specials = [
        offset for offset, token_id in zip(lattice.boundaries(pair[0]), pair[0], strict=False) if token_id == END
    ]
    for offset in range(len(lattice.data)):
        for token_id, end in lattice.pieces(offset).items():
            assert VOCABULARY.bytes_of(token_id) == lattice.data[offset:end]
            assert VOCABULARY.is_special(token_id) == (offset in specials)
            assert not any(offset < special < end for special in specials)


@given(pairs())
def test_differences_turn_one_tokenization_into_the_other(pair: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    one, other = pair
    lattice = Lattice(one, VOCABULARY)
    changes = differences(one, other, lattice)
    assert replaced(one, changes, lattice) == other
    for change in changes:
        assert VOCABULARY.decode(change.ids) == lattice.data[change.start : change.end]


@given(pairs(), st.data())
def test_any_choice_of_changes_keeps_bytes_and_specials(
    pair: tuple[tuple[int, ...], tuple[int, ...]], data: st.DataObject
) -> None:
    one, other = pair
    lattice = Lattice(one, VOCABULARY)
    changes = differences(one, other, lattice)
    chosen = [change for change in changes if data.draw(st.booleans())]
    made = replaced(one, chosen, lattice)
    assert VOCABULARY.decode(made) == VOCABULARY.decode(one)
    assert [i for i in made if i == END] == [i for i in one if i == END]


def test_a_merge_a_split_and_a_moved_cut_are_one_change_each() -> None:
    lattice = Lattice((AB, C, END), VOCABULARY)
    assert differences((AB, C, END), (ABC, END), lattice) == (Change(0, 3, (ABC,)),)
    assert differences((AB, C, END), (A, B, C, END), lattice) == (Change(0, 2, (A, B)),)
    assert differences((AB, C, END), (A, BC, END), lattice) == (Change(0, 3, (A, BC)),)


def test_a_special_token_is_neither_crossed_nor_spelled() -> None:
    spelled = tuple(b"<end>")
    lattice = Lattice((*spelled, END), VOCABULARY)
    assert lattice.data == b"<end><end>"
    assert END not in lattice.pieces(0)
    assert list(lattice.pieces(5)) == [END]


def test_an_id_that_bytes_alone_would_not_give_stays_possible_where_it_was_given() -> None:
    twin = Vocabulary.from_pieces({0: b"a", 1: b"a", 2: b"b"}, {}, avoid=[0])
    lattice = Lattice((0, 2), twin)
    assert lattice.pieces(0) == {0: 1, 1: 1}


def test_a_change_that_does_not_fit_is_refused() -> None:
    lattice = Lattice((AB, C, END), VOCABULARY)
    with pytest.raises(ValueError, match="bytes 1 to 3"):
        replaced((AB, C, END), [Change(1, 3, (BC,))], lattice)
    with pytest.raises(ValueError, match="bytes 0 to 2"):
        replaced((AB, C, END), [Change(0, 3, (ABC,)), Change(0, 2, (A, B))], lattice)


def test_overlapping_changes_give_way_to_the_one_before() -> None:
    first, second, third = Change(0, 3, (ABC,)), Change(2, 4, (C, A)), Change(3, 4, (A,))
    assert disjoint([third, second, first]) == [first, third]
