"""Tool calls as text: what a model may have written, given the arguments that a server handed out.

A server that parses arguments and writes them again leaves only the value. Each function returns `Form`s: the texts
that lead to the same arguments, the standard one first, with a weight that says how usual each is.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, NamedTuple

from eagletui.core.outputs import Losses, Tools

COMPACT_WEIGHT = 0.3
"""JSON without spaces after `,` and `:`, which models write now and then."""
ESCAPED_WEIGHT = 0.1
"""JSON with non-ASCII characters as escapes."""
INDENTED_WEIGHT = 0.05
NUMBER_WEIGHT = 0.1
"""A number in another notation of the same value."""
OUTER_SPACE_WEIGHT = 0.02
SLASH_WEIGHT = 0.05
"""`\\/` for `/`."""
PYTHON_WEIGHT = 0.2
"""`True` where the family's template writes `true`, or the other way round."""

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_ESCAPE = re.compile(r"[^\x00-\x7f]")


class Form(NamedTuple):
    """One text that gives the same arguments."""

    text: str
    weight: float
    """Relative to the standard form."""
    note: str
    """What differs from the standard form; empty for the standard one."""


def json_forms(arguments: str, losses: Losses, types: Mapping[str, str]) -> tuple[Form, ...]:
    """Return the JSON texts that a server with these losses hands out as `arguments`.

    Args:
        arguments: the JSON text as received.
        losses: what the server does to arguments.
        types: declared JSON type per top-level parameter.

    Returns:
        Forms, the most likely first. Text that is no JSON comes back as it is.
    """
    loss = losses.arguments
    if loss == "verbatim" or not _is_object(arguments):
        return (Form(arguments, 1.0, ""),)
    forms = [Form(arguments, 1.0, "")]
    if loss in ("reserialised", "reserialised-ascii"):
        if loss == "reserialised-ascii":
            plain = _respace(arguments, ", ", ": ", _unescape)
            forms = [Form(plain, 1.0, "")] + (
                [Form(arguments, ESCAPED_WEIGHT, "escaped")] if plain != arguments else []
            )
        else:
            forms += _when_different(arguments, _respace(arguments, ", ", ": ", _escape), ESCAPED_WEIGHT, "escaped")
        plain = forms[0].text
        forms += _when_different(plain, _respace(plain, ",", ":", str), COMPACT_WEIGHT, "compact")
        forms += _when_different(plain, _indent(plain), INDENTED_WEIGHT, "indented")
        forms += _when_different(plain, plain.replace("/", "\\/"), SLASH_WEIGHT, "slashes escaped")
    forms += [
        Form(_respell_numbers(form.text, types, how), form.weight * weight, _join(form.note, note))
        for how, weight, note in _number_ways(loss)
        for form in tuple(forms)
        if _respell_numbers(form.text, types, how) != form.text
    ]
    if arguments == "{}" and loss in ("coerced", "trimmed"):
        forms.append(Form("", NUMBER_WEIGHT, "no arguments at all"))
    forms.append(Form(f" {forms[0].text}\n", OUTER_SPACE_WEIGHT, "space around the arguments"))
    return tuple(sorted(forms, key=lambda form: -form.weight))


def parameter_forms(arguments: str, losses: Losses, types: Mapping[str, str], tools: Tools) -> tuple[Form, ...]:
    """Return the parameter lists of a tag format (GLM, DSML, Qwen3.5, MiniMax) that give these arguments.

    Args:
        arguments: the JSON object as received.
        losses: what the server does to arguments.
        types: declared JSON type per parameter.
        tools: the format's tool section: `parameter`, `between_parameters` and `booleans`.

    Returns:
        Forms, the most likely first. Arguments that are no JSON object give none.
    """
    if not _is_object(arguments):
        return ()
    lists: list[Form] = [Form("", 1.0, "")]
    for position, (key, value) in enumerate(_members(arguments)):
        joint = tools.between_parameters if position else ""
        lists = [
            Form(
                before.text + joint + fill(tools.parameter, {"key": key, "value": form.text, "string": mark}),
                before.weight * form.weight,
                _join(before.note, form.note),
            )
            for before in lists
            for form, mark in _value_forms(value, types.get(key, ""), losses, tools)
        ]
        lists = sorted(lists, key=lambda form: -form.weight)[:12]
    return tuple(lists)


def gemma_form(arguments: str) -> tuple[Form, ...]:
    """Return Gemma 4's notation: sorted bare keys, strings between quote tokens."""
    if not _is_object(arguments):
        return ()
    return (Form(_gemma_value(json.loads(arguments)).removeprefix("{").removesuffix("}"), 1.0, ""),)


def fill(pattern: str, values: Mapping[str, str]) -> str:
    """Put values into the named fields of a literal pattern; other braces stay.

    Args:
        pattern: text with fields such as {name}.
        values: text per field name.
    """
    names = "|".join(re.escape(name) for name in values)
    return re.sub(f"\\{{({names})\\}}", lambda match: values[match.group(1)], pattern) if values else pattern


def declared_types(tools_json: str | None) -> dict[str, dict[str, str]]:
    """Read the declared tools of a request: JSON type per parameter per tool. Broken declarations give nothing."""
    try:
        declared = json.loads(tools_json) if tools_json else []
    except ValueError:
        return {}
    found: dict[str, dict[str, str]] = {}
    for tool in declared if isinstance(declared, list) else []:
        function = tool.get("function", tool) if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            continue
        parameters = function.get("parameters")
        properties = parameters.get("properties") if isinstance(parameters, dict) else None
        found[function["name"]] = {
            str(key): str(value.get("type", "")) if isinstance(value, dict) else ""
            for key, value in (properties.items() if isinstance(properties, dict) else ())
        }
    return found


