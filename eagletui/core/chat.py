"""What is asked: a conversation to be answered once."""

from dataclasses import dataclass
from typing import Literal

Role = Literal["system", "developer", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call a model made."""

    id: str | None
    """The server's id, kept as received."""
    name: str
    """Function name."""
    arguments: str
    """JSON text exactly as received, never re-serialised."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: Role
    content: str | None
    """None where the turn holds only tool calls."""
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    """On `tool` turns: which call is answered."""
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Prompt:
    """A conversation that ends where the model must answer."""

    messages: tuple[Message, ...]
    tools_json: str | None = None
    """The request's `tools` array as JSON text, or None."""
