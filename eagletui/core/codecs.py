"""Tool calls as text: what a model may have written, given the arguments that a server handed out.

A server that parses arguments and writes them again leaves only the value. `argument_forms` returns the ways to write
it that lead to the same arguments, the standard one first, with a weight that says how usual each is.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from eagletui.core.outputs import Field, Losses, Part, Special, Text, Tools, Written, split_specials

COMPACT_WEIGHT = 0.3
"""JSON without spaces after `,` and `:`, which models write now and then."""
ESCAPED_WEIGHT = 0.1
"""JSON with non-ASCII characters as escapes."""
INDENTED_WEIGHT = 0.05
NUMBER_WEIGHT = 0.1
"""A number in another notation of the same value."""
OUTER_SPACE_WEIGHT = 0.02
INNER_SPACE_WEIGHT = 0.01
"""Blanks inside the outer braces."""
HALF_WEIGHT = 0.04
"""A space after `:` and none after `,`."""
HTML_WEIGHT = 0.03
"""`<`, `>` and `&` as escapes, as encoders for web pages write them."""
SLASH_WEIGHT = 0.05
"""`\\/` for `/`."""
EXPONENT_WEIGHT = 0.6
"""An exponent, where a declared integer is shown with a decimal: the model wrote one of the two."""
STRIPPED_WEIGHT = 0.03
"""Whitespace around a text value, where the server takes it away."""
QUOTED_WEIGHT = 0.02
"""A text value that the model wrote, and marked, as JSON."""
PYTHON_WEIGHT = 0.1
"""`True` where the family's template writes `true`, or the other way round."""

GEMMA_QUOTE = '<|"|>'
"""Gemma 4's quote token."""
DEEPEST = 100
"""Nesting of arguments that is still taken apart; deeper ones stay as they came."""
LISTS = 12
"""Parameter lists kept while they are built up."""

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_ESCAPE = re.compile(r"[^\x00-\x7e]")


class _Text(NamedTuple):
    """A form that is text alone."""

    text: str
    weight: float
    note: str


def argument_forms(
    arguments: str, losses: Losses, types: Mapping[str, str], tools: Tools, specials: Sequence[str]
) -> tuple[Written, ...]:
    """Return the ways to write a call's arguments that this server hands out as `arguments`.

    Args:
        arguments: the JSON text as received.
        losses: what the server does to arguments.
        types: declared JSON type per top-level parameter.
        tools: the format's tool section.
        specials: the format's special strings; in values they stay text.

    Returns:
        Forms, the most likely first; at least one. Text that is no JSON object comes back as it is.
    """
    if not is_object(arguments):
        return (Written(_text(arguments), 1.0, ""),)
    match tools.codec:
        case "parameters":
            return _parameter_forms(arguments, losses, types, tools, specials)
        case "gemma-dict":
            inner = _gemma_parts(json.loads(arguments))[1:-1]
            return (Written(merged(inner), 1.0, ""),)
        case _:
            forms = _json_forms(arguments, losses, types)
            return tuple(Written(_text(form.text), form.weight, form.note) for form in forms)


def fill(
    pattern: str, values: Mapping[str, str | tuple[Part, ...]], specials: Sequence[str], kind: Field = "tool_call"
) -> tuple[Part, ...]:
    """Put values into the named fields of a literal pattern; other braces stay.

    Args:
        pattern: text with fields such as {name}; its specials become tokens.
        values: text or parts per field name; specials in a text stay text.
        specials: the format's special strings.
        kind: the field of the texts.
    """
    parts: list[Part] = []
    names = "|".join(re.escape(name) for name in values)
    for index, piece in enumerate(re.split(rf"\{{({names})\}}", pattern)):
        value = values[piece] if index % 2 else split_specials(piece, specials, kind)
        parts += (Text(value, kind),) if isinstance(value, str) else value
    return merged(parts)


