"""The shape `{"prompt": "..."}`, with an optional `system`."""

from collections.abc import Mapping

from eagletui.core.chat import Message
from eagletui.prompts.fields import take_optional_text, take_text


def read_plain(record: Mapping[str, object]) -> tuple[Message, ...]:
    """Read one question as a conversation of one user turn.

    Raises:
        Fault: `prompt` is not text.
    """
    system = take_optional_text(record.get("system"), "system")
    user = Message(role="user", content=take_text(record.get("prompt"), "prompt"))
    return (user,) if system is None else (Message(role="system", content=system), user)