def _value_forms(value: str, declared: str, losses: Losses, tools: Tools) -> Iterator[tuple[Form, str]]:
    """Yield each text of one value with the `string` mark that goes with it."""
    if value.startswith('"'):
        yield Form(json.loads(value), 1.0, ""), "true"
        return
    if value in ("true", "false"):
        python = value.capitalize()
        plain, other = (python, value) if tools.booleans == "python" else (value, python)
        yield Form(plain, 1.0, ""), "false"
        yield Form(other, PYTHON_WEIGHT, f"{other} for {plain}"), "false"
        return
    if value[0] in "{[":
        yield Form(value, 1.0, ""), "false"
        compact = _respace(value, ",", ":", str)
        if compact != value:
            yield Form(compact, COMPACT_WEIGHT, "compact"), "false"
        return
    yield Form(value, 1.0, ""), "false"
    for how, weight, note in _number_ways(losses.arguments):
        other = _respell_number(value, declared, how)
        if other != value:
            yield Form(other, weight, note), "false"


NumberWay = Literal["whole as decimal", "whole as exponent", "two decimals"]


def _number_ways(loss: str) -> tuple[tuple[NumberWay, float, str], ...]:
    ways: tuple[tuple[NumberWay, float, str], ...] = (
        ("whole as exponent", NUMBER_WEIGHT, "number with an exponent"),
        ("two decimals", NUMBER_WEIGHT / 2, "number with two decimals"),
    )
    if loss == "trimmed":
        return ()
    return (("whole as decimal", 1.2, "whole number with a decimal"), *ways) if loss == "coerced" else ways


def _respell_numbers(text: str, types: Mapping[str, str], how: NumberWay) -> str:
    """Respell the top-level numbers of a JSON object."""
    pieces: list[str] = []
    depth, key, last = 0, "", 0
    for match in _TOKEN.finditer(text):
        token = match.group()
        pieces.append(text[last : match.start()])
        last = match.end()
        depth += (token in "{[") - (token in "}]")
        if depth == 1 and token.startswith('"'):
            key = json.loads(token)
        elif depth == 1 and token[0] in "-0123456789":
            token = _respell_number(token, types.get(key, ""), how)
        pieces.append(token)
    return "".join((*pieces, text[last:]))


def _respell_number(literal: str, declared: str, how: NumberWay) -> str:
    """Write one number in another notation of the same value, or return it unchanged."""
    if how == "whole as decimal":
        return f"{literal}.0" if declared == "number" and re.fullmatch(r"-?\d+", literal) else literal
    if how == "two decimals":
        return f"{literal}0" if re.fullmatch(r"-?\d+\.\d", literal) else literal
    match = re.fullmatch(r"(-?[1-9]\d*?)(0+)(\.0)?", literal)
    if match is None or (declared == "integer" and match.group(3) is None) or len(match.group(2)) < 2:
        return literal
    return f"{match.group(1)}e{len(match.group(2))}"


def _members(arguments: str) -> list[tuple[str, str]]:
    """Split a JSON object into keys and the JSON text of their values, number literals kept."""
    members: list[tuple[str, str]] = []
    depth, key, start = 0, "", 0
    awaiting_key = True
    for match in _TOKEN.finditer(arguments):
        token = match.group()
        if token in "}]":
            depth -= 1
        if depth == 1 and awaiting_key and token.startswith('"'):
            key, awaiting_key = json.loads(token), False
        elif depth == 1 and token == ":" and start == 0:
            start = match.end()
        if (depth == 1 and token == "," and start) or (depth == 0 and token == "}" and start):
            members.append((key, arguments[start : match.start()].strip()))
            start, awaiting_key = 0, True
        if token in "{[":
            depth += 1
    return members


def _respace(text: str, comma: str, colon: str, string: Callable[[str], str]) -> str:
    """Write JSON text again with these separators; literals other than strings stay as they are."""
    pieces = {",": comma, ":": colon}
    return "".join(
        string(token) if token.startswith('"') else pieces.get(token, token) for token in _TOKEN.findall(text)
    )


def _indent(text: str) -> str:
    """Write JSON text with every top-level member on its own line, two spaces deep, as `json.dumps(indent=2)`."""
    pieces: list[str] = []
    depth, previous = 0, ""
    for token in _TOKEN.findall(text):
        depth -= token in "}]"
        if (token in "}]" and previous not in ("{", "[")) or (previous in ("{", "[", ",") and token not in "}]"):
            pieces.append("\n" + "  " * depth)
        pieces.append(": " if token == ":" else token)
        depth += token in "{["
        previous = token
    return "".join(pieces)


def _escape(string: str) -> str:
    """Escape the non-ASCII characters of one JSON string literal."""
    return json.dumps(json.loads(string)) if _ESCAPE.search(string) else string


def _unescape(string: str) -> str:
    """Write one JSON string literal with its non-ASCII characters plain."""
    return json.dumps(json.loads(string), ensure_ascii=False) if "\\u" in string else string


def _gemma_value(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_gemma_value(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_gemma_value(item) for item in value) + "]"
    return f'<|"|>{value}<|"|>' if isinstance(value, str) else json.dumps(value)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _when_different(standard: str, other: str, weight: float, note: str) -> list[Form]:
    return [Form(other, weight, note)] if other != standard else []


def _join(*notes: str) -> str:
    return ", ".join(note for note in notes if note)
