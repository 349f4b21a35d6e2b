"""Kimi's tokenizer files: `tiktoken.model` ranks, specials of `tokenizer_config.json`, and the fixed split pattern."""

import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import tiktoken

from eagletui.core.errors import TokenizerError
from eagletui.core.vocabulary import Vocabulary
from eagletui.tokens.id_range import check_ids

PATTERN: Final = "|".join(
    [
        r"[\p{Han}]+",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
"""Split pattern of moonshotai's tokenization_kimi.py, in tiktoken's regex dialect (`&&` intersects sets)."""

RESERVED_SPECIALS: Final = 256
"""Ids after the ranks; those without a name are `<|reserved_token_N|>`."""

_ENCODE_CHARACTERS: Final = 400_000
_RUN_CHARACTERS: Final = 25_000
_LONG_RUN: Final = re.compile(rf"\s{{{_RUN_CHARACTERS + 1}}}|\S{{{_RUN_CHARACTERS + 1}}}")


def load_tiktoken_folder(
    folder: Path, source: bytes, config: Mapping[str, Any]
) -> tuple[Vocabulary, Callable[[str], list[int]], tuple[str, ...]]:
    """Read `tiktoken.model` and the named specials.

    Raises:
        TokenizerError: a line of the ranks or a special token is malformed.
    """
    ranks = read_ranks(folder / "tiktoken.model", source)
    specials = _specials(folder, len(ranks), config)
    vocabulary = Vocabulary.from_pieces({rank: piece for piece, rank in ranks.items()}, specials)
    encoding = tiktoken.Encoding(folder.name, pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})

    def encode(text: str) -> list[int]:
        ids: list[int] = []
        for piece in _reference_pieces(text):
            ids += encoding.encode_ordinary(piece)
        return ids

    return vocabulary, encode, ()


def read_ranks(path: Path, source: bytes) -> dict[bytes, int]:
    """Parse `base64 rank` lines.

    Raises:
        TokenizerError: names the line.
    """
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(source.splitlines(), 1):
        if not line.strip():
            continue
        try:
            encoded, rank = line.split()
            ranks[binascii.a2b_base64(encoded, strict_mode=True)] = int(rank)
        except (ValueError, binascii.Error) as error:
            raise TokenizerError(
                f"{path}:{number}: found {line[:40]!r}, expected a base64 piece and its rank"
            ) from error
    if not ranks:
        raise TokenizerError(f"{path}: found no ranks, expected one `base64 rank` a line")
    check_ids(str(path), ranks.items())
    return ranks


def _specials(folder: Path, rank_count: int, config: Mapping[str, Any]) -> dict[str, int]:
    declared = config.get("added_tokens_decoder")
    where = f"{folder / 'tokenizer_config.json'}: field added_tokens_decoder"
    if not isinstance(declared, Mapping):
        raise TokenizerError(f"{where}: found nothing, expected the special tokens by id")
    names: dict[int, str] = {}
    for key, entry in declared.items():
        content = entry.get("content") if isinstance(entry, Mapping) else None
        if not (isinstance(key, str) and key.isdecimal() and isinstance(content, str)):
            raise TokenizerError(f"{where}.{key}: found {entry!r}, expected an object with `content`")
        names[int(key)] = content
    check_ids(where, ((content, token_id) for token_id, content in names.items()))
    for token_id in range(rank_count, rank_count + RESERVED_SPECIALS):
        names.setdefault(token_id, f"<|reserved_token_{token_id}|>")
    return {content: token_id for token_id, content in names.items()}


def _reference_pieces(text: str) -> Iterator[str]:
    """Cut very long texts and runs where the reference implementation cuts them."""
    for start in range(0, len(text), _ENCODE_CHARACTERS):
        chunk = text[start : start + _ENCODE_CHARACTERS]
        if _LONG_RUN.search(chunk):
            yield from _split_runs(chunk)
        else:
            yield chunk


def _split_runs(text: str) -> Iterator[str]:
    """Cut so that no piece holds more than 25,000 consecutive space or non-space characters."""
    start = run = 0
    was_space = text[0].isspace()
    for index, character in enumerate(text):
        is_space = character.isspace()
        if is_space != was_space:
            was_space, run = is_space, 1
            continue
        run += 1
        if run > _RUN_CHARACTERS:
            yield text[start:index]
            start, run = index, 1
    yield text[start:]
