"""The shape `{"messages": [{"role", "content", ...}]}`, as chat APIs take it."""

import json
from collections.abc import Iterable
from typing import Final, get_args

from eagletui.core.chat import Message, Role, ToolCall
from eagletui.prompts.fields import (
    Fault,
    encodable,
    find_lone_surrogate,
    found,
    one_of,
    take_list,
    take_object,
    take_optional_text,
    take_text,
)

NO_PREFILL: Final = "an answer that the model writes whole: ids that follow a given beginning cannot be proved"
_PREFILLED: Final = ("partial", "prefix", "prefill")
"""Marks of a prefilled turn: Moonshot's, DeepSeek's and Mistral's, and others'."""

ROLES: Final[tuple[Role, ...]] = get_args(Role)


def read_messages(value: object, field: str) -> tuple[Message, ...]:
    """Read a conversation.

    Args:
        value: the decoded JSON list.
        field: its name, for faults.

    Raises:
        Fault: naming the message and field.
    """
    return tuple(read_message(item, f"{field}[{index}]") for index, item in enumerate(take_list(value, field)))


def read_message(value: object, field: str) -> Message:
    """Read one message; see `read_messages`."""
    item = take_object(value, field)
    role = next((known for known in ROLES if known == item.get("role")), None)
    if role is None:
        raise Fault(f"{field}.role", found(item.get("role")), one_of(ROLES))
    calls = _tool_calls(item.get("tool_calls"), f"{field}.tool_calls") if role == "assistant" else ()
    for flag in _PREFILLED:
        if item.get(flag) is True:
            raise Fault(f"{field}.{flag}", "true: the beginning of an answer", NO_PREFILL)
    content = _content(item.get("content"), f"{field}.content")
    if content is None and role == "tool" and item.get("content") == "":
        content = ""  # a tool may well say nothing
    if content is None and not calls:
        raise Fault(f"{field}.content", found(item.get("content")), "text")
    reasoning = item.get("reasoning_content") if item.get("reasoning") is None else item.get("reasoning")
    return Message(
        role=role,
        content=content,
        reasoning=take_optional_text(reasoning, f"{field}.reasoning"),
        tool_calls=calls,
        tool_call_id=take_optional_text(item.get("tool_call_id"), f"{field}.tool_call_id"),
        name=take_optional_text(item.get("name"), f"{field}.name"),
    )


def read_arguments(value: object, field: str) -> str:
    """Return a call's arguments as JSON text: a string as it is, an object serialised in its own key order."""
    if isinstance(value, str):
        return encodable(value, field)
    if isinstance(value, dict):
        find_lone_surrogate(value, field)
        return json.dumps(value, ensure_ascii=False)
    raise Fault(field, found(value), "JSON text or an object")


def _content(value: object, field: str) -> str | None:
    if isinstance(value, list):
        return "".join(_parts(value, field)) or None
    if isinstance(value, str):
        return encodable(value, field) if value.strip() else None
    return take_optional_text(value, field)


def _parts(items: Iterable[object], field: str) -> Iterable[str]:
    for index, part in enumerate(items):
        item = take_object(part, f"{field}[{index}]")
        if item.get("type") != "text":
            raise Fault(f"{field}[{index}].type", found(item.get("type")), "text: only text can be answered")
        yield take_text(item.get("text"), f"{field}[{index}].text")


def _tool_calls(value: object, field: str) -> tuple[ToolCall, ...]:
    if value is None or value == []:
        return ()
    calls: list[ToolCall] = []
    for index, part in enumerate(take_list(value, field)):
        item = take_object(part, f"{field}[{index}]")
        function = take_object(item.get("function"), f"{field}[{index}].function")
        calls.append(
            ToolCall(
                id=take_optional_text(item.get("id"), f"{field}[{index}].id"),
                name=take_text(function.get("name"), f"{field}[{index}].function.name"),
                arguments=read_arguments(function.get("arguments"), f"{field}[{index}].function.arguments"),
            )
        )
    return tuple(calls)