def merged(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Join neighbouring texts of one field and leave out empty ones."""
    joined: list[Part] = []
    for part in parts:
        last = joined[-1] if joined else None
        if isinstance(part, Text) and isinstance(last, Text) and part.field == last.field:
            joined[-1] = Text(last.text + part.text, part.field)
        elif part.text:
            joined.append(part)
    return tuple(joined)


def _json_forms(arguments: str, losses: Losses, types: Mapping[str, str]) -> list[_Text]:
    loss = losses.arguments
    forms = [_Text(arguments, 1.0, "")]
    if loss == "verbatim":
        return forms
    if loss in ("reserialised", "reserialised-ascii"):
        plain = respace(arguments, ", ", ": ", plain_string) if loss == "reserialised-ascii" else arguments
        forms = [_Text(plain, 1.0, "")]
        forms += _when_different(plain, respace(plain, ", ", ": ", escape_string), ESCAPED_WEIGHT, "escaped")
        forms += _when_different(plain, respace(plain, ",", ":", str), COMPACT_WEIGHT, "compact")
        forms += _when_different(plain, _indent(plain), INDENTED_WEIGHT, "indented")
        forms += _when_different(plain, plain.replace("/", "\\/"), SLASH_WEIGHT, "slashes escaped")
        forms += _when_different(plain, respace(plain, ",", ": ", str), HALF_WEIGHT, "commas compact")
        forms += _when_different(plain, respace(plain, ", ", ": ", _html_safe), HTML_WEIGHT, "markup escaped")
        forms.append(_Text("{ }" if plain == "{}" else f"{{ {plain[1:-1]} }}", INNER_SPACE_WEIGHT, "blanks inside"))
    for how, weight, note in _number_ways(loss):
        if how == "whole as exponent" and _shows_whole_as_decimal(arguments, types):
            weight = EXPONENT_WEIGHT
        respelled = [(form, _respell_numbers(form.text, types, how)) for form in forms]
        forms += [
            _Text(text, form.weight * weight, _join(form.note, note)) for form, text in respelled if text != form.text
        ]
    if arguments == "{}":
        forms.append(_Text("", NUMBER_WEIGHT, "no arguments at all"))
    forms.append(_Text(f" {forms[0].text}\n", OUTER_SPACE_WEIGHT, "space around the arguments"))
    return sorted(forms, key=lambda form: -form.weight)


def _parameter_forms(
    arguments: str, losses: Losses, types: Mapping[str, str], tools: Tools, specials: Sequence[str]
) -> tuple[Written, ...]:
    lists = [Written((), 1.0, "")]
    for position, (key, value) in enumerate(_members(arguments)):
        joint = split_specials(tools.between_parameters, specials, "tool_call") if position else ()
        lists = [
            Written(
                (*before.parts, *joint, *fill(tools.parameter, _fields(key, form.text, mark), specials)),
                before.weight * form.weight,
                _join(before.note, form.note),
            )
            for before in lists
            for form, mark in _value_forms(value, types.get(key, ""), losses, tools)
        ]
        lists = sorted(lists, key=lambda form: -form.weight)[:LISTS]
    return tuple(lists)


def _fields(key: str, value: str, mark: str) -> dict[str, str]:
    return {"key": key, "value": value, "string": mark}


def declared_types(tools_json: str | None) -> dict[str, dict[str, str]]:
    """Read the declared tools of a request: JSON type per parameter per tool. Broken declarations give nothing."""
    try:
        declared = json.loads(tools_json) if tools_json else []
    except (ValueError, RecursionError):
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


def _value_forms(value: str, declared: str, losses: Losses, tools: Tools) -> Iterator[tuple[_Text, str]]:
    """Yield each text of one value with the `string` mark that goes with it."""
    if value.startswith('"'):
        text = json.loads(value)
        yield _Text(text, 1.0, ""), "true"
        if losses.values == "stripped":
            yield _Text(f"{text}\n", STRIPPED_WEIGHT, "newline behind a value"), "true"
            yield _Text(f"\n{text}\n", STRIPPED_WEIGHT, "newlines around a value"), "true"
            yield _Text(f" {text} ", STRIPPED_WEIGHT / 2, "blanks around a value"), "true"
        if "{string}" in tools.parameter:
            yield _Text(value, QUOTED_WEIGHT, "a text as JSON"), "false"
        return
    if value in ("true", "false"):
        python = value.capitalize()
        plain, other = (python, value) if tools.booleans == "python" else (value, python)
        yield _Text(plain, 1.0, ""), "false"
        yield _Text(other, PYTHON_WEIGHT, f"{other} for {plain}"), "false"
        return
    if value[0] in "{[":
        yield _Text(value, 1.0, ""), "false"
        for other, weight, note in (
            (respace(value, ",", ":", str), COMPACT_WEIGHT, "compact"),
            (respace(value, ", ", ": ", escape_string), ESCAPED_WEIGHT, "escaped"),
        ):
            if other != value:
                yield _Text(other, weight, note), "false"
        return
    yield _Text(value, 1.0, ""), "false"
    for how, weight, note in _number_ways(losses.arguments):
        other = _respell_number(value, declared, how)
        if other != value:
            yield _Text(other, weight, note), "false"


NumberWay = Literal["whole as decimal", "whole as exponent", "two decimals"]


def _number_ways(loss: str) -> tuple[tuple[NumberWay, float, str], ...]:
    ways: tuple[tuple[NumberWay, float, str], ...] = (
        ("whole as exponent", NUMBER_WEIGHT, "number with an exponent"),
        ("two decimals", NUMBER_WEIGHT / 2, "number with two decimals"),
    )
    if loss == "trimmed":
        return ()
    return (("whole as decimal", 1.2, "whole number with a decimal"), *ways) if loss == "coerced" else ways


def _shows_whole_as_decimal(text: str, types: Mapping[str, str]) -> bool:
    """Say whether a declared integer stands there with a decimal point."""
    return any(
        types.get(key) == "integer" and re.fullmatch(r"-?\d+\.0", value) is not None for key, value in _members(text)
    )


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


def respace(text: str, comma: str, colon: str, string: Callable[[str], str]) -> str:
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


def escape_string(string: str) -> str:
    """Escape the non-ASCII characters of one JSON string literal."""
    return json.dumps(json.loads(string)) if _ESCAPE.search(string) else string


def _html_safe(string: str) -> str:
    for character in "<>&":
        string = string.replace(character, f"\\u00{ord(character):02x}")
    return string


def plain_string(string: str) -> str:
    """Write one JSON string literal with its non-ASCII characters plain."""
    return json.dumps(json.loads(string), ensure_ascii=False) if "\\u" in string else string


def _gemma_parts(value: object) -> list[Part]:
    """Write a value in Gemma 4's notation: sorted bare keys, strings between quote tokens."""
    quote = Special(GEMMA_QUOTE)
    if isinstance(value, dict):
        members = [[Text(f"{key}:", "tool_call"), *_gemma_parts(value[key])] for key in sorted(value)]
        return _enclosed("{", members, "}")
    if isinstance(value, list):
        return _enclosed("[", [_gemma_parts(item) for item in value], "]")
    if isinstance(value, str):
        return [quote, Text(value, "tool_call"), quote]
    return [Text(json.dumps(value), "tool_call")]


def _enclosed(opener: str, members: Sequence[Sequence[Part]], closer: str) -> list[Part]:
    parts: list[Part] = [Text(opener, "tool_call")]
    for index, member in enumerate(members):
        parts += (Text(",", "tool_call"), *member) if index else member
    return [*parts, Text(closer, "tool_call")]


def is_object(text: str) -> bool:
    """Say whether text is a JSON object that is not nested beyond reason."""
    depth = deepest = 0
    for match in _TOKEN.finditer(text):
        depth += (match.group() in ("{", "[")) - (match.group() in ("}", "]"))
        deepest = max(deepest, depth)
    if deepest > DEEPEST:
        return False
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _text(text: str) -> tuple[Part, ...]:
    return (Text(text, "tool_call"),) if text else ()


def _when_different(standard: str, other: str, weight: float, note: str) -> list[_Text]:
    return [_Text(other, weight, note)] if other != standard else []


def _join(*notes: str) -> str:
    return ", ".join(note for note in notes if note)
