"""Where in a conversation the model answers.

Turns are numbered by how many assistant blocks come before them; a block is a run of consecutive assistant
messages. `core.chat.until_turn` cuts a conversation where a turn begins.
"""

from typing import Literal, NamedTuple

from eagletui.core.chat import Prompt, turn_starts, until_turn
from eagletui.prompts.fields import Fault


class Placed(NamedTuple):
    """A conversation with the turns to answer."""

    prompt: Prompt
    """Up to where the last of the turns begins."""
    turns: tuple[int, ...]
    """Rising."""
    dropped: int
    """Given answers that are generated anew (`last`: those at the end; `all`: every one that is a turn)."""


def place_turns(prompt: Prompt, mode: Literal["last", "all"], field: str) -> Placed:
    """Choose the turns to answer.

    Args:
        prompt: the whole conversation.
        mode: `last`: one answer at the end, a given answer there is dropped. `all`: every assistant turn, each
            after the model's own answers before it, and the end where it asks for one.
        field: name of the conversation's field, for faults.

    Raises:
        Fault: no user or tool turn asks for an answer.
    """
    if prompt.messages[-1].role in ("user", "tool"):
        for message in prompt.messages:
            if message.role == "assistant":
                break
        else:
            return Placed(prompt, (0,), 0)
    starts = [
        (turn, start)
        for turn, start in enumerate(turn_starts(prompt))
        if start and prompt.messages[start - 1].role in ("user", "tool")
    ]
    if not starts:
        raise Fault(field, "no turn of a user or tool that asks for an answer", "at least one")
    if mode == "last":
        starts = starts[-1:]
    last_turn, last_start = starts[-1]
    if mode == "last" and any(message.role != "assistant" for message in prompt.messages[last_start:]):
        raise Fault(field, "a system message at the end", "a turn of a user or tool, or a given answer to drop")
    dropped = sum(1 for _, start in starts if start < len(prompt.messages))
    return Placed(until_turn(prompt, last_turn), tuple(turn for turn, _ in starts), dropped)
