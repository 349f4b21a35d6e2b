"""Typed access to the fields of one JSON record; every fault names the field, what is there and what would do."""

from collections.abc import Sequence

from eagletui.core.text import clean_line

FOUND_CELLS = 60


class Fault(Exception):
    """A field of a record is wrong. Caught by the reader, which adds file and line."""

    def __init__(self, field: str | None, found: str, expected: str) -> None:
        """Keep what a `Problem` needs."""
        super().__init__(f"{field}: found {found}, expected {expected}")
        self.field = field
        self.found = found
        self.expected = expected


def found(value: object) -> str:
    """Describe a JSON value in a few words, cleaned for display."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str() if not value.strip():
            return "a blank string"
        case str():
            return f'"{clean_line(value, FOUND_CELLS)}"'
        case dict():
            return f"an object with {_counted(len(value), 'key')}"
        case list():
            return f"a list of {_counted(len(value), 'item')}"
        case _:
            return clean_line(str(value), FOUND_CELLS)


def take_object(value: object, field: str) -> dict[str, object]:
    """Return a JSON object, or raise `Fault`."""
    if not isinstance(value, dict):
        raise Fault(field, found(value), "an object")
    return value


def take_list(value: object, field: str) -> list[object]:
    """Return a non-empty JSON list, or raise `Fault`."""
    if not isinstance(value, list) or not value:
        raise Fault(field, found(value), "a list with at least one item")
    return value


def take_text(value: object, field: str) -> str:
    """Return a string with something in it, or raise `Fault`."""
    if not isinstance(value, str) or not value.strip():
        raise Fault(field, found(value), "text")
    return encodable(value, field)


def take_optional_text(value: object, field: str) -> str | None:
    """Return a string, or None for null and for an empty string; anything else raises `Fault`."""
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise Fault(field, found(value), "text or null")
    return encodable(value, field)


def encodable(text: str, field: str) -> str:
    """Return a text that UTF-8 can hold, or raise `Fault`: half of a surrogate pair is no character."""
    if text.isascii():
        return text
    at = next((at for at, character in enumerate(text) if "\ud800" <= character <= "\udfff"), None)
    if at is not None:
        what = f"the lone surrogate U+{ord(text[at]):04X} at character {at + 1}"
        raise Fault(field, what, "text that UTF-8 can hold")
    return text


def find_lone_surrogate(value: object, field: str) -> None:
    """Raise `Fault` for the first text in a JSON value that UTF-8 cannot hold, names of fields included."""
    match value:
        case str():
            encodable(value, field)
        case list():
            for index, item in enumerate(value):
                find_lone_surrogate(item, f"{field}[{index}]")
        case dict():
            for name, item in value.items():
                encodable(name, field or "the record")
                find_lone_surrogate(item, f"{field}.{name}" if field else str(name))


def one_of(names: Sequence[str]) -> str:
    """Write a choice as words: `a, b or c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
