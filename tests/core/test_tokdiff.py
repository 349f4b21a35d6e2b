"""Aligning two tokenizations by byte offset."""

from hypothesis import given
from hypothesis import strategies as st

from eagletui.core.tokdiff import Span, align, is_hidden_tail, lanes
from eagletui.core.vocabulary import Vocabulary

LETTERS = Vocabulary((b"a", b"b", b"c", b"ab", b"bc", b"abc", b"<e>", None), {"<e>": 7})
A, B, C, AB, BC, ABC, SPELLED_E, E = range(8)


def test_equal_lists_have_no_spans_and_one_equal_lane() -> None:
    assert align([A, B, E], [A, B, E], LETTERS) == ()
    (lane,) = lanes([A, B, E], [A, B, E], LETTERS)
    assert (lane.offset, lane.length, lane.kind) == (0, 5, "=")


def test_resegmented_text_gives_the_smallest_span_between_common_boundaries() -> None:
    assert align([C, A, BC, C, E], [C, AB, C, C, E], LETTERS) == (Span(1, 3, (A, BC), (AB, C), "~"),)


def test_two_resegmented_runs_with_a_common_boundary_are_two_spans() -> None:
    assert align([A, B, A, BC], [AB, ABC], LETTERS) == (
        Span(0, 2, (A, B), (AB,), "~"),
        Span(2, 3, (A, BC), (ABC,), "~"),
    )


def test_a_wrong_end_token_is_other_text_at_the_end() -> None:
    assert align([A, B, E], [A, B, C], LETTERS) == (Span(2, 3, (E,), (C,), "!"),)


def test_what_only_one_side_has_is_named_and_placed() -> None:
    assert align([A, C, B], [A, B], LETTERS) == (Span(1, 1, (C,), (), "+"),)
    assert align([A, B], [A, C, B], LETTERS) == (Span(1, 0, (), (C,), "-"),)


def test_a_special_token_is_never_the_same_text_as_its_spelled_out_pieces() -> None:
    assert align([A, E], [A, SPELLED_E], LETTERS) == (Span(1, 3, (E,), (SPELLED_E,), "!"),)


def test_resegmented_text_beside_changed_text_keeps_its_own_span() -> None:
    assert align([A, BC, C], [AB, C, B], LETTERS) == (
        Span(0, 3, (A, BC), (AB, C), "~"),
        Span(3, 1, (C,), (B,), "!"),
    )


def test_a_long_repetitive_list_is_aligned_in_reasonable_time() -> None:
    spans = align([A] * 20_000 + [B] + [C] * 20_000, [A] * 20_000 + [C] * 20_000, LETTERS)
    assert spans == (Span(20_000, 1, (B,), (), "+"),)


ids = st.lists(st.integers(0, 7), max_size=30)


@given(ids, ids)
def test_lanes_put_both_lists_together_again_and_cover_a(a: list[int], b: list[int]) -> None:
    found = lanes(a, b, LETTERS)
    assert [token for lane in found for token in lane.a_ids] == a
    assert [token for lane in found for token in lane.b_ids] == b
    assert [lane.offset for lane in found] == [sum(other.length for other in found[:n]) for n in range(len(found))]
    assert sum(lane.length for lane in found) == len(LETTERS.decode(a))
    for lane in found:
        same = LETTERS.decode(lane.a_ids) == LETTERS.decode(lane.b_ids)
        assert same if lane.kind in "=~" else lane.a_ids != lane.b_ids


@given(st.lists(st.sampled_from([A, B, C, AB, BC, ABC]), max_size=30))
def test_two_segmentations_of_one_text_differ_only_by_resegmented_spans(a: list[int]) -> None:
    spelled = [LETTERS.id_of(bytes([byte])) or 0 for byte in LETTERS.decode(a)]
    spans = align(a, spelled, LETTERS)
    assert {span.kind for span in spans} <= {"~"}
    assert sum(len(span.a_ids) for span in spans) == sum(token in (AB, BC, ABC) for token in a)


def test_ids_behind_the_last_whole_character_are_a_hidden_tail_and_others_are_not() -> None:
    raw = "sun ☀"
    assert is_hidden_tail(Span(7, 2, (10813,), (), "+"), raw)
    assert not is_hidden_tail(Span(4, 3, (9,), (), "+"), raw), "the text has these bytes"
    assert not is_hidden_tail(Span(7, 0, (), (5,), "-"), raw)
    assert not is_hidden_tail(Span(7, 2, (1, 2), (3,), "~"), raw)
