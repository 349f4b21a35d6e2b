"""What a cut inside a character can hide."""

from hypothesis import given
from hypothesis import strategies as st

from eagletui.core.hidden_tail import (
    EITHER,
    Tails,
    UnfinishedPieces,
    count_tokens,
    is_unfinished,
    mark,
    unfinished_bytes,
)
from eagletui.core.vocabulary import Vocabulary

PIECES = {0: b"a", 1: b"\xf0", 2: b"\xf0\x9f", 3: b"\x9f", 4: b"\x8e", 5: b"\x8e\x89", 6: b"\xe3\x81", 7: b" \xf0"}


@given(st.characters(codec="utf-8").map(str.encode), st.data())
def test_every_beginning_of_a_character_is_unfinished_and_the_whole_is_not(data: bytes, drawn: st.DataObject) -> None:
    assert not is_unfinished(data)
    if len(data) > 1:
        assert is_unfinished(data[: drawn.draw(st.integers(1, len(data) - 1))])


def test_stray_bytes_and_text_are_not_unfinished() -> None:
    assert not any(map(is_unfinished, (b"", b"a", b"\x9f", b"\xc0", b"\xff", b"\xf0a", b"a\xf0")))


def test_pieces_follow_a_tail_only_as_long_as_no_character_is_whole() -> None:
    unfinished = UnfinishedPieces(Vocabulary.from_pieces(PIECES, {"<end>": 8}))
    assert unfinished.following(b"") == (1, 2, 6)
    assert unfinished.following(b"\xf0") == (3, 4, 5)
    assert unfinished.following(b"\xf0\x9f") == (3, 4)
    assert unfinished.following(b"\xf0\x9f\x8e") == ()


def test_a_first_hidden_token_may_hold_whole_characters_that_a_server_shows_or_holds_back() -> None:
    pieces = UnfinishedPieces(Vocabulary.from_pieces(PIECES, {"<end>": 8}))
    assert pieces.longest_front == 1
    unsaid, shown = Tails(pieces, shown=False), Tails(pieces, shown=True)
    assert unsaid.first(b"") == {1: 0.0, 2: 0.0, 6: 0.0, 7: EITHER}
    assert unsaid.first(b" ") == {7: EITHER}
    assert shown.first(b"") == {1: 0.0, 2: 0.0, 6: 0.0}
    assert shown.first(b" ") == {7: 0.0}
    assert shown.first(b"a") == {}
    assert (len(unsaid.marks), len(shown.marks)) == (4, 3)


def test_marks_count_as_the_tokens_that_they_stand_for() -> None:
    assert [count_tokens((7, 0, mark(hidden))) for hidden in range(4)] == [2, 3, 4, 5]


@given(st.text(), st.characters(codec="utf-8", min_codepoint=128).map(str.encode), st.data())
def test_the_unfinished_end_of_bytes_is_what_a_character_lacks_its_end_of(
    text: str, character: bytes, drawn: st.DataObject
) -> None:
    size = drawn.draw(st.integers(1, len(character) - 1))
    assert unfinished_bytes(text.encode() + character[:size]) == size
    assert unfinished_bytes(text.encode() + character) == 0
