"""Deltas of whole characters, against a tokenizer library and hand-made cases."""

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from eagletui.core.vocabulary import Vocabulary
from eagletui.embedded.data import replay_path, tokenizer_dir
from eagletui.embedded.deltas import load_vocabulary, split_deltas
from eagletui.embedded.replay import load_recordings

PARTY = (10813, 232, 227)
"""🎉 in SmolLM2's vocabulary: f0 9f, 8e, 89."""
STOP = 2


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return load_vocabulary(tokenizer_dir())


def test_tokens_inside_a_character_join_the_delta_that_completes_it(vocabulary: Vocabulary) -> None:
    deltas = split_deltas((57, *PARTY, 30), vocabulary)
    assert [(delta.text, delta.ids) for delta in deltas] == [("I", (57,)), ("🎉", PARTY), (".", (30,))]


def test_the_stop_token_shows_no_text(vocabulary: Vocabulary) -> None:
    assert [(delta.text, delta.ids) for delta in split_deltas((57, STOP), vocabulary)] == [("I", (57,)), ("", (STOP,))]


def test_a_cut_character_is_dropped_but_its_ids_are_not(vocabulary: Vocabulary) -> None:
    assert [(delta.text, delta.ids) for delta in split_deltas((57, *PARTY[:2]), vocabulary)] == [
        ("I", (57,)),
        ("", PARTY[:2]),
    ]


def test_a_token_that_ends_inside_a_character_is_held_back_whole(vocabulary: Vocabulary) -> None:
    space_and_party = (15107, *PARTY[1:])  # " \xf0\x9f", \x8e, \x89
    deltas = split_deltas((57, *space_and_party, 30), vocabulary)
    assert [(delta.text, delta.ids) for delta in deltas] == [("I", (57,)), (" 🎉", space_and_party), (".", (30,))]
    assert [delta.text for delta in split_deltas((57, 15107), vocabulary)] == ["I", ""]


def test_bytes_that_never_become_a_character_are_shown_as_replacement(vocabulary: Vocabulary) -> None:
    assert "".join(delta.text for delta in split_deltas((10813, 57), vocabulary)) == "\ufffdI"


def test_recorded_answers_read_as_the_tokenizer_library_decodes_them(vocabulary: Vocabulary) -> None:
    tokenizer = Tokenizer.from_file(str(tokenizer_dir() / "tokenizer.json"))
    recordings = load_recordings(replay_path())
    assert len(recordings) == 160
    for recording in recordings:
        deltas = [delta for delta in split_deltas(recording.output_ids, vocabulary) if delta.text]
        shown_ids = [id_ for delta in deltas for id_ in delta.ids]
        assert "".join(delta.text for delta in deltas) == tokenizer.decode(shown_ids, skip_special_tokens=True)


@given(ids=st.lists(st.integers(min_value=0, max_value=49_151), max_size=40))
def test_deltas_keep_every_id_and_the_decoded_text(ids: list[int]) -> None:
    vocabulary = load_vocabulary(tokenizer_dir())
    deltas = split_deltas(tuple(ids), vocabulary)
    assert list(chain.from_iterable(delta.ids for delta in deltas)) == ids
    for delta in deltas:
        shown = b"".join(vocabulary.bytes_of(id_) for id_ in delta.ids if id_ >= 17)
        assert delta.text in (shown.decode("utf-8", "replace"), "")
    assert all(delta.text for delta in deltas[:-1])
