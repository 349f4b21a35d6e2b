"""Whether tool calls are what the request's tools allow: a small, forgiving part of JSON Schema.

Checked are `type`, `required`, `properties`, `additionalProperties: false`, `items`, `enum`, `const`, `anyOf` and
`oneOf` (one must hold) and `allOf`. Keywords beyond these allow everything, and so does a schema that is none: a
fault is only ever called where the request states it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from eagletui.core.chat import ToolCall

_DEPTH: Final = 32
"""Deeper values are not looked at."""

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


class CallFaults(NamedTuple):
    """What is wrong with the calls of one answer; each None where it cannot be told."""

    invalid_json: bool | None
    """Arguments are no JSON object."""
    unknown_name: bool | None
    """A name that the request does not declare."""
    off_schema: bool | None
    """Arguments that the declared parameters do not allow."""


NO_CALLS: Final = CallFaults(None, None, None)


def call_faults(calls: Sequence[ToolCall], tools_json: str | None) -> CallFaults:
    """Judge the calls of one answer.

    Args:
        calls: as received.
        tools_json: the request's `tools` array as JSON text; None where it has none, which makes every name unknown.
    """
    if not calls:
        return NO_CALLS
    schemas = declared(tools_json)
    if schemas is None:
        return CallFaults(any(_arguments(call) is None for call in calls), None, None)
    parsed = [(call, _arguments(call)) for call in calls]
    known = [(schemas[call.name], arguments) for call, arguments in parsed if call.name in schemas]
    readable = [(schema, arguments) for schema, arguments in known if arguments is not None]
    return CallFaults(
        invalid_json=any(arguments is None for _, arguments in parsed),
        unknown_name=len(known) < len(calls),
        off_schema=any(violation(arguments, schema) is not None for schema, arguments in readable)
        if readable
        else None,
    )


@lru_cache(maxsize=256)
def declared(tools_json: str | None) -> Mapping[str, Any] | None:
    """Return the parameter schemas of a request's tools by name; None where the tools cannot be read."""
    if tools_json is None:
        return {}
    try:
        tools = json.loads(tools_json)
    except (ValueError, RecursionError):
        return None
    if not isinstance(tools, list):
        return None
    found: dict[str, Any] = {}
    for tool in tools:
        function = tool.get("function", tool) if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            return None  # a tool of another kind, whose calls cannot be judged
        found[function["name"]] = function.get("parameters", {})
    return found


def violation(value: Any, schema: Any, path: str = "arguments", depth: int = 0) -> str | None:
    """Return the first thing that a schema does not allow, as `path: what`; None where all is allowed.

    Args:
        value: decoded JSON.
        schema: decoded JSON Schema.
        path: names the value.
        depth: how deep it lies.
    """
    if not isinstance(schema, dict) or depth > _DEPTH:
        return None
    kinds = schema.get("type")
    names = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
    if names and not any(_is_kind(value, name) for name in names):
        return f"{path}: {_kind_of(value)} where {' or '.join(map(str, names))} is asked"
    allowed = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(allowed, list) and not any(_same(value, one) for one in allowed):
        return f"{path}: not one of the allowed values"
    return _combined(value, schema, path, depth) or _inside(value, schema, path, depth)


def _combined(value: Any, schema: Mapping[str, Any], path: str, depth: int) -> str | None:
    for part in _schemas(schema.get("allOf")):
        if (found := violation(value, part, path, depth + 1)) is not None:
            return found
    for word in ("anyOf", "oneOf"):
        parts = list(_schemas(schema.get(word)))
        if parts and all(violation(value, part, path, depth + 1) is not None for part in parts):
            return f"{path}: allowed by none of {len(parts)} alternatives"
    return None


def _inside(value: Any, schema: Mapping[str, Any], path: str, depth: int) -> str | None:
    if isinstance(value, list):
        for index, item in enumerate(value):
            if (found := violation(item, schema.get("items"), f"{path}[{index}]", depth + 1)) is not None:
                return found
        return None
    if not isinstance(value, dict):
        return None
    required = schema.get("required")
    missing = [name for name in required if name not in value] if isinstance(required, list) else []
    if missing:
        return f"{path}: {missing[0]} is missing"
    properties = schema.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    for name, item in value.items():
        if name in properties:
            found = violation(item, properties[name], f"{path}.{name}", depth + 1)
        elif schema.get("additionalProperties") is False and "patternProperties" not in schema:
            found = f"{path}: {name} is not declared"
        else:
            found = None
        if found is not None:
            return found
    return None


def _schemas(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list) else ()


def _is_kind(value: Any, name: Any) -> bool:
    kinds = _TYPES.get(name) if isinstance(name, str) else None
    if kinds is None:
        return True
    if isinstance(value, bool):
        return bool(name == "boolean")
    if name == "integer" and isinstance(value, float):
        return bool(value.is_integer())
    return isinstance(value, kinds)


def _kind_of(value: Any) -> str:
    return next(name for name in ("boolean", "integer", *_TYPES) if _is_kind(value, name))


def _same(one: Any, other: Any) -> bool:
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)


def _arguments(call: ToolCall) -> dict[str, Any] | None:
    try:
        found = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
