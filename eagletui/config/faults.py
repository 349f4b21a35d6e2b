"""Faults of a config file in words a person can act on: file, line, key, found, expected, the nearest valid key."""

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, get_args

from pydantic import BaseModel

_PATTERNS: Final[dict[str, str]] = {
    "name": "letters, digits, dots, dashes and underscores, a letter or a digit first",
    "base_url": "an address that starts with http:// or https://",
    "server": "an address that starts with http:// or https://",
}
"""What the keys with a pattern want, in words."""


def _known_keys(model: type[BaseModel], loc: tuple[str | int, ...]) -> list[str]:
    """Return the keys valid beside the last part of an error's location."""
    for part in loc[:-1]:
        field = model.model_fields.get(str(part))
        inner = [field.annotation, *get_args(field.annotation)] if field else []
        nested = [kind for kind in inner if isinstance(kind, type) and issubclass(kind, BaseModel)]
        model = nested[0] if nested else model
    return [name for name in model.model_fields if name != "overrides"]


def describe_fault(model: type[BaseModel], path: Path, text: str, fault: Mapping[str, Any]) -> str:
    """Say in one line where a config is wrong, what was found and what would do.

    Args:
        model: the config's pydantic model, for the names of valid keys.
        path: the file, as the person gave it.
        text: its content, to find the line.
        fault: one entry of `ValidationError.errors()`.
    """
    loc: tuple[str | int, ...] = tuple(fault["loc"])
    shown = ".".join(str(part) for part in loc if part != "overrides") or "(file)"
    line = _line_of(text, tuple(str(part) for part in loc if part != "overrides" and not isinstance(part, int)))
    where = f"{path}:{line}" if line else str(path)
    kind, found = fault["type"], fault.get("input")
    if kind == "extra_forbidden":
        known = _known_keys(model, loc)
        near = difflib.get_close_matches(str(loc[-1]), known, n=1, cutoff=0.4)
        hint = f"the nearest valid key is {near[0]}" if near else f"valid keys: {', '.join(known)}"
        return f"{where}: {shown}: found an unknown key; {hint}"
    if kind == "missing" and len(loc) == 1:
        return f"{where}: found no [{loc[0]}] section, expected one; there are examples in configs/"
    if kind == "missing":
        return f"{where}: {shown}: found nothing, expected a value; this key has no default"
    expected = str(fault["msg"]).removeprefix("Value error, ").removeprefix("Input should be ")
    if kind == "string_pattern_mismatch":
        expected = _PATTERNS.get(str(loc[-1]), expected)
    if kind == "value_error" and isinstance(found, dict | BaseModel):
        return f"{where}: {shown}: expected {expected}"
    return f"{where}: {shown}: found {_short(found)}, expected {expected}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


_HEADER = re.compile(r"^\s*\[\s*([^\[\]]+?)\s*\]\s*(?:#.*)?$")
_KEY = re.compile(r"""^\s*["']?([^"'=\s]+)["']?\s*=""")


def _line_of(text: str, keys: tuple[str, ...]) -> int | None:
    """Find the line of a dotted key, else of its section's header."""
    section: tuple[str, ...] = ()
    header_line: int | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            section = tuple(part.strip().strip("\"'") for part in header.group(1).split("."))
            if section and section == keys[: len(section)]:
                header_line = number
        elif (key := _KEY.match(line)) and (*section, *key.group(1).split(".")) == keys:
            return number
    return header_line
