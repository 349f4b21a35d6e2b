"""A conversation whose assistant turns are regenerated one after another, each after the model's own turns before it.

What the prompt file says at a turn that was generated is replaced by what the model wrote there. Recorded results of
tools stay, as long as the model called the same tools in the same order; where it did not, they answer questions that
nobody asked, and the conversation ends.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import takewhile

from eagletui.core.chat import Message, Prompt, ToolCall, turn_starts
from eagletui.core.reply import Reply

WHOLE_ENDS = ("stop", "tool_calls")
"""Finish reasons of answers that were not cut or stopped by somebody else."""


def next_turn(whole: Prompt, turn: int, reply: Reply) -> Message | str:
    """Return an answer as a turn of its conversation, or why the conversation cannot go on from it.

    Args:
        whole: the conversation as recorded, with its later turns.
        turn: which turn the reply answers.
        reply: the answer.
    """
    if reply.finish_reason not in WHOLE_ENDS:
        return f"ended with {reply.finish_reason or 'no finish reason'}"
    if reply.refusal:
        return "is a refusal"
    if not reply.tool_calls and not (reply.content or "").strip():
        return "is empty"
    calls = tuple(
        call if call.id is not None else replace(call, id=f"call_{turn}_{number}")
        for number, call in enumerate(reply.tool_calls)
    )
    recorded, results = _recorded(whole, turn)
    if len(results) != len(calls):
        return f"calls {_counted(len(calls))}, and the recorded conversation goes on with {_results(len(results))}"
    names = [call.name for call in recorded]
    if names and names != [call.name for call in calls]:
        called = ", ".join(call.name for call in calls)
        return f"calls {called}, and the recorded results are those of {', '.join(names)}"
    return Message("assistant", reply.content, reply.reasoning, calls)


def with_answers(whole: Prompt, turn: int, answers: Mapping[int, Message]) -> Prompt:
    """Return the conversation up to where the answer of a turn begins, with the model's own turns in it.

    Args:
        whole: the conversation as recorded.
        turn: the one to be answered.
        answers: what the model wrote at earlier turns; other turns stay as recorded.
    """
    starts = turn_starts(whole)
    end = starts[turn] if turn < len(starts) else len(whole.messages)
    if not answers and end == len(whole.messages):
        return whole
    messages: list[Message] = []
    position = 0
    for number, start in enumerate(starts[:turn]):
        messages += whole.messages[position:start]
        position = start
        answer = answers.get(number)
        if answer is None:
            continue
        position += _length(whole, start)
        messages.append(answer)
        for call in answer.tool_calls[: len(_results_at(whole, position))]:
            messages.append(replace(whole.messages[position], tool_call_id=call.id))
            position += 1
    messages += whole.messages[position:end]
    return replace(whole, messages=tuple(messages))


def _recorded(whole: Prompt, turn: int) -> tuple[tuple[ToolCall, ...], list[Message]]:
    """Return the calls that the prompt file has at a turn, and the results that follow them."""
    starts = turn_starts(whole)
    if turn >= len(starts):
        return (), []
    after = starts[turn] + _length(whole, starts[turn])
    calls = tuple(call for message in whole.messages[starts[turn] : after] for call in message.tool_calls)
    return calls, _results_at(whole, after)


def _length(whole: Prompt, start: int) -> int:
    return sum(1 for _ in takewhile(lambda message: message.role == "assistant", whole.messages[start:]))


def _results_at(whole: Prompt, position: int) -> list[Message]:
    return list(takewhile(lambda message: message.role == "tool", whole.messages[position:]))


def _counted(number: int) -> str:
    return "no tool" if number == 0 else "1 tool" if number == 1 else f"{number} tools"


def _results(number: int) -> str:
    return "no result of a tool" if number == 0 else "1 result" if number == 1 else f"{number} results"
