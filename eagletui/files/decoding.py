"""Decode JSON that says what a folder holds: a file that a hand has changed is named with field, found and expected."""

import re
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from eagletui.core.errors import Problem, RunError
from eagletui.core.text import clean_line

DecodedT = TypeVar("DecodedT")

_SHOWN: Final = 60
_MISSING = re.compile(r"Object missing required field `(?P<name>\w+)`")
_EXPECTED = re.compile(r"Expected (?P<expected>.*?)(, got [^,]*)?\Z")
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")


def decode(path: Path, content: bytes, kind: type[DecodedT], line: int | None = None) -> DecodedT:
    """Decode one object.

    Args:
        path: of the file, for the message.
        content: JSON.
        kind: a dataclass or msgspec struct; fields that it does not know are ignored.
        line: of the file, from 1; None where the object is the whole file.

    Raises:
        RunError: names file, field, what was found and what is expected.
    """
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:
        problem = _problem(path, line, content, kind, str(error))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        problem = Problem(str(path), line, None, f"broken JSON ({clean_line(str(error), _SHOWN)})", "one JSON object")
    raise RunError(f"{problem}.")


def _problem(path: Path, line: int | None, content: bytes, kind: type[Any], said: str) -> Problem:
    what, _, where = said.partition(" - at `$")
    field = where.rstrip("`").lstrip(".")
    missing = _MISSING.search(what)
    if missing is not None:
        name = f"{field}.{missing['name']}" if field else missing["name"]
        return Problem(str(path), line, name, "nothing", "a value")
    choices = _choices(get_type_hints(kind).get(field))
    expected = _EXPECTED.search(what)
    wanted = " or ".join(choices) if choices else (expected["expected"].replace("`", "") if expected else what)
    return Problem(str(path), line, field or None, _shown(content, field), wanted)


def _choices(hint: Any) -> list[str]:
    """List what a field of a few known words takes."""
    if get_origin(hint) is Literal:
        return [repr(word) for word in get_args(hint)]
    return [word for part in get_args(hint) for word in _choices(part)]


def _shown(content: bytes, field: str) -> str:
    value: Any = msgspec.json.decode(content)
    for name, index in _STEP.findall(field):
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and index:
            value = value[int(index)]
        else:
            break
    return clean_line(msgspec.json.encode(value).decode(), _SHOWN)
