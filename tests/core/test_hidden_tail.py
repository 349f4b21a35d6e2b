"""What a cut inside a character can hide."""

from hypothesis import given
from hypothesis import strategies as st

from eagletui.core.hidden_tail import UnfinishedPieces, is_unfinished
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
