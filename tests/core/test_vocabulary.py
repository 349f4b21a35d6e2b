"""Bytes per id and back, on tables small enough to read."""

import pytest

from eagletui.core.vocabulary import (
    Vocabulary,
    byte_level_bytes,
    pack_vocabulary,
    sentencepiece_bytes,
    unpack_vocabulary,
)

GEMMA_LIKE = Vocabulary.from_sentencepiece(
    {"<pad>": 0, "<0x41>": 1, "A": 2, "▁the": 3, "<0xF0>": 4, "<end_of_turn>": 5}, {"<pad>": 0, "<end_of_turn>": 5}
)


def test_byte_level_pieces_decode_to_the_bytes_of_gpt2s_alphabet() -> None:
    assert byte_level_bytes("Ġthe") == b" the"
    assert byte_level_bytes("Ċ") == b"\n"
    assert byte_level_bytes("ðŁİ") == b"\xf0\x9f\x8e"
    assert byte_level_bytes("<｜end｜>") is None


def test_sentencepiece_pieces_decode_spaces_and_single_bytes() -> None:
    assert sentencepiece_bytes("▁the") == b" the"
    assert sentencepiece_bytes("<0xF0>") == b"\xf0"


def test_a_real_piece_wins_over_the_byte_token_with_the_same_bytes() -> None:
    assert GEMMA_LIKE.id_of(b"A") == 2
    assert GEMMA_LIKE.bytes_of(1) == b"A"
    assert not GEMMA_LIKE.is_shared(b"A")


def test_two_real_pieces_with_the_same_bytes_are_reported_as_shared() -> None:
    vocabulary = Vocabulary((b"a", b"b", b"a"), {})
    assert vocabulary.id_of(b"a") == 0
    assert vocabulary.is_shared(b"a")


def test_a_special_is_found_by_its_literal_only_and_decodes_back() -> None:
    assert GEMMA_LIKE.special_id("<end_of_turn>") == 5
    assert GEMMA_LIKE.special_text(5) == "<end_of_turn>"
    assert GEMMA_LIKE.bytes_of(5) == b"<end_of_turn>"
    assert GEMMA_LIKE.id_of(b"<end_of_turn>") is None
    assert GEMMA_LIKE.decode([3, 2, 5]) == b" theA<end_of_turn>"


def test_unknown_ids_are_told_apart_from_known_ones() -> None:
    assert 5 in GEMMA_LIKE
    assert 6 not in GEMMA_LIKE
    assert -1 not in GEMMA_LIKE
    assert GEMMA_LIKE.first_unknown([3, 99, 2]) == 99
    with pytest.raises(KeyError):
        GEMMA_LIKE.bytes_of(99)
    with pytest.raises(KeyError):
        GEMMA_LIKE.bytes_of(-1)


def test_packing_and_unpacking_gives_the_same_vocabulary() -> None:
    again = unpack_vocabulary(pack_vocabulary(GEMMA_LIKE))
    assert again == GEMMA_LIKE
    assert again.id_of(b"A") == 2


@pytest.mark.parametrize("damage", [b"", b"EAGLEVO1", b"EAGLEVO1\x09\x00", b"not a vocabulary at all"])
def test_a_damaged_pack_is_refused(damage: bytes) -> None:
    with pytest.raises(ValueError, match="vocabulary"):
        unpack_vocabulary(damage)
