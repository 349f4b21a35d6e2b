"""Tool calls against the tools of their request; verdicts are those of the jsonschema library, where it is there."""

import json
from typing import Any

import pytest

from eagletui.core.chat import ToolCall
from eagletui.core.tool_schema import CallFaults, call_faults, violation

TOOLS = json.dumps(
    [
        {
            "type": "function",
            "function": {
                "name": "weather",
                "parameters": {
                    "type": "object",
                    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                    "required": ["city"],
                },
            },
        }
    ]
)


def call(arguments: str, name: str = "weather") -> ToolCall:
    return ToolCall("1", name, arguments)


def test_a_sound_call_has_no_fault() -> None:
    assert call_faults((call('{"city": "Oslo", "days": 3}'),), TOOLS) == CallFaults(False, False, False)


@pytest.mark.parametrize(
    ("made", "faults"),
    [
        (call('{"city": "Os'), CallFaults(True, False, None)),
        (call('"Oslo"'), CallFaults(True, False, None)),
        (call('{"city": "Oslo"}', "functions.weather"), CallFaults(False, True, None)),
        (call('{"days": 3}'), CallFaults(False, False, True)),
        (call('{"city": "Oslo", "days": "3"}'), CallFaults(False, False, True)),
        (call(""), CallFaults(False, False, True)),
    ],
)
def test_each_fault_is_told_from_the_others(made: ToolCall, faults: CallFaults) -> None:
    assert call_faults((made,), TOOLS) == faults


def test_a_call_without_tools_names_an_unknown_one_and_unreadable_tools_say_nothing() -> None:
    assert call_faults((call("{}"),), None).unknown_name is True
    assert call_faults((call("{}"),), "[").unknown_name is None
    assert call_faults((call("{}"),), '[{"type": "web_search"}]').unknown_name is None
    assert call_faults((), TOOLS) == CallFaults(None, None, None)


SCHEMAS: tuple[dict[str, Any], ...] = (
    {"type": "integer"},
    {"type": ["string", "null"]},
    {"enum": ["a", 1, None]},
    {"const": True},
    {"type": "array", "items": {"type": "number"}},
    {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False},
    {"anyOf": [{"type": "string"}, {"type": "object", "required": ["b"]}]},
    {"allOf": [{"type": "object"}, {"required": ["a"]}]},
    {},
)
VALUES: tuple[Any, ...] = (
    1, 1.0, 1.5, "a", None, True, False, 0, [], [1, 2.5], [1, "x"], {}, {"a": True}, {"a": 1}, {"b": 2},
    {"a": True, "c": 0},
)  # fmt: skip


def test_every_verdict_is_the_one_of_the_jsonschema_library() -> None:
    validator = pytest.importorskip("jsonschema").Draft202012Validator
    for schema in SCHEMAS:
        for value in VALUES:
            assert (violation(value, schema) is None) == validator(schema).is_valid(value), (schema, value)


def test_a_value_nested_without_end_and_a_schema_that_is_none_allow_everything() -> None:
    schema: dict[str, Any] = {"type": "array"}
    schema["items"] = schema
    value: list[Any] = []
    for _ in range(200):
        value = [value]
    assert violation(value, schema) is None
    assert violation(3, "integer") is None
    assert violation(3, {"type": 7}) is None
