"""Read output formats and loss profiles from `eagletui/formats/*.toml` and `eagletui/formats/profiles/*.toml`.

The keys of a file are the fields of `core.outputs.OutputFormat` and `LossProfile` under the same names; their meaning
stands in the docstrings there, and `formats/README.md` shows one file of each kind. A format or profile of one's own
is given by its path.
"""

import difflib
import tomllib
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import UnionType

from eagletui.core.errors import FormatError
from eagletui.core.outputs import Losses, LossProfile, LossRule, OutputFormat

_FOLDER = files("eagletui.formats")
AUTO = "auto"
"""The profile name that means: choose from what the samples show."""


@cache
def load_format(name: str) -> OutputFormat:
    """Load an output format by its name or by the path of a `.toml` file.

    Raises:
        FormatError: no such format, or a file whose key, type or value is wrong.
    """
    if name.endswith(".toml"):
        path = Path(name)
        return _format(_parse(name, _read_path(path)), name)
    known = _names("")
    if name not in known:
        raise FormatError(_unknown("output format", name, known))
    where = f"formats/{name}.toml"
    found = _format(_parse(where, (_FOLDER / f"{name}.toml").read_text("utf-8")), where)
    if found.name != name:
        raise FormatError(f"{where}: key name: found {found.name!r}, expected {name!r} as the file is called")
    return found


def list_formats() -> tuple[OutputFormat, ...]:
    """Return every shipped format, by name."""
    return tuple(load_format(name) for name in _names(""))


@cache
def load_profile(name: str) -> LossProfile:
    """Load a loss profile: `SERVER@VERSION`, `SERVER` for its newest version, or the path of a `.toml` file.

    A version that no file describes is taken as the newest described one before it.

    Raises:
        FormatError: no such profile, or a file whose key, type or value is wrong.
    """
    if name.endswith(".toml"):
        return _profile(_parse(name, _read_path(Path(name))), name)
    known = _names("profiles")
    server, _, asked = name.partition("@")
    versions = [other for other in known if other.partition("@")[0] == server]
    if asked:
        versions = [other for other in versions if _version(other) <= _version(name)]
    if name not in known and not versions:
        raise FormatError(_unknown("loss profile", name, (*known, AUTO)))
    file = name if name in known else max(versions, key=_version)
    where = f"formats/profiles/{file}.toml"
    return _profile(_parse(where, (_FOLDER / "profiles" / f"{file}.toml").read_text("utf-8")), where)


def list_profiles() -> tuple[LossProfile, ...]:
    """Return every shipped loss profile, by name."""
    return tuple(load_profile(name) for name in _names("profiles"))


def format_for_model(model_id: str) -> OutputFormat | None:
    """Return the shipped format whose model prefix fits a model id best, or None."""
    lowered = model_id.lower()
    fitting = [
        (len(prefix), fmt) for fmt in list_formats() for prefix in fmt.models if lowered.startswith(prefix.lower())
    ]
    return max(fitting, key=lambda pair: pair[0])[1] if fitting else None


def shipped_format(name: str) -> OutputFormat | None:
    """Return the shipped format of a name, or None."""
    return load_format(name) if name in _names("") else None


def asked_thinking(fmt: OutputFormat, request: Mapping[str, object] | None) -> bool | None:
    """Say whether a chat request switches thinking on or off.

    Args:
        fmt: its switches.
        request: the request body: `chat_template_kwargs`, and OpenRouter's `reasoning`.

    Returns:
        None where the request says nothing.
    """
    if fmt.reasoning.opened_by == "none" or not request:
        return None
    kwargs = request.get("chat_template_kwargs")
    if isinstance(kwargs, Mapping) and any(key in kwargs for key in (*fmt.reasoning.off, *fmt.reasoning.on)):
        return fmt.thinks(kwargs)
    reasoning = request.get("reasoning")
    if isinstance(reasoning, Mapping):
        if reasoning.get("enabled") is False or reasoning.get("effort") == "none":
            return False
        if reasoning.get("enabled") is True or reasoning.get("effort") or reasoning.get("max_tokens"):
            return True
    return None


def thinking_kwargs(fmt: OutputFormat, thinking: bool | None) -> dict[str, object]:
    """Return the template kwargs by which a family switches thinking on or off; none where nothing is asked."""
    if thinking is None:
        return {}
    return dict(fmt.reasoning.on if thinking else fmt.reasoning.off)


def asked_kwargs(fmt: OutputFormat, request: Mapping[str, object]) -> dict[str, object]:
    """Return the template kwargs that a chat request comes down to; `chat_template_kwargs` have the last word.

    Args:
        fmt: its thinking switches.
        request: the body: `chat_template_kwargs`, and `reasoning` or `reasoning_effort`.
    """
    reasoning = request.get("reasoning")
    effort = reasoning.get("effort") if isinstance(reasoning, Mapping) else request.get("reasoning_effort")
    named = {"reasoning_effort": effort} if isinstance(effort, str) and effort != "none" else {}
    kwargs = request.get("chat_template_kwargs")
    own = {str(name): value for name, value in kwargs.items()} if isinstance(kwargs, Mapping) else {}
    return {**thinking_kwargs(fmt, asked_thinking(fmt, request)), **named, **own}


