"""A span as a table: both tokenizations over and under the bytes they share."""

from hypothesis import given
from hypothesis import strategies as st

from eagletui.core.text import cell_width
from eagletui.core.tokdiff import Lane, lanes
from eagletui.tui.span_table import span_table
from tests.tui.test_lane_lines import VOCABULARY


def table(a: list[int], b: list[int], room: int = 60, *, ascii_: bool = False) -> list[str]:
    (lane,) = [lane for lane in lanes(a, b, VOCABULARY) if lane.kind != "="]
    lines = span_table(lane, VOCABULARY, room, ascii_=ascii_)
    return ["".join(text for text, _ in line) for line in lines]


def test_tokens_stand_over_and_under_the_bytes_that_both_sides_hold() -> None:
    assert table([5, 6, 7], [8]) == [
        "proved     │<E2>│<80>│<94>│",
        "3 ids      │5   │6   │7   │",
        "3 bytes    │e2   80   94  │  on both sides",
        "1 id       │8             │",
        "canonical  │—             │",
    ]
    assert table([0, 1], [2], ascii_=True) == [
        "proved     |a |b |",
        "2 ids      |0 |1 |",
        "2 bytes    |61 62|  on both sides",
        "1 id       |2    |",
        "canonical  |ab   |",
    ]


def test_sides_with_other_bytes_have_a_line_of_bytes_each() -> None:
    assert table([3, 0], [3, 10]) == [
        "proved     │a │",
        "1 id       │0 │",
        "1 byte     │61│",
        "3 bytes    │e7 81 af│",
        "1 id       │10      │",
        "canonical  │灯      │",
    ]
    assert table([3, 4], [3])[-1] == "canonical  none"


@given(st.lists(st.integers(0, 15), max_size=20), st.lists(st.integers(0, 15), max_size=20), st.integers(30, 120))
def test_no_line_is_wider_than_its_room(a: list[int], b: list[int], room: int) -> None:
    for lane in lanes(a, b, VOCABULARY):
        shown: Lane = lane
        if shown.kind != "=":
            for line in span_table(shown, VOCABULARY, room):
                assert sum(cell_width(text) for text, _ in line) <= room
