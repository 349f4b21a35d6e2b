"""The stable name of a prompt: the id a person gave, else a hash of what is asked."""

import hashlib
import json

from eagletui.core.chat import Message, Prompt
from eagletui.prompts.fields import Fault, found

MAX_CHARACTERS = 200
HASH_CHARACTERS = 24


def given_key(value: object) -> str:
    """Return the key for a given id.

    Raises:
        Fault: the id is not a short printable text or a whole number.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str) and 0 < len(value) <= MAX_CHARACTERS and value.isprintable() and value == value.strip():
        return value
    raise Fault("id", found(value), f"a whole number, or 1 to {MAX_CHARACTERS} printable characters")


def content_key(prompt: Prompt) -> str:
    """Return the key for a prompt without an id.

    The same conversation and tools give the same key however the JSON was spaced or escaped.
    """
    tools = None if prompt.tools_json is None else json.loads(prompt.tools_json)
    content = json.dumps([[_parts(message) for message in prompt.messages], tools], ensure_ascii=False)
    return hashlib.sha256(content.encode("utf-8")).hexdigest()[:HASH_CHARACTERS]


def _parts(message: Message) -> list[object]:
    calls = [[call.id, call.name, call.arguments] for call in message.tool_calls]
    return [message.role, message.content, message.reasoning, calls, message.tool_call_id, message.name]