def _names(folder: str) -> tuple[str, ...]:
    place = _FOLDER / folder if folder else _FOLDER
    return tuple(sorted(entry.name.removesuffix(".toml") for entry in place.iterdir() if entry.name.endswith(".toml")))


def _version(name: str) -> tuple[int, ...]:
    digits = name.partition("@")[2].split(".")
    return tuple(int(digit) for digit in digits if digit.isdigit())


def _unknown(what: str, name: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
    hint = f"Did you mean {' or '.join(near)}?" if near else f"Known are {', '.join(known)}."
    return f"Unknown {what} {name!r}. {hint} `eagletui formats` lists them; a path to a .toml file works too."


def _read_path(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(f"{path}: cannot be read: {error}. Expected a TOML file.") from error


def _parse(where: str, text: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FormatError(f"{where}: found {error}, expected TOML.") from error


def _format(table: dict[str, object], where: str) -> OutputFormat:
    found = _build(OutputFormat, table, where, "")
    assert isinstance(found, OutputFormat)
    _check_literals(found, where)
    ends = dict.fromkeys(token for token in (found.end.stop, found.end.tool_calls) if token)
    return replace(found, specials=(*found.specials, *(end for end in ends if end not in found.specials)))


def _profile(table: dict[str, object], where: str) -> LossProfile:
    found = _build(LossProfile, table, where, "")
    assert isinstance(found, LossProfile)
    for index, rule in enumerate(found.rules):
        _build(Losses, dict(rule.changes), where, f"rules[{index}].changes")
    tupled = tuple(
        LossRule(
            rule.formats,
            {key: tuple(value) if isinstance(value, list) else value for key, value in rule.changes.items()},
        )
        for rule in found.rules
    )
    return LossProfile(found.name, found.title, found.source, found.default, tupled)


def _check_literals(fmt: OutputFormat, where: str) -> None:
    """Check what types cannot say: calls name their fields."""
    needed = {
        "none": (),
        "json": ("{arguments}",),
        "parameters": ("{name}", "{arguments}"),
        "gemma-dict": ("{arguments}",),
    }
    for field in needed[fmt.tools.codec]:
        if field not in fmt.tools.each:
            raise FormatError(f"{where}: key tools.each: found {fmt.tools.each!r}, expected the field {field} in it")
    if fmt.tools.codec == "parameters" and not all(part in fmt.tools.parameter for part in ("{key}", "{value}")):
        raise FormatError(
            f"{where}: key tools.parameter: found {fmt.tools.parameter!r}, expected {{key}} and {{value}} in it"
        )


def _build(kind: type, table: object, where: str, path: str) -> object:
    """Make a dataclass from a TOML table, every key and type checked."""
    if not isinstance(table, dict):
        raise FormatError(f"{where}: key {path}: found {table!r}, expected a table")
    hints = typing.get_type_hints(kind)
    known = {field.name: field for field in fields(kind)}
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"`{near[0]}`" if near else f"one of {', '.join(known)}"
            raise FormatError(f"{where}: key {_dotted(path, key)}: found an unknown key, expected {hint}")
    values: dict[str, object] = {}
    for name, field in known.items():
        if name in table:
            values[name] = _value(hints[name], table[name], where, _dotted(path, name))
        elif field.default is MISSING and field.default_factory is MISSING:
            raise FormatError(f"{where}: key {_dotted(path, name)}: found nothing, expected {_describe(hints[name])}")
    return kind(**values)


def _value(hint: object, value: object, where: str, path: str) -> object:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        if value in arguments and type(value) in {type(choice) for choice in arguments}:
            return value
    elif origin in (typing.Union, UnionType):
        inner = next(choice for choice in arguments if choice is not type(None))
        return _value(inner, value, where, path)
    elif origin is tuple:
        if isinstance(value, list):
            return tuple(_value(arguments[0], item, where, f"{path}[{index}]") for index, item in enumerate(value))
    elif origin is not None and issubclass(typing.cast(type, origin), Mapping):
        if isinstance(value, dict):
            return dict(value)
    elif isinstance(hint, type) and is_dataclass(hint):
        return _build(hint, value, where, path)
    elif hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    elif isinstance(hint, type) and type(value) is hint:
        return value
    raise FormatError(f"{where}: key {path}: found {value!r}, expected {_describe(hint)}")


def _describe(hint: object) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return "one of " + ", ".join(repr(choice) for choice in arguments)
    if origin is tuple:
        return f"a list of {_describe(arguments[0])}"
    names = {str: "a string", bool: "true or false", float: "a number", int: "a whole number"}
    return names.get(typing.cast(type, hint), "a table")


def _dotted(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
