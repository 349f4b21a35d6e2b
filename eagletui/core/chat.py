"""What is asked: a conversation to be answered once."""

from dataclasses import dataclass, replace
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
    sampling_json: str | None = None
    """The row's own sampling as JSON text, over that of its data set; None: nothing of its own."""


def turn_starts(prompt: Prompt) -> list[int]:
    """Return where each answer begins: the index of the first message of every assistant block, and the end.

    Turn t is the place with t assistant blocks before it; a block is a run of consecutive assistant messages. A
    conversation that ends with an assistant block has no turn at its end.
    """
    roles = [message.role for message in prompt.messages]
    starts = [
        index
        for index, role in enumerate(roles)
        if role == "assistant" and (index == 0 or roles[index - 1] != "assistant")
    ]
    return starts if roles and roles[-1] == "assistant" else [*starts, len(roles)]


def until_turn(prompt: Prompt, turn: int) -> Prompt:
    """Return the conversation up to where the answer of one turn begins; whole if no assistant block stands there."""
    starts = turn_starts(prompt)
    end = starts[turn] if turn < len(starts) else len(prompt.messages)
    return prompt if end == len(prompt.messages) else replace(prompt, messages=prompt.messages[:end])
