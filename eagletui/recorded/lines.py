"""JSON lines of recorded replies and ids: read with the line and field of every fault, written whole or not at all."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from eagletui.core.errors import InputError, Problem, ReplyError
from eagletui.core.text import clean_line
from eagletui.files.replacement import Replacement
from eagletui.providers.decoding import decode_json
from eagletui.tokens.load import Tokenizer

Progress = Callable[[int, int], None]
"""Called with lines done and lines in all."""


def read_text(path: Path, number: int, field: str, value: object) -> str:
    """Read a text of a line that can be written again.

    Raises:
        InputError: it is none, is empty, or holds a lone surrogate.
    """
    if not isinstance(value, str) or not value:
        raise problem(path, number, field, "nothing" if value is None else value, "a text")
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        raise problem(path, number, field, ascii(value), "a text without lone surrogates")
    return value


def problem(path: Path, line: int, field: str | None, found: object, expected: str) -> InputError:
    """A fault of an input line, worded as everywhere."""
    shown = found if isinstance(found, str) else json.dumps(found, default=str, ensure_ascii=False)
    return InputError(str(Problem(str(path), line, field, clean_line(shown, 60) or "empty text", expected)))


def read_objects(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """Read the JSON objects of a file with their line numbers.

    Raises:
        InputError: a line that is no JSON object, or none at all.
    """
    objects: list[tuple[int, dict[str, Any]]] = []
    for number, line in numbered_lines(path):
        try:
            value = decode_json(line)
        except ReplyError as error:
            raise InputError(f"{path}:{number}: {error}") from error
        if not isinstance(value, dict):
            raise problem(path, number, None, value, "a JSON object")
        objects.append((number, value))
    return objects


def numbered_lines(path: Path) -> list[tuple[int, bytes]]:
    """Read the lines of a file that are not blank, each with its number.

    Raises:
        InputError: the file cannot be read, or holds no such line.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    lines = [(number, line) for number, line in enumerate(content.split(b"\n"), 1) if line.strip()]
    if not lines:
        raise InputError(f"{path}: found no lines, expected one JSON object a line")
    return lines


def read_ids(path: Path, number: int, field: str, value: object, tokenizer: Tokenizer | None) -> tuple[int, ...]:
    """Read a list of token ids of a line.

    Raises:
        InputError: it is none, or an id is not in the vocabulary.
    """
    if not isinstance(value, list):
        raise problem(path, number, field, value, "a list of token ids")
    for position, token_id in enumerate(value):
        if not isinstance(token_id, int) or isinstance(token_id, bool):
            raise problem(path, number, f"{field}[{position}]", token_id, "a token id")
        if tokenizer is not None and token_id not in tokenizer.vocabulary:
            expected = f"an id of the vocabulary of {tokenizer.vocabulary.size}"
            raise problem(path, number, f"{field}[{position}]", token_id, expected)
    return tuple(value)


def write_lines(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Write JSON lines, whole or not at all.

    Raises:
        InputError: the place cannot be written.
    """
    try:
        with Replacement(path) as stream:
            for line in lines:
                stream.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from error
