"""The one door: nothing that passes it can drive a terminal."""

import sys
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagletui.core.text import cell_width, clean_block, clean_line, shorten, visible

HARMFUL = ("Cc", "Cf", "Cs", "Zl", "Zp")


def harmful(text: str) -> list[str]:
    return [char for char in text if unicodedata.category(char) in HARMFUL]


@pytest.mark.parametrize(
    ("hostile", "expected"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x9b31mred", "red"),
        ("\x1b]0;owned\x07title", "title"),
        ("\x1b]52;c;ZWNobyBvd25lZA==\x1b\\clip", "clip"),
        ("\x9d52;c;AAAA\x9cclip", "clip"),
        ("\x1bP1;2qdcs\x1b\\after", "after"),
        ("\x1b_apc\x1b\\after", "after"),
        ("\x1b(0lqk", "lqk"),
        ("\x1bcreset", "reset"),
        ("\x1b[?1049hscreen", "screen"),
        ("a\x08\x08b\x07\x7f", "ab"),
        ("safe\u202egnp.exe", "safegnp.exe"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("lone \ud83d end", "lone \ufffd end"),
        ("[/foo] [b]x[/b] [type=x, v={'a[0]'}] [/", "[/foo] [b]x[/b] [type=x, v={'a[0]'}] [/"),
        ("tab\there", "tab here"),
        ("", ""),
    ],
)
def test_control_sequences_are_dropped_whole_and_text_stays(hostile: str, expected: str) -> None:
    assert clean_line(hostile) == expected


def test_an_unterminated_sequence_cannot_hide_the_text_behind_it() -> None:
    assert clean_line("\x1b]0;title and then the answer") == "]0;title and then the answer"
    assert clean_line("\x1b[") == "["
    assert clean_line("\x1b") == ""


def test_no_code_point_of_a_control_or_invisible_kind_passes() -> None:
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    assert harmful(clean_block(every).replace("\n", "")) == []
    assert harmful(clean_line(every)) == []


@given(st.text(alphabet=st.characters(exclude_categories=()), max_size=300))
def test_any_text_comes_out_printable_and_cleaning_twice_changes_nothing(text: str) -> None:
    line = clean_line(text)
    block = clean_block(text)
    assert harmful(line) == []
    assert harmful(block.replace("\n", "")) == []
    assert clean_line(line) == line
    assert clean_block(block) == block
    assert harmful(visible(text)) == []
    assert all(" " <= char <= "~" for char in clean_line(text, ascii_=True) + visible(text, ascii_=True))


@given(st.binary(max_size=60))
def test_any_bytes_can_be_shown_as_a_token(piece: bytes) -> None:
    assert harmful(visible(piece)) == []


@given(st.text(max_size=80), st.integers(0, 40))
def test_a_shortened_line_never_passes_its_width(text: str, width: int) -> None:
    assert cell_width(clean_line(text, width)) <= width


def test_a_cut_is_marked_and_wide_characters_are_never_halved() -> None:
    assert clean_line("lighthouse keeper", 10) == "lighthous…"
    assert clean_line("lighthouse keeper", 10, ascii_=True) == "lighthous~"
    assert shorten("灯台守の話", 6) == "灯台…"
    assert cell_width("灯台é") == 5
    assert clean_line("exact", 5) == "exact"


def test_every_line_break_becomes_one_mark_on_a_line_and_one_line_feed_in_a_block() -> None:
    text = "a\r\nb\rc\nd\u2028e\x85f\n\ng"
    assert clean_line(text) == "a⏎b⏎c⏎d⏎e⏎f⏎g"
    assert clean_line(text, newline=" ") == "a b c d e f g"
    assert clean_line(text, ascii_=True) == "a\\nb\\nc\\nd\\ne\\nf\\ng"
    assert clean_block(text) == "a\nb\nc\nd\ne\nf\n\ng"


def test_marks_piled_on_one_letter_are_thinned() -> None:
    assert clean_line("z" + "\u0301" * 200 + "!") == "z\u0301\u0301\u0301!"


def test_tokens_show_whitespace_broken_characters_and_hidden_characters() -> None:
    assert visible(b" kept\n\t") == "·kept⏎→"
    assert visible(b"\xe2") == "<E2>"
    assert visible(b"\xe2\x80\x94") == "—"
    assert visible(b"x\x1b[31m") == "x<1B>[31m"
    assert visible("a\u202eb\u200d") == "a<U+202E>b<U+200D>"
    assert visible("·") == "<U+00B7>", "a real middle dot is not a space"
    assert visible("\u0301") == "◌\u0301"
    assert visible(" né\n\t", ascii_=True) == ".n<U+00E9>\\n->"


def test_a_megabyte_of_hostile_text_is_cleaned_in_linear_time() -> None:
    text = "\x1b]" * 300_000 + "\x9b" * 300_000 + "\u0301" * 300_000
    started = time.perf_counter()
    clean_block(text)
    assert time.perf_counter() - started < 5
