"""API bodies to replies: recorded answers of real servers, and what broken ones send."""

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagletui.core.errors import ReplyError
from eagletui.core.reply import Reply
from eagletui.providers.decoding import decode_json
from eagletui.providers.parse import parse_body, parse_events, split_sse

RAW = Path(__file__).parents[1] / "data" / "raw"


def recorded(name: str) -> bytes:
    """Body of a recorded HTTP response."""
    return re.split(rb"\r?\n\r?\n", (RAW / f"{name}.resp.txt").read_bytes(), maxsplit=1)[1]


def chat(message: dict[str, Any], **choice: Any) -> dict[str, Any]:
    """A chat completion around a message."""
    return {"choices": [{"index": 0, "message": message, **choice}]}


def test_vllm_ids_and_logprobs_are_read_from_a_whole_reply() -> None:
    reply = parse_body(recorded("vllm/nonstream_return_token_ids"))
    assert reply.token_ids is not None
    assert reply.token_ids[:4] == (10813, 232, 227, 7365)
    assert reply.prompt_token_ids is not None
    assert len(reply.prompt_token_ids) == 50
    assert reply.logprobs is not None
    assert (reply.logprobs[0].token, reply.logprobs[0].bytes_) == ("", b"")
    assert reply.logprobs[2].bytes_ == "🎉".encode()
    assert reply.finish_reason == "length"


def test_vllm_logprobs_as_token_ids_give_the_ids() -> None:
    reply = parse_body(recorded("vllm/logprobs_as_ids"))
    assert reply.logprobs is not None
    assert [entry.id for entry in reply.logprobs[:3]] == [10813, 232, 227]
    assert reply.logprobs[2].bytes_ == "🎉".encode()


def test_a_stream_gives_deltas_with_ids_and_cumulative_counts() -> None:
    reply = parse_events(split_sse(recorded("vllm/stream_all")))
    assert reply.deltas is not None
    assert reply.token_ids is not None
    assert len(reply.token_ids) == 40 == reply.usage.completion_tokens if reply.usage else False
    first = [delta for delta in reply.deltas if delta.token_ids][:3]
    assert [delta.content for delta in first] == ["", "", "🎉"]
    assert [delta.completion_tokens for delta in first] == [1, 2, 3]
    assert reply.content is not None
    assert reply.content.startswith("🎉そ")


def test_llama_cpp_verbose_ids_and_timings_are_read() -> None:
    reply = parse_body(recorded("llamacpp/nonstream_verbose"))
    assert reply.token_ids == (10813, 232, 227) * 4
    assert reply.usage is not None
    assert (reply.usage.completion_tokens, reply.usage.cached_tokens) == (12, 26)
    streamed = parse_events(split_sse(recorded("llamacpp/stream_timings")))
    assert streamed.deltas is not None
    assert [delta.completion_tokens for delta in streamed.deltas[:3]] == [3, 6, 9]


def test_llama_cpp_native_replies_are_read_whole_and_streamed() -> None:
    whole = parse_body(recorded("llamacpp/native_completion"))
    assert whole.token_ids is not None
    assert len(whole.token_ids) == 30
    assert whole.finish_reason == "length"
    assert whole.logprobs is not None
    assert whole.logprobs[0].id == 246
    streamed = parse_events(split_sse(recorded("llamacpp/native_completion_stream")))
    assert streamed.content is not None
    assert streamed.deltas is not None
    assert streamed.deltas[0].token_ids == (246,)
    assert streamed.deltas[0].completion_tokens == 3
    assert streamed.usage is not None


def test_a_stop_string_is_told_from_a_stop_token() -> None:
    assert parse_body(recorded("vllm/stop_str")).stopped_by == " 3\n"
    assert parse_body(chat({"content": "x"}, finish_reason="stop", matched_stop=163586)).stopped_by == 163586
    assert parse_body(recorded("vllm/tools_required")).stopped_by is None


