"""Loading real tokenizers without remote code."""

import json
import shutil
from pathlib import Path

import pytest
from tokenizers import Tokenizer as HfTokenizer

from eagletui.core.errors import TokenizerError
from eagletui.tokens.load import Tokenizer, load_tokenizer
from eagletui.tokens.stand_in import COMPARISON_CORPUS


def test_smollm2_encodes_as_the_tokenizers_library_does(smollm2: Tokenizer) -> None:
    library = HfTokenizer.from_file(str(smollm2.folder / "tokenizer.json"))
    for text in COMPARISON_CORPUS:
        if "<|im_end|>" not in text:
            assert smollm2.encode(text) == library.encode(text, add_special_tokens=False).ids


def test_a_special_token_spelled_in_content_stays_ordinary_text(smollm2: Tokenizer, kimi: Tokenizer) -> None:
    for tokenizer in (smollm2, kimi):
        ids = tokenizer.encode("ends with <|im_end|> and </think>")
        assert not any(tokenizer.vocabulary.is_special(token_id) for token_id in ids)
        assert tokenizer.vocabulary.decode(ids) == b"ends with <|im_end|> and </think>"


def test_the_faster_encoder_is_used_where_it_agrees(smollm2: Tokenizer) -> None:
    assert smollm2.encoder is not smollm2.reference
    assert smollm2.agrees_with_reference("it doesn't matter: 12  34\n\n")
    assert smollm2.without_stand_in().encoder is smollm2.reference


def test_every_ordinary_piece_of_smollm2_is_found_by_its_bytes(smollm2: Tokenizer) -> None:
    vocabulary = smollm2.vocabulary
    assert vocabulary.size == 49152
    assert len(vocabulary.specials) == 17
    for token_id, piece in enumerate(vocabulary.pieces):
        if piece is not None:
            assert vocabulary.id_of(piece) == token_id


def test_kimi_specials_have_their_ids_and_reserved_ones_a_name(kimi: Tokenizer) -> None:
    vocabulary = kimi.vocabulary
    assert vocabulary.special_id("<|im_end|>") == 163586
    assert vocabulary.special_id("</think>") == 163607
    assert vocabulary.special_text(163800) == "<|reserved_token_163800|>"
    assert vocabulary.size == 163840
    assert kimi.eos_token == "[EOS]"
    assert vocabulary.bytes_of(163533) == b" arbete"


def test_kimi_splits_han_from_other_letters(kimi: Tokenizer) -> None:
    parts = ("abc", "漢字", "def", "日本語", "のテキスト")
    assert kimi.encode("".join(parts)) == [token_id for part in parts for token_id in kimi.encode(part)]


def test_kimi_encodes_a_run_longer_than_the_reference_allows_in_pieces(kimi: Tokenizer) -> None:
    ids = kimi.encode("a" * 60_000)
    assert kimi.vocabulary.decode(ids) == b"a" * 60_000
    assert ids[: len(kimi.encode("a" * 25_000))] == kimi.encode("a" * 25_000)


def test_a_unicode_normalizer_is_switched_off_and_noted(smollm2: Tokenizer, tmp_path: Path) -> None:
    document = json.loads((smollm2.folder / "tokenizer.json").read_text())
    document["normalizer"] = {"type": "NFC"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    tokenizer = load_tokenizer(tmp_path)
    assert any("NFC" in note for note in tokenizer.notes)
    assert tokenizer.vocabulary.decode(tokenizer.encode("e\u0301")) == "e\u0301".encode()


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("README.md", "nothing here", "found README.md, expected tokenizer.json or tiktoken.model"),
        ("tokenizer.json", "{", "damaged JSON"),
        ("tokenizer.json", "[]", "tokenizer.json"),
        ("tokenizer.json", '{"model": {"vocab": []}}', "model.vocab"),
        ("tokenizer.json", '{"model": {"type": "Unigram", "vocab": {}}}', "Unigram"),
        ("tiktoken.model", "!!! 0", "tiktoken.model:1"),
        ("tiktoken.model", "IQ== 0", "added_tokens_decoder"),
    ],
)
def test_a_folder_that_cannot_be_loaded_is_refused_by_name(
    tmp_path: Path, name: str, content: str, complaint: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(TokenizerError, match=complaint):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("claimed", [-5, 99_999_999_999, "x", 1.5, True, None])
def test_ids_that_are_no_ids_are_refused_in_every_kind_of_file(claimed: object, tmp_path: Path) -> None:
    decoder = {"type": "ByteLevel"}
    table = {"model": {"type": "BPE", "vocab": {"a": claimed}, "merges": []}, "decoder": decoder}
    (tmp_path / "tokenizer.json").write_text(json.dumps(table))
    with pytest.raises(TokenizerError, match=r"model\.vocab: found id .* of 'a'"):
        load_tokenizer(tmp_path)
    added = [{"id": claimed, "content": "<s>", "special": True}]
    whole = {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "decoder": decoder, "added_tokens": added}
    (tmp_path / "tokenizer.json").write_text(json.dumps(whole))
    with pytest.raises(TokenizerError, match="added_tokens: found id"):
        load_tokenizer(tmp_path)
    if isinstance(claimed, int) and claimed is not True:
        (tmp_path / "tokenizer.json").unlink()
        (tmp_path / "tiktoken.model").write_text(f"YQ== {claimed}\n")
        (tmp_path / "tokenizer_config.json").write_text('{"added_tokens_decoder": {}}')
        with pytest.raises(TokenizerError, match="found id"):
            load_tokenizer(tmp_path)


def test_the_same_file_is_built_into_tables_once_and_each_folder_keeps_its_own_settings(
    smollm2: Tokenizer, tmp_path: Path
) -> None:
    shutil.copy(smollm2.folder / "tokenizer.json", tmp_path)
    first, second = load_tokenizer(smollm2.folder), load_tokenizer(tmp_path)
    assert second.vocabulary is first.vocabulary
    assert (second.folder, second.chat_template, second.config) == (tmp_path, None, {})
    assert first.chat_template is not None


def test_an_absent_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="found nothing"):
        load_tokenizer(tmp_path / "absent")


@pytest.mark.slow
def test_a_folder_of_another_kind_is_converted_by_transformers_with_a_note(smollm2: Tokenizer, tmp_path: Path) -> None:
    model = json.loads((smollm2.folder / "tokenizer.json").read_text())["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]))
    merges = "\n".join(" ".join(merge) for merge in model["merges"])
    (tmp_path / "merges.txt").write_text(f"#version: 0.2\n{merges}\n")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    tokenizer = load_tokenizer(tmp_path)
    assert any("transformers" in note for note in tokenizer.notes)
    ids = tokenizer.encode("Hello world")
    assert ids == smollm2.encode("Hello world")
    assert tokenizer.vocabulary.decode(ids) == b"Hello world"
