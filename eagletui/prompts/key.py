"""The stable name of a prompt: the id a person gave, else a hash of what is asked."""

import hashlib
import json
from json.encoder import encode_basestring

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
    tools = "null" if prompt.tools_json is None else json.dumps(json.loads(prompt.tools_json), ensure_ascii=False)
    own = "" if prompt.sampling_json is None else f", {prompt.sampling_json}"
    content = f"[[{', '.join([_written(message) for message in prompt.messages])}], {tools}{own}]"
    return hashlib.sha256(content.encode("utf-8")).hexdigest()[:HASH_CHARACTERS]


def _written(message: Message) -> str:
    """Write a message as JSON; by hand where it is plain, as nearly all are: that is several times as fast."""
    is_plain = message.reasoning is message.tool_call_id is message.name is None and not message.tool_calls
    if is_plain and message.content is not None:
        return f'["{message.role}", {encode_basestring(message.content)}, null, [], null, null]'
    return json.dumps(_parts(message), ensure_ascii=False)


def _parts(message: Message) -> list[object]:
    calls = [[call.id, call.name, call.arguments] for call in message.tool_calls]
    return [message.role, message.content, message.reasoning, calls, message.tool_call_id, message.name]