def test_an_openrouter_stream_keeps_money_exact_and_tolerates_its_habits() -> None:
    body = (
        b": OPENROUTER PROCESSING\n\n"
        b'data: {"id":"gen-1","provider":"Moonshot AI","model":"m","choices":[{"index":0,"delta":'
        b'{"role":"assistant","content":"","reasoning":"think","reasoning_details":'
        b'[{"type":"reasoning.text","text":"think"}]},"finish_reason":null}]}\n\n'
        b'data: {"id":"gen-1","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}\n\n'
        b'data: {"id":"gen-1","choices":[{"index":0,"delta":{"content":""},"finish_reason":"stop",'
        b'"native_finish_reason":"eos"}]}\n\n'
        b'data: {"id":"gen-1","choices":[{"index":0,"delta":{"content":""},"finish_reason":"length"}]}\n\n'
        b'data: {"id":"gen-1","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4,"cost":0.00000012345678901,'
        b'"completion_tokens_details":{"reasoning_tokens":1}}}\n\n'
        b"data: [DONE]\n\n"
    )
    reply = parse_events(split_sse(body))
    assert (reply.generation_id, reply.endpoint) == ("gen-1", "Moonshot AI")
    assert (reply.reasoning, reply.reasoning_kind, reply.content) == ("think", "text", "Hi")
    assert (reply.finish_reason, reply.native_finish_reason) == ("stop", "eos")
    assert any("second finish" in note for note in reply.notes)
    assert reply.usage is not None
    assert reply.usage.cost_pico_usd == 123457
    assert reply.usage.reasoning_tokens == 1


def test_tool_call_fragments_are_joined_by_index_and_arguments_stay_verbatim() -> None:
    fragments = [
        {"index": 0, "id": "functions.f:0", "function": {"name": "f", "arguments": '{"a": 1.0'}},
        {"index": 1, "id": "functions.g:1", "function": {"name": "g", "arguments": ""}},
        {"index": 0, "function": {"arguments": ', "b": "\\u00e9"}'}},
    ]
    reply = parse_events([{"choices": [{"index": 0, "delta": {"tool_calls": [piece]}}]} for piece in fragments])
    assert [(call.id, call.name, call.arguments) for call in reply.tool_calls] == [
        ("functions.f:0", "f", '{"a": 1.0, "b": "\\u00e9"}'),
        ("functions.g:1", "g", ""),
    ]
    assert reply.deltas is not None
    assert all(delta.tool_call for delta in reply.deltas)


@pytest.mark.parametrize(
    ("details", "kind", "reasoning"),
    [
        ([{"type": "reasoning.text", "text": "a"}, {"type": "reasoning.text", "text": "b"}], "text", "ab"),
        ([{"type": "reasoning.summary", "summary": "short"}], "summary", "short"),
        ([{"type": "reasoning.encrypted", "data": "xyz"}], "encrypted", None),
        ([{"type": "reasoning.text", "text": "a"}, {"type": "reasoning.encrypted", "data": "x"}], "encrypted", "a"),
    ],
)
def test_the_kind_of_reasoning_is_told(details: list[Any], kind: str, reasoning: str | None) -> None:
    reply = parse_body(chat({"content": "x", "reasoning_details": details}))
    assert (reply.reasoning_kind, reply.reasoning) == (kind, reasoning)


def test_reasoning_is_read_under_either_name_and_only_once() -> None:
    assert parse_body(chat({"content": "x", "reasoning_content": "r"})).reasoning == "r"
    assert parse_body(chat({"content": "x", "reasoning": "r", "reasoning_content": "r"})).reasoning == "r"


def test_a_content_list_is_joined_and_its_thinking_parts_are_reasoning() -> None:
    content = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "Hel"},
        {"type": "text", "text": "lo"},
    ]
    reply = parse_body(chat({"content": content}))
    assert (reply.reasoning, reply.content) == ("hm", "Hello")
    assert reply.notes


