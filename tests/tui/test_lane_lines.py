"""Two tokenizations laid out as lines."""

from hypothesis import given
from hypothesis import strategies as st

from eagletui.core.text import cell_width
from eagletui.core.tokdiff import lanes
from eagletui.core.vocabulary import Vocabulary
from eagletui.tui.lane_lines import LaneLine, LaneOptions, lay_out, lay_out_one, span_words, token_text

PIECES = {
    0: b"a",
    1: b"b",
    2: b"ab",
    3: b" kept",
    4: b"\n",
    5: b"\xe2",
    6: b"\x80",
    7: b"\x94",
    8: "—".encode(),
    9: b"\t",
    10: "灯".encode(),
    11: b"\x1b[31m",
    12: "\u202e".encode(),
    13: b"|",
    14: b"x" * 200,
}
VOCABULARY = Vocabulary.from_pieces(PIECES, {"<|im_end|>": 15})
WIDE = LaneOptions(76)


def texts(lines: list[LaneLine]) -> list[str]:
    return ["".join(text for text, _ in line.pieces()).rstrip() for line in lines]


def test_agreement_is_one_lane_and_a_span_is_doubled_with_its_reason() -> None:
    a = [3, 5, 6, 7, 3, 15]
    b = [3, 8, 3, 15]
    shown = texts(lay_out(lanes(a, b, VOCABULARY), VOCABULARY, WIDE))
    assert shown == [
        "       0  proved     ·kept│[<E2>│<80>│<94>]│·kept│<|im_end|>",
        "          canonical  ·kept│[—]             │·kept│<|im_end|>",
        "          ~ span 1 of 1: same 3 bytes, 3 tokens against 1 token",
        "",
    ]


def test_context_before_a_span_is_short_and_offsets_count_bytes() -> None:
    a = [3, 3, 3, 3, 3, 0, 1, 3]
    b = [3, 3, 3, 3, 3, 2, 3]
    shown = texts(lay_out(lanes(a, b, VOCABULARY), VOCABULARY, WIDE))
    assert shown[0] == "       0  ·kept│·kept│·kept"
    assert shown[1] == "      15  proved     ·kept│·kept│[a│b]│·kept"
    assert shown[2] == "          canonical  ·kept│·kept│[ab] │·kept"


def test_each_kind_of_span_is_said_in_words() -> None:
    def words(a: list[int], b: list[int]) -> list[str]:
        return [span_words(lane) for lane in lanes(a, b, VOCABULARY) if lane.kind != "="]

    assert words([0, 1], [2]) == ["same 2 bytes, 2 tokens against 1 token"]
    assert words([3, 0], [3, 1]) == ["different text, 1 token against 1 token"]
    assert words([3, 0], [3]) == ["only proved, 1 token"]
    assert words([3], [3, 4]) == ["only canonical, 1 token"]


def test_ids_and_bytes_take_the_place_of_text() -> None:
    line = lay_out_one([3, 4, 15], VOCABULARY, LaneOptions(76, view="ids"))
    assert texts(line) == ["       0  3│4│15"]
    line = lay_out_one([4, 8], VOCABULARY, LaneOptions(76, view="bytes"))
    assert texts(line) == ["       0  0a│e2 80 94"]
    line = lay_out_one([3, 4, 9, 13], VOCABULARY, LaneOptions(76, ascii_=True))
    assert texts(line) == ["       0  .kept|\\n|->||"]


def test_an_id_that_names_nothing_is_shown_as_that() -> None:
    assert token_text(99, VOCABULARY, "text") == "<no token 99>"
    assert token_text(99, VOCABULARY, "ids") == "99"
    assert texts(lay_out_one([3, 99], VOCABULARY, WIDE)) == ["       0  ·kept│<no token 99>"]


def test_a_long_side_keeps_its_beginning_and_its_count() -> None:
    shown = texts(lay_out(lanes([3] * 60 + [15], [3, 15], VOCABULARY), VOCABULARY, WIDE))
    doubled = [line for line in shown if "more]" in line]
    assert len(doubled) == 1
    assert "[none]" in "\n".join(shown)


@given(
    st.lists(st.integers(0, 15), max_size=80),
    st.lists(st.integers(0, 15), max_size=80),
    st.integers(40, 130),
    st.sampled_from(["text", "ids", "bytes"]),
    st.booleans(),
)
def test_no_line_is_wider_than_asked_and_every_span_is_there(
    a: list[int], b: list[int], width: int, view: str, ascii_: bool
) -> None:
    options = LaneOptions(width, view, ascii_)  # type: ignore[arg-type]
    found = lanes(a, b, VOCABULARY)
    lines = lay_out(found, VOCABULARY, options)
    assert max((cell_width("".join(text for text, _ in line.pieces())) for line in lines), default=0) <= width
    spans = sum(lane.kind != "=" for lane in found)
    assert {line.span for line in lines if line.span is not None} == set(range(spans))
    plain = "".join(text for line in lines for text, _ in line.pieces())
    assert "\x1b" not in plain
    assert "\u202e" not in plain
    if ascii_:
        assert plain.isascii()


def test_unwrapped_each_line_of_the_text_is_one_row_and_every_span_has_its_column() -> None:
    a = [3] * 30 + [4] + [3] * 3 + [0, 1] + [3] * 30 + [4, 3]
    b = [3] * 30 + [4] + [3] * 3 + [2] + [3] * 30 + [4, 3]
    lines = lay_out(lanes(a, b, VOCABULARY), VOCABULARY, LaneOptions(40, wrap=False))
    assert [line.row for line in lines] == ["plain", "a", "b", "note", "gap", "plain"]
    assert texts(lines)[0].endswith("│·kept│⏎")
    assert texts(lines)[1][lines[1].label_cells + lines[1].column(0) :].startswith("[a│b]")
    assert max(cell_width(text) for text in texts(lines)) == max(line.cells for line in lines) - 1
