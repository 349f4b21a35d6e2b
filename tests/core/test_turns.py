"""Conversations whose turns are regenerated in order."""

from typing import Any

import pytest

from eagletui.core.chat import Message, Prompt, ToolCall
from eagletui.core.reply import Reply
from eagletui.core.turns import next_turn, with_answers

CHAT = Prompt(
    (
        Message("system", "Be brief."),
        Message("user", "One?"),
        Message("assistant", "given one"),
        Message("user", "Two?"),
        Message("assistant", "given two"),
        Message("assistant", "given two, more"),
        Message("user", "Three?"),
    )
)
TOOLS = Prompt(
    (
        Message("user", "Weather in Paris and Rome?"),
        Message("assistant", None, tool_calls=(ToolCall("g1", "weather", "{}"), ToolCall("g2", "weather", "{}"))),
        Message("tool", "rain", tool_call_id="g1"),
        Message("tool", "sun", tool_call_id="g2"),
        Message("assistant", "Rain and sun."),
        Message("user", "Thanks."),
    ),
    tools_json="[]",
)


def reply(content: str | None = "Fine.", **changes: Any) -> Reply:
    fields: dict[str, Any] = {
        "generation_id": None,
        "model": None,
        "endpoint": None,
        "content": content,
        "reasoning": None,
        "reasoning_kind": None,
        "tool_calls": (),
        "finish_reason": "stop",
        "native_finish_reason": None,
        "usage": None,
    }
    return Reply(**{**fields, **changes})


def texts(prompt: Prompt) -> list[str | None]:
    return [message.content for message in prompt.messages]


def test_each_turn_follows_the_models_own_answers_and_not_the_given_ones() -> None:
    own = {0: Message("assistant", "own one"), 1: Message("assistant", "own two", "thought")}
    assert texts(with_answers(CHAT, 0, {})) == ["Be brief.", "One?"]
    assert texts(with_answers(CHAT, 1, own)) == ["Be brief.", "One?", "own one", "Two?"]
    third = with_answers(CHAT, 2, own)
    assert texts(third) == ["Be brief.", "One?", "own one", "Two?", "own two", "Three?"]
    assert third.messages[4].reasoning == "thought"


def test_a_turn_that_was_not_generated_stays_as_recorded() -> None:
    assert with_answers(CHAT, 2, {}) is CHAT
    assert texts(with_answers(CHAT, 2, {1: Message("assistant", "own two")}))[2] == "given one"


def test_recorded_results_answer_the_models_own_calls() -> None:
    calls = (ToolCall("m1", "weather", '{"q":1}'), ToolCall(None, "weather", '{"q":2}'))
    message = next_turn(TOOLS, 0, reply(None, tool_calls=calls, finish_reason="tool_calls"))
    assert isinstance(message, Message)
    asked = with_answers(TOOLS, 1, {0: message})
    assert [call.id for call in asked.messages[1].tool_calls] == ["m1", "call_0_1"]
    assert [m.tool_call_id for m in asked.messages[2:]] == ["m1", "call_0_1"]
    assert [m.content for m in asked.messages[2:]] == ["rain", "sun"]
    assert asked.tools_json == "[]"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (reply(finish_reason="length"), "ended with length"),
        (reply(finish_reason="content_filter"), "ended with content_filter"),
        (reply(" "), "is empty"),
        (reply(None), "is empty"),
        (reply("no", refusal="I cannot."), "is a refusal"),
        (reply(tool_calls=(ToolCall("x", "f", "{}"),)), "calls 1 tool, and the recorded conversation goes on with no"),
    ],
)
def test_an_answer_that_nothing_can_follow_says_why(answer: Reply, why: str) -> None:
    said = next_turn(CHAT, 0, answer)
    assert isinstance(said, str)
    assert said.startswith(why)


def test_results_of_other_tools_than_the_model_called_do_not_follow() -> None:
    other = (ToolCall("a", "weather", "{}"), ToolCall("b", "news", "{}"))
    for calls, why in (
        (other, "calls weather, news, and the recorded results are those of"),
        ((), "calls no tool"),
    ):
        said = next_turn(TOOLS, 0, reply("text", tool_calls=calls, finish_reason="stop"))
        assert isinstance(said, str)
        assert said.startswith(why)
