"""One conversation in the shape of each API, whole and streamed: the same `Reply` comes out of all.

The envelopes are those of the providers' documentation and of the captures in tests/data: OpenRouter
(https://openrouter.ai/docs/api_reference/overview and /streaming), vLLM 0.32, SGLang 0.5 and llama.cpp's server.
"""

import json
from typing import Any

import pytest

from eagletui.core.chat import ToolCall
from eagletui.core.reply import Reply
from eagletui.providers.parse import parse_body, parse_stream

REASONING = " The user wants the weather.\n"
CONTENT = "Let me look: "
ARGUMENTS = '{"city": "Łódź", "days": 1.0}'
CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ARGUMENTS}}
USAGE: dict[str, Any] = {"prompt_tokens": 31, "completion_tokens": 24, "total_tokens": 55}
IDS = [5, 6, 7, 8]

OPENROUTER: dict[str, Any] = {"id": "gen-1", "provider": "Moonshot AI", "model": "moonshotai/kimi-k2.5", "created": 1}
DETAILS = [{"type": "reasoning.text", "text": REASONING, "signature": None, "format": "unknown", "index": 0}]


def whole(message: dict[str, Any], choice: dict[str, Any], **envelope: Any) -> bytes:
    said = {"role": "assistant", "content": CONTENT, "tool_calls": [CALL], **message}
    body = {"object": "chat.completion", "choices": [{"index": 0, "message": said, **choice}], **envelope}
    return json.dumps(body).encode()


def streamed(
    reasoning: str, *, finish: dict[str, Any], usage_last: bool = True, comments: bool = False, **envelope: Any
) -> bytes:
    """Write a stream: role, reasoning in two pieces, content, the call's arguments in two pieces, finish, usage."""
    start = {
        "index": 0,
        "id": "call_1",
        "type": "function",
        "function": {"name": "weather", "arguments": ARGUMENTS[:9]},
    }
    deltas: list[dict[str, Any]] = [
        {"role": "assistant", "content": ""},
        {reasoning: REASONING[:10]},
        {reasoning: REASONING[10:]},
        {"content": CONTENT},
        {"tool_calls": [start]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ARGUMENTS[9:]}}]},
    ]
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}], **envelope} for delta in deltas
    ]
    last: dict[str, Any] = {"choices": [{"index": 0, "delta": {}, **finish}], **envelope}
    if usage_last:
        chunks += [last, {"choices": [], "usage": USAGE, **envelope}]
    else:
        chunks.append({**last, "usage": USAGE})
    between = b": OPENROUTER PROCESSING\n\n" if comments else b""
    return (
        between
        + between.join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)
        + b"data: [DONE]\n\n"
    )


ENDED = {"finish_reason": "tool_calls", "native_finish_reason": "tool_calls"}
SHAPES: dict[str, Reply] = {
    "OpenRouter": parse_body(
        whole(
            {"reasoning": REASONING, "reasoning_details": DETAILS, "refusal": None},
            {**ENDED, "logprobs": None},
            usage={**USAGE, "cost": 0.0000786, "is_byok": False, "cost_details": {"upstream_inference_cost": None}},
            **OPENROUTER,
        )
    ),
    "OpenRouter, streamed": parse_stream(streamed("reasoning", finish=ENDED, comments=True, **OPENROUTER)),
    "vLLM": parse_body(
        whole(
            {"reasoning": REASONING, "reasoning_content": REASONING, "refusal": None, "annotations": None},
            {"finish_reason": "tool_calls", "stop_reason": None, "token_ids": IDS, "logprobs": None},
            id="chatcmpl-1",
            model="m",
            usage={**USAGE, "prompt_tokens_details": None},
            prompt_token_ids=[1, 2],
            prompt_logprobs=None,
        )
    ),
    "vLLM, streamed": parse_stream(
        streamed("reasoning", finish={"finish_reason": "tool_calls", "stop_reason": None}, id="chatcmpl-1", model="m")
    ),
    "SGLang": parse_body(
        whole(
            {"reasoning_content": REASONING},
            {"finish_reason": "tool_calls", "matched_stop": None, "token_ids": IDS, "prompt_token_ids": [1, 2]},
            id="1",
            model="m",
            usage={**USAGE, "reasoning_tokens": 0},
            metadata={"weight_version": "default"},
        )
    ),
    "SGLang, streamed": parse_stream(
        streamed("reasoning_content", finish={"finish_reason": "tool_calls", "matched_stop": None}, id="1", model="m")
    ),
    "llama.cpp": parse_body(
        whole(
            {"reasoning_content": REASONING},
            {"finish_reason": "tool_calls"},
            id="chatcmpl-1",
            model="m",
            usage=USAGE,
            system_fingerprint="b1",
            timings={"predicted_n": 24, "prompt_n": 31},
            __verbose={"tokens": IDS, "stop_type": "eos", "truncated": False},
        )
    ),
    "llama.cpp, streamed": parse_stream(
        streamed("reasoning_content", finish={"finish_reason": "tool_calls"}, id="chatcmpl-1", model="m")
    ),
    "usage on the last choice": parse_stream(
        streamed("reasoning", finish={"finish_reason": "tool_calls"}, usage_last=False, id="1", model="m")
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_same_conversation_is_the_same_reply(shape: str) -> None:
    reply = SHAPES[shape]
    assert (reply.content, reply.reasoning, reply.reasoning_kind) == (CONTENT, REASONING, "text")
    assert reply.tool_calls == (ToolCall("call_1", "weather", ARGUMENTS),)
    assert reply.finish_reason == "tool_calls"
    assert reply.usage is not None
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (31, 24)
    assert reply.error is None
    assert reply.refusal is None
    assert reply.notes == ()


@pytest.mark.parametrize("shape", ["vLLM", "SGLang", "llama.cpp"])
def test_each_direct_servers_ids_are_found_where_it_puts_them(shape: str) -> None:
    assert SHAPES[shape].token_ids == tuple(IDS)


def test_only_the_router_states_a_cost_and_it_is_exact() -> None:
    costs = {name: reply.usage.cost_pico_usd for name, reply in SHAPES.items() if reply.usage}
    assert costs.pop("OpenRouter") == 78_600_000
    assert set(costs.values()) == {None}