def test_odd_replies_are_read_with_a_note_or_as_unknown() -> None:
    assert parse_body({"choices": []}).notes == ("the reply has no choices",)
    assert parse_body({"error": {"message": "overloaded\x1b[2J", "code": 503}}).error == "overloaded"
    assert parse_body(chat({"content": "x"})).usage is None
    assert parse_body(chat({"content": "x"}, finish_reason="paused")).finish_reason is None
    more = {**chat({"content": "x"}), "usage": {"completion_tokens": 2, "reasoning_tokens": 5}}
    assert any("more reasoning tokens" in note for note in parse_body(more).notes)
    odd = {**chat({"content": "x"}), "usage": {"completion_tokens": "7", "prompt_tokens": -1, "cost": "n/a"}}
    usage = parse_body(odd).usage
    assert usage is not None
    assert (usage.completion_tokens, usage.prompt_tokens, usage.cost_pico_usd) == (None, None, None)


def test_an_unknown_logprob_stays_unknown() -> None:
    entries = [{"token": "a", "bytes": [97], "logprob": -9999.0}, {"token": "b", "bytes": None, "logprob": -0.5}]
    reply = parse_body(chat({"content": "ab"}, logprobs={"content": entries}))
    assert reply.logprobs is not None
    assert [entry.logprob for entry in reply.logprobs] == [None, -0.5]
    assert [entry.bytes_ for entry in reply.logprobs] == [b"a", None]


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"<html>bad gateway</html>", "expected JSON"),
        (b"", "expected JSON"),
        (b"[]", "field response: found"),
        (b"{}", "field choices: found nothing"),
        (b'{"choices": {}}', "field choices"),
        (b'{"choices": [3]}', r"choices\[0\]"),
        (b'{"choices": [{"message": "text"}]}', "message"),
        (b'{"choices": [{"message": {"content": 3}}]}', "content"),
        (b'{"choices": [{"message": {"content": "x"}, "token_ids": ["a"]}]}', r"token_ids\[0\]"),
        (b'{"choices": [{"message": {"content": "x"}, "token_ids": [1, -2]}]}', r"token_ids\[1\]"),
        (b'{"choices": [{"message": {"content": "x"}}], "usage": 3}', "usage"),
    ],
)
def test_garbage_is_refused_with_its_field(body: bytes, complaint: str) -> None:
    with pytest.raises(ReplyError, match=complaint):
        parse_body(body)


def test_a_stream_without_objects_is_refused() -> None:
    with pytest.raises(ReplyError, match="empty list"):
        parse_events([])
    with pytest.raises(ReplyError, match="expected JSON"):
        split_sse(b"data: {broken\n\n")


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 300_000)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from(
    "content reasoning reasoning_details tool_calls token_ids logprobs usage message delta choices finish_reason index "
    "error timings __verbose tokens completion_tokens function bytes token id type text output_ids meta_info "
    "stop_reason prompt_token_ids cost".split()
)
shaped = st.recursive(
    json_values,
    lambda inner: st.dictionaries(names, inner, max_size=4) | st.lists(inner, max_size=3),
    max_leaves=20,
)


def reply_or_none(parse: Callable[[], Reply]) -> Reply | None:
    """The reply, or None when it is refused as the contract allows."""
    try:
        return parse()
    except ReplyError:
        return None


@given(shaped)
def test_any_json_is_a_reply_or_a_reply_error(value: Any) -> None:
    for document in (value, {"choices": [value]}, {"choices": [{"message": value, "delta": value, "logprobs": value}]}):
        body = json.dumps(document).encode()
        whole = reply_or_none(partial(parse_body, body))
        streamed = reply_or_none(partial(parse_events, [decode_json(body)]))
        for reply in (whole, streamed):
            assert reply is None or isinstance(reply.notes, tuple)
