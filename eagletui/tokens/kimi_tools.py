"""Kimi K2.5's declaration of tools: TypeScript, as the model was trained on it.

The model's own tokenizer class writes it before the chat template runs (`tool_declaration_ts` of moonshotai/Kimi-K2.5)
and falls back to JSON when it meets a schema it does not know; so does this module, by returning None.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Schema = Mapping[str, object]

INDENT = "  "
_UNION = {
    "string": "string",
    "number": "number",
    "integer": "number",
    "boolean": "boolean",
    "null": "null",
    "object": "{}",
    "array": "Array<any>",
}
_CONSTRAINTS: Mapping[str, tuple[str, ...]] = {
    "string": ("maxLength", "minLength", "pattern"),
    "number": ("maximum", "minimum"),
    "integer": ("maximum", "minimum"),
    "array": ("maxItems", "minItems"),
}
_CHECKED: Mapping[str, type | tuple[type, ...]] = {
    "string": str,
    "number": (int, float),
    "integer": int,
    "boolean": bool,
}


class _UnknownSchemaError(Exception):
    """A schema that the declaration has no notation for."""


@dataclass
class _Function:
    """What one function's parameters refer to while they are written."""

    definitions: dict[str, object] = field(default_factory=dict)
    refers_to_itself: bool = False


def declare_tools(tools: Sequence[object]) -> str | None:
    """Write the tools of a request as Kimi K2.5 reads them.

    Args:
        tools: the request's `tools` array.

    Returns:
        The TypeScript text; "" without functions; None when a schema has no notation, where the model's own code
        declares all tools as JSON.
    """
    try:
        written = [
            _declare(tool["function"])
            for tool in tools
            if isinstance(tool, Mapping)
            and tool.get("type") == "function"
            and isinstance(tool.get("function"), Mapping)
            if tool["function"]
        ]
    except _UnknownSchemaError:
        return None
    if not written:
        return ""
    return "# Tools\n\n## functions\nnamespace functions {\n" + "\n".join(written) + "\n}\n"


def sort_keys(value: object) -> object:
    """Sort the keys of all objects in a JSON value, as Kimi's tokenizer does with tools."""
    if isinstance(value, Mapping):
        return {key: sort_keys(value[key]) for key in sorted(value)}
    return [sort_keys(item) for item in value] if isinstance(value, list) else value


def _declare(function: Schema) -> str:
    scope = _Function()
    parameters = function.get("parameters") or {}
    if not isinstance(parameters, Mapping):
        raise _UnknownSchemaError
    root = _object(parameters, scope, "")
    lines: list[str] = []
    if scope.refers_to_itself:
        members = _properties(parameters, scope, INDENT, in_order=True)
        lines.append("interface parameters {" + (f"\n{_listed(members)}\n" if members else "") + "}")
        root = "parameters"
    for name, definition in tuple(scope.definitions.items()):
        described = definition.get("description") if isinstance(definition, Mapping) else None
        comment = f"{_comment(str(described), '')}\n" if described else ""
        lines.append(f"{comment}interface {name} {_type(definition, scope, '')}")
    if described := function.get("description"):
        lines.append(_comment(str(described), ""))
    lines.append(f"type {function.get('name', 'function')} = (_: {root}) => any;")
    return "\n".join(lines)


def _type(schema: object, scope: _Function, indent: str) -> str:
    """Write the type of one schema."""
    if isinstance(schema, bool):
        return "any" if schema else "null"
    if not isinstance(schema, Mapping):
        raise _UnknownSchemaError
    if "$ref" in schema:
        return _reference(str(schema["$ref"]), scope)
    if "anyOf" in schema:
        return " | ".join(_type(choice, scope, indent) for choice in _list(schema["anyOf"]))
    if "enum" in schema:
        return _enumeration(schema)
    kind = schema.get("type")
    if isinstance(kind, list):
        if any(name not in _UNION for name in kind):
            raise _UnknownSchemaError
        return " | ".join(_UNION[name] for name in kind)
    if kind == "object":
        return _object(schema, scope, indent)
    if kind == "array":
        return _array(schema, scope, indent)
    if isinstance(kind, str):
        return "number" if kind == "integer" else kind
    if not schema:
        return "any"
    raise _UnknownSchemaError


