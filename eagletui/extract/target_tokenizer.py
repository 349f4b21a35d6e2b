"""Hold the tokenizer that lies with a target model to the run's: an id must stand for the same bytes in both.

Files that differ may hold the same table, serialised anew, so the tables decide and not the files.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from eagletui.core.checks import Check
from eagletui.core.errors import TokenizerError
from eagletui.core.reports import Report
from eagletui.core.text import clean_line
from eagletui.core.vocabulary import Vocabulary, byte_level_bytes, sentencepiece_bytes, unpack_vocabulary
from eagletui.models.identity import gguf_pieces
from eagletui.tokens.load import load_tokenizer

_FILES: Final = ("tokenizer.json", "tiktoken.model")

_NAME: Final = "tokenizer"

IsSame = Callable[[int, bytes], bool]
"""Tells whether an id stands for these bytes."""


def compare_tokenizer(model: Path, tokenizer_hash: str | None, vocabulary: Path) -> Check | None:
    """Compare the tokenizer of a target with that of the run whose ids it computes.

    Args:
        model: a folder, or a `.gguf` file.
        tokenizer_hash: sha256 of the run's tokenizer file, hex.
        vocabulary: the run's packed vocabulary; it may be gone.

    Returns:
        None where no run stands behind the ids. An `error` where ordinary ids stand for other bytes; a `warn` where
        only special tokens do, or nothing could be compared.

    Raises:
        ModelError: the header of the `.gguf` file cannot be read.
    """
    if tokenizer_hash is None:
        return None
    is_folder = model.is_dir()
    file = next((model / name for name in _FILES if (model / name).is_file()), None) if is_folder else model
    pieces = [] if is_folder else gguf_pieces(model)
    if file is None or not (is_folder or pieces):
        return Check(_NAME, True, "warn", f"not compared: {model} holds no tokenizer")
    if is_folder and hashlib.sha256(file.read_bytes()).hexdigest() == tokenizer_hash:
        return Check(_NAME, True, "warn", f"{file} is the run's")
    try:
        known = unpack_vocabulary(vocabulary.read_bytes())
        is_same = _of_folder(model) if is_folder else _of_pieces(pieces)
    except OSError:
        return Check(
            _NAME, False, "warn", f"not compared: {file} is another file than the run's, and {vocabulary} is gone"
        )
    except (ValueError, TokenizerError) as error:
        return Check(_NAME, False, "warn", f"not compared: {clean_line(str(error), 200)}")
    return _compared(file, known, is_same)


def warn_of_other_tokenizer(model: Path, tokenizer_hash: str | None, vocabulary: Path, report: Report) -> None:
    """Say where a target's tokenizer is not the run's, see `compare_tokenizer`."""
    check = compare_tokenizer(model, tokenizer_hash, vocabulary)
    if check is not None and not check.ok:
        report("warn", "tokenizer_differs", f"The target's tokenizer: {check.detail}.")


def _compared(file: Path, known: Vocabulary, is_same: IsSame) -> Check:
    ids = [token_id for token_id in range(known.size) if token_id in known]
    other = [token_id for token_id in ids if not is_same(token_id, known.bytes_of(token_id))]
    if not other:
        return Check(_NAME, True, "warn", f"{len(ids):,} ids of the run stand for the same bytes in {file}")
    ordinary = [token_id for token_id in other if not known.is_special(token_id)]
    first = (ordinary or other)[0]
    text = clean_line(repr(known.bytes_of(first).decode("utf-8", "replace")), 60)
    kind = "" if ordinary else " special"
    detail = f"{len(other):,} of {len(ids):,} ids do not stand for the same bytes in {file}, the first{kind} is {first}"
    return Check(_NAME, False, "error" if ordinary else "warn", f"{detail}, {text} in the run")


def _of_folder(model: Path) -> IsSame:
    found = load_tokenizer(model).vocabulary
    return lambda token_id, data: token_id in found and found.bytes_of(token_id) == data


def _of_pieces(pieces: list[str]) -> IsSame:
    return lambda token_id, data: token_id < len(pieces) and data in _spelled(pieces[token_id])


def _spelled(piece: str) -> Iterator[bytes | None]:
    """Read a piece in each spelling: literal as special tokens are, byte-level, with `▁` for a space."""
    yield piece.encode()
    yield byte_level_bytes(piece)
    with suppress(ValueError):  # `<0x` and no number
        yield sentencepiece_bytes(piece)
