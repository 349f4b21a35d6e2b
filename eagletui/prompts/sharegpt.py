"""The shape `{"conversations": [...]}`: ShareGPT's `{"from", "value"}` turns, or `{"role", "content"}` turns.

Speaker names are those that published data sets and LLaMA-Factory use, `function_call` and `observation` included.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from eagletui.core.chat import Message, Role, ToolCall
from eagletui.prompts.fields import Fault, found, one_of, take_list, take_object, take_optional_text, take_text
from eagletui.prompts.messages import read_arguments, read_message

SPEAKERS: Final[Mapping[str, Role]] = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "assistant": "assistant",
    "function_call": "assistant",
    "tool": "tool",
    "observation": "tool",
    "function_response": "tool",
}


def read_sharegpt(record: Mapping[str, object]) -> tuple[Message, ...]:
    """Read one conversation; a top-level `system` becomes its first message.

    Raises:
        Fault: naming the turn and field.
    """
    turns = take_list(record.get("conversations"), "conversations")
    messages = tuple(_turn(turn, f"conversations[{index}]") for index, turn in enumerate(turns))
    system = take_optional_text(record.get("system"), "system")
    if system is None or messages[0].role == "system":
        return messages
    return (Message(role="system", content=system), *messages)


def _turn(value: object, field: str) -> Message:
    turn = take_object(value, field)
    if "from" not in turn:
        if "role" not in turn:
            raise Fault(field, found(turn), "from and value, or role and content")
        return read_message(turn, field)
    speaker = turn["from"]
    role = SPEAKERS.get(speaker) if isinstance(speaker, str) else None
    if role is None:
        raise Fault(f"{field}.from", found(speaker), one_of(tuple(SPEAKERS)))
    text = take_text(turn.get("value"), f"{field}.value")
    if speaker == "function_call":
        return Message(role=role, content=None, tool_calls=(_call(text, f"{field}.value"),))
    return Message(role=role, content=text)


def _call(text: str, field: str) -> ToolCall:
    expected = 'JSON text of {"name", "arguments"}'
    try:
        call = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise Fault(field, found(text), expected) from error
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        raise Fault(field, found(text), expected)
    return ToolCall(
        id=None, name=call["name"], arguments=read_arguments(call.get("arguments", {}), f"{field}.arguments")
    )