def _reference(target: str, scope: _Function) -> str:
    if target == "#":
        scope.refers_to_itself = True
        return "parameters"
    name = target.rpartition("/")[2]
    if not target.startswith("#/$defs/") or name not in scope.definitions:
        raise _UnknownSchemaError
    return name


def _enumeration(schema: Schema) -> str:
    values = _list(schema["enum"])
    kind = schema.get("type")
    if isinstance(kind, list):
        named = [name for name in kind if name != "null"]
        if len(kind) > 2 or (len(kind) == 2 and len(named) != 1):
            raise _UnknownSchemaError
        kind = named[0] if named else "null"
    expected = _CHECKED.get(str(kind))
    if expected and any(value is not None and not isinstance(value, expected) for value in values):
        raise _UnknownSchemaError
    return " | ".join(f'"{value}"' if isinstance(value, str) else str(value) for value in values)


def _object(schema: Schema, scope: _Function, indent: str) -> str:
    definitions = schema.get("$defs")
    if isinstance(definitions, Mapping):
        scope.definitions.update(definitions)
    inner = indent + INDENT
    extra = schema.get("additionalProperties")
    extra_type = _type(extra, scope, inner) if isinstance(extra, Mapping) else None
    members = _properties(schema, scope, inner)
    if extra is not None:
        members.append(f"{inner}[k: string]: {extra_type or ('any' if extra else 'never')}")
    return f"{{\n{_listed(members)}\n{indent}}}" if members else "{}"


def _properties(schema: Schema, scope: _Function, indent: str, *, in_order: bool = False) -> list[str]:
    """Write the properties: the required ones by name, then the optional ones by name."""
    properties = schema.get("properties", {})
    if not isinstance(properties, Mapping):
        raise _UnknownSchemaError
    required = set(_list(schema.get("required") or []))
    names = list(properties) if in_order else sorted(properties, key=lambda name: (name not in required, name))
    return [
        _documentation(properties[name], indent)
        + f"{indent}{name}{'' if name in required else '?'}: {_type(properties[name], scope, indent)}"
        for name in names
    ]


def _array(schema: Schema, scope: _Function, indent: str) -> str:
    items = schema.get("items")
    if not items:
        return "Array<any>"
    inner = indent + INDENT
    documented = _documentation(items, inner, with_default=False)
    if not documented:
        return f"Array<{_type(items, scope, indent)}>"
    return f"Array<\n{documented}{inner}{_type(items, scope, inner)}\n{indent}>"


def _documentation(schema: object, indent: str, *, with_default: bool = True) -> str:
    """Write the comment lines above a property or an array item."""
    if not isinstance(schema, Mapping):
        return ""
    lines = [_comment(str(schema["description"]), indent)] if schema.get("description") else []
    plain = not any(key in schema for key in ("$ref", "anyOf", "enum"))
    kind = schema.get("type")
    known = _CONSTRAINTS.get(kind, ()) if plain and isinstance(kind, str) else ()
    constraints = [f"{key}: {schema[key]}" for key in known if key in schema]
    if constraints:
        lines.append(f"{indent}// {', '.join(constraints)}")
    default = schema.get("default")
    if with_default and default is not None:
        shown = repr(default) if isinstance(default, int | float) else json.dumps(default, ensure_ascii=False)
        lines.append(f"{indent}// Default: {shown}")
    return "".join(f"{line}\n" for line in lines)


def _comment(text: str, indent: str) -> str:
    return "\n".join(f"{indent}// {line}" if line else "" for line in text.split("\n"))


def _listed(members: Sequence[str]) -> str:
    return ",\n".join(members)


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise _UnknownSchemaError
    return value
