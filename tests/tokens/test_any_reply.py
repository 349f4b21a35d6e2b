"""Whatever an API sends and the parser accepts, rebuilding ends without a traceback and proves nothing false."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eagletui.core.errors import ReplyError
from eagletui.core.outputs import OutputFormat
from eagletui.embedded.data import tokenizer_dir
from eagletui.providers.parse import parse_body, parse_events
from eagletui.tokens.answer import rebuild
from eagletui.tokens.formats import list_formats, load_profile
from eagletui.tokens.load import load_tokenizer

SMOLLM2 = load_tokenizer(tokenizer_dir())

texts = (
    st.none() | st.text(max_size=12) | st.sampled_from(["", "\n", "</think>", "\ufffd", "a\ufffd", "<|im_end|>", "🎉"])
)
counts = st.none() | st.integers(0, 20)
finishes = st.sampled_from([None, "stop", "length", "tool_calls", "content_filter", "error", "odd"])
arguments = texts | st.sampled_from(["{}", '{"a": 1.0}', '{"a": [1, {"b": null}]}', "[", "3"])
functions = st.fixed_dictionaries({"name": texts, "arguments": arguments})
calls = st.none() | st.lists(st.fixed_dictionaries({"id": texts, "function": functions}), max_size=3)
entries = st.none() | st.lists(
    st.fixed_dictionaries(
        {
            "token": st.text(max_size=3),
            "bytes": st.none() | st.lists(st.integers(0, 255), max_size=4),
            "id": st.none() | st.integers(0, 60_000),
        }
    ),
    max_size=5,
)
ids = st.none() | st.lists(st.integers(0, 60_000), max_size=5)
messages = st.fixed_dictionaries({"content": texts, "reasoning": texts, "tool_calls": calls})
details = st.none() | st.fixed_dictionaries({"reasoning_tokens": counts})
usages = st.none() | st.fixed_dictionaries(
    {"completion_tokens": counts, "prompt_tokens": counts, "completion_tokens_details": details}
)
bodies = st.builds(
    lambda message, finish, usage, logprobs, token_ids: {
        "choices": [
            {"message": message, "finish_reason": finish, "logprobs": {"content": logprobs}, "token_ids": token_ids}
        ],
        "usage": usage,
    },
    messages,
    finishes,
    usages,
    entries,
    ids,
)
events = st.lists(
    st.builds(
        lambda delta, finish, usage, token_ids: {
            "choices": [{"delta": delta, "finish_reason": finish, "token_ids": token_ids}],
            "usage": usage,
        },
        messages,
        finishes,
        usages,
        ids,
    ),
    min_size=1,
    max_size=5,
)


profiles = st.sampled_from(["kept", "raw", "trimmed", "vllm", "sglang"])


@pytest.mark.parametrize("fmt", list_formats(), ids=lambda fmt: fmt.name)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    bodies | events, st.sampled_from(["kept", "raw", "trimmed", "vllm", "sglang"]), counts, st.sampled_from([None, -1])
)
def test_any_reply_is_rebuilt(
    fmt: OutputFormat, given_reply: Any, profile: str, max_tokens: int | None, offset: int | None
) -> None:
    try:
        reply = parse_events(given_reply) if isinstance(given_reply, list) else parse_body(given_reply)
    except ReplyError:
        return
    for tokenizer in (SMOLLM2, None):
        found = rebuild(reply, tokenizer, fmt, load_profile(profile), max_tokens=max_tokens, offset=offset)
        found.raw.encode()
        if tokenizer is not None:
            assert found.output_ids is not None
            assert SMOLLM2.vocabulary.first_unknown(found.output_ids) is None
            assert found.counted == len(found.output_ids)
            if found.billed is not None:
                assert found.drift == found.billed - len(found.output_ids) - (found.offset or 0)
