"""What counts and texts say, and where the last whole character ends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagletui.core.fidelity import (
    covers,
    judge_count,
    same_text,
    same_up_to_last_whole_character,
    up_to_last_whole_character,
    whole_characters,
)
from eagletui.core.vocabulary import Vocabulary

BYTES = Vocabulary((*(bytes([byte]) for byte in range(256)), None), {"<e>": 256})


@pytest.mark.parametrize(
    ("data", "length"),
    [
        (b"", 0),
        (b"abc", 3),
        ("a🎉".encode(), 5),
        ("a🎉".encode()[:-1], 1),
        ("a🎉".encode()[:-3], 1),
        ("中".encode()[:1], 0),
        (b"ab\xc3\xc3", 2),
        (b"ab\x80", 2),
        (b"\xff\xff\xff\xff\xff\xff", 0),
    ],
)
def test_the_last_whole_character_ends_before_unfinished_and_stray_bytes(data: bytes, length: int) -> None:
    assert whole_characters(data) == length


@given(st.text(max_size=8), st.integers(0, 3))
def test_cutting_into_the_last_character_leaves_all_the_others(text: str, cut: int) -> None:
    data = (text + "🎉").encode()
    assert whole_characters(data[: len(data) - cut]) == len(data) - (4 if cut else 0)


def test_ids_are_compared_up_to_the_last_whole_character_and_specials_count() -> None:
    truth = list("a🎉".encode())
    assert same_up_to_last_whole_character(truth[:1], truth[:3], BYTES)
    assert same_up_to_last_whole_character(truth[:2], truth[:3], BYTES)
    assert not same_up_to_last_whole_character(truth[:1], truth, BYTES)
    assert not same_up_to_last_whole_character([*truth], [*truth, 256], BYTES)
    assert up_to_last_whole_character([*truth[:3], 256], BYTES) == (ord("a"),)


def test_a_count_is_canonical_without_a_bill_and_never_more_than_counted() -> None:
    assert judge_count(7, None, 0) == "canonical"
    assert judge_count(7, 7, 0) == "counted"
    assert judge_count(7, 6, 0) == "conflict"
    assert judge_count(7, 6, -1) == "counted"


def test_replaced_bytes_compare_equal_to_the_bytes_they_stand_for() -> None:
    assert same_text("a\ufffdb", b"a\xe6\xb8b")
    assert same_text("a\ufffd\ufffdb", b"a\xffb")
    assert not same_text("a\ufffdb", b"ab")


def test_texts_are_looked_for_in_order() -> None:
    raw = b"reason</think>\n\nanswer<|im_end|>"
    assert covers(raw, ["reason", "answer"])
    assert covers(raw, ["reason", "\nanswer"])
    assert not covers(raw, ["reason\n", "answer"])
    assert not covers(raw, ["answer", "reason"])
    assert not covers(raw, ["reason", "other"])


def test_only_blanks_and_named_literals_may_stand_around_the_texts() -> None:
    raw = b"reason</think>\n\nanswer<|im_end|>"
    assert covers(raw, ["reason", "answer"], {"</think>", "<|im_end|>"})
    assert not covers(raw, ["reason", "answer"], {"</think>"})
    assert not covers(raw, ["answer"], {"</think>", "<|im_end|>"})
    assert covers(b"answer\xe2\x98", ["answer"], set())
