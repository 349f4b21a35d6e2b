"""Values that no server should send, and every place of a document to put them."""

import copy
import json
from collections.abc import Iterator
from typing import Any, Final


class Raw(str):
    """JSON text that Python would not write."""


NASTY: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, -1, 1.5, -0.0001, 2**31, 2**63, 2**64, 10**30, -(10**30)),
    *map(Raw, ("1e400", "-1e400", "1e-400", "1e999999999999999999999", "9" * 5000, "0." + "3" * 5000, "NaN")),
    *("", "x", "NaN", "-Infinity", "sNaN", "1e400", "9" * 400, "token_id:" + "9" * 5000, "\0\x1b[31m", "a" * 10_000),
    *map(Raw, ('"\\ud83d"', '"\\udc00\\ud800"')),
    *([], {}, [None], [[]], [{}], {"a": 1}, [-1], [2**40], ["x"], {"message": {}}, {"type": 1}),
    *map(Raw, ("[" * 3000 + "]" * 3000, '{"a":' * 2000 + "1" + "}" * 2000)),
)


def variants(document: Any) -> Iterator[bytes]:
    """Yield the document with each nasty value in each place, and with each field left out, as JSON."""
    for path in _paths(document):
        for value in NASTY:
            yield to_json(_changed(document, path, value))
        if path and isinstance(path[-1], str):
            yield to_json(_without(document, path))


def to_json(value: Any) -> bytes:
    """Write JSON, raw pieces as they are."""
    return _text(value).encode()


def _text(value: Any) -> str:
    if isinstance(value, Raw):
        return value
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    return json.dumps(value)


def _paths(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _paths(item, (*path, key))


def _changed(document: Any, path: tuple[str | int, ...], value: Any) -> Any:
    if not path:
        return value
    changed = copy.deepcopy(document)
    _holder(changed, path)[path[-1]] = value
    return changed


def _without(document: Any, path: tuple[str | int, ...]) -> Any:
    changed = copy.deepcopy(document)
    del _holder(changed, path)[path[-1]]
    return changed


def _holder(document: Any, path: tuple[str | int, ...]) -> Any:
    for key in path[:-1]:
        document = document[key]
    return document
