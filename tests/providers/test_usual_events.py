"""The fast reading of a stream says what the tolerant one says, whatever stands in its events."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagletui.core.errors import ReplyError
from eagletui.core.reply import Reply
from eagletui.providers.parse import parse_events, parse_stream, split_sse
from eagletui.providers.usual_events import usual_choice

RAW = Path(__file__).parents[1] / "data" / "raw"
STREAMS = sorted(
    path for path in RAW.glob("*/*.resp.txt") if b"\ndata:" in path.read_bytes()[:4096].replace(b"\r", b"")
)


def recorded(path: Path) -> bytes:
    return re.split(rb"\r?\n\r?\n", path.read_bytes(), maxsplit=1)[1]


def sse(events: list[Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


def event(delta: dict[str, Any], *, choice: dict[str, Any] | None = None, **beside: Any) -> dict[str, Any]:
    choices = [{"index": 0, "delta": delta, "finish_reason": None, **(choice or {})}]
    return {"id": "gen-1", "provider": "Example", "model": "m", "choices": choices, **beside}


def either(body: bytes) -> tuple[Reply | str, Reply | str]:
    """What both ways make of a stream; an error counts by its text."""
    made: list[Reply | str] = []
    for parse in (parse_stream, lambda data: parse_events(split_sse(data))):
        try:
            made.append(parse(body))
        except ReplyError as error:
            made.append(str(error))
    return made[0], made[1]


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: f"{path.parent.name}/{path.name.split('.')[0]}")
def test_recorded_streams_are_read_alike(path: Path) -> None:
    fast, tolerant = either(recorded(path))
    assert isinstance(fast, Reply)
    assert fast == tolerant


def test_the_usual_event_is_read_fast() -> None:
    entry = {"token": "é", "bytes": [195, 169], "logprob": -0.25, "top_logprobs": []}
    data = json.dumps(event({"role": "assistant", "content": "é"}, choice={"logprobs": {"content": [entry]}})).encode()
    assert usual_choice(data) is not None
    assert usual_choice(json.dumps(event({"content": "a"}, usage={"completion_tokens": 3})).encode()) is None


UNUSUAL: tuple[dict[str, Any], ...] = (
    event({"content": None}),
    event({"content": "a", "reasoning": "b"}),
    event({"reasoning_content": "b"}),
    event({"content": "", "reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]}),
    event({"content": None, "tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{}"}}]}),
    event({"content": "a", "refusal": "no"}),
    event({"content": "a"}, choice={"token_ids": [1, 2]}),
    event({"content": "a", "token_ids": [3]}),
    event({"content": "a"}, usage={"prompt_tokens": 2, "completion_tokens": 5, "cost": 0.0000123}),
    event({"content": "a"}, timings={"predicted_n": 4}),
    event({"content": "a"}, choice={"index": 1}),
    event({"content": "a"}, choice={"finish_reason": "stop", "stop_reason": 2}),
    event({"content": "a"}, choice={"logprobs": {"content": [{"token": "a", "bytes": None, "logprob": -1}]}}),
    event({"content": "a"}, choice={"logprobs": {"content": [{"token": "a", "bytes": [97], "logprob": -9999.0}]}}),
    event({"content": "a"}, choice={"logprobs": {"content": [{"token": "a", "bytes": [300], "logprob": -1.0}]}}),
    event(
        {"content": "a"}, choice={"logprobs": {"content": [{"token": "token_id:7", "bytes": [97], "logprob": -1.0}]}}
    ),
    event(
        {"content": "a"}, choice={"logprobs": {"content": [{"id": 7, "token": "a", "bytes": [97], "logprob": -1.0}]}}
    ),
    event({"content": "a"}, choice={"logprobs": {"tokens": ["a"]}}),
    event({"content": "a"}, choice={"error": {"message": "broken"}}),
    event({"content": "a"}, error={"message": "broken"}),
    event({"content": "a"}, prompt_token_ids=[1]),
    event({"content": "a"}, __verbose={"tokens": [1]}),
    event({"content": [{"type": "text", "text": "a"}]}),
    {"choices": []},
    {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}},
    {"choices": "none"},
    {"object": "ping"},
)
"""Events with something that only the tolerant reading knows, or that is wrong."""

USUAL = (
    event({"content": "x"}),
    event({"role": "assistant", "content": "é\n"}),
    event({"content": "y"}, choice={"logprobs": {"content": [{"token": "y", "bytes": [121], "logprob": -0.5}]}}),
)


@given(st.lists(st.sampled_from((*USUAL, *UNUSUAL)), max_size=8))
def test_any_events_are_read_alike(events: list[dict[str, Any]]) -> None:
    first = [event({"role": "assistant", "content": ""})] if events and "choices" in events[0] else []
    fast, tolerant = either(sse([*first, *events]))
    if isinstance(fast, Reply):
        assert fast == tolerant
    else:
        assert isinstance(tolerant, str)
