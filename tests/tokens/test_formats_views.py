"""What vLLM 0.32 and SGLang 0.5.23 return for known raw outputs, turned back into the raw text."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import zstandard

from eagletui.core.chat import Message, Prompt, ToolCall
from eagletui.providers.parse import parse_body
from eagletui.tokens.answer import Rebuilt, rebuild
from eagletui.tokens.formats import asked_thinking, load_format, load_profile
from eagletui.tokens.load import Tokenizer

VIEWS = Path(__file__).parents[1] / "data" / "captures" / "parser-views.jsonl.zst"
PROFILES = {"vllm-0.32.0": "vllm@0.32", "sglang-0.5.23": "sglang@0.5.23"}


def rows() -> list[dict[str, Any]]:
    lines = zstandard.ZstdDecompressor().decompress(VIEWS.read_bytes()).decode().splitlines()
    tools = json.loads(lines[0])["tools"]
    found = [json.loads(line) for line in lines[1:]]
    for row in found:
        if "tools" in row["request"]:
            row["request"]["tools"] = tools
    return found


def prompt_of(request: dict[str, Any]) -> Prompt:
    messages = tuple(
        Message(
            message["role"],
            message.get("content"),
            tool_calls=tuple(
                ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])
                for call in message.get("tool_calls") or ()
            ),
        )
        for message in request["messages"]
    )
    return Prompt(messages, json.dumps(request["tools"]) if "tools" in request else None)


def again(row: dict[str, Any], tokenizer: Tokenizer | None) -> Rebuilt:
    fmt = load_format(row["family"])
    return rebuild(
        parse_body(row["response"]),
        tokenizer,
        fmt,
        load_profile(PROFILES[row["server"]]),
        max_tokens=row["request"]["max_tokens"],
        prompt=prompt_of(row["request"]),
        thinking=asked_thinking(fmt, row["request"]),
    )


@pytest.fixture(scope="module")
def rebuilt(kimi: Tokenizer) -> list[tuple[dict[str, Any], Rebuilt]]:
    return [(row, again(row, kimi if row["family"] == "kimi-k2.5" else None)) for row in rows()]


Pairs = list[tuple[dict[str, Any], Rebuilt]]


def test_most_raw_texts_come_back_and_what_is_called_usable_is_right(rebuilt: Pairs) -> None:
    right = Counter(row["family"] for row, answer in rebuilt if answer.raw == row["truth_raw"])
    of_all = Counter(row["family"] for row, _ in rebuilt)
    assert right["gemma-3"] == of_all["gemma-3"]
    assert right["kimi-k2.5"] >= 0.75 * of_all["kimi-k2.5"]
    assert sum(right.values()) >= 0.65 * sum(of_all.values())
    usable = [answer.raw == row["truth_raw"] for row, answer in rebuilt if answer.usability == "usable"]
    assert sum(usable) >= 0.95 * len(usable)
    assert len(usable) >= 0.45 * len(rebuilt)


def test_kimi_ids_are_exact_wherever_the_raw_text_is(rebuilt: Pairs) -> None:
    for row, answer in rebuilt:
        if row["family"] == "kimi-k2.5" and answer.raw == row["truth_raw"]:
            assert list(answer.output_ids or ()) == row["truth_ids"], row["id"]


def test_no_view_is_called_proved(rebuilt: Pairs) -> None:
    assert {answer.evidence for _, answer in rebuilt} <= {"counted", "canonical", "conflict"}


def test_a_cut_call_that_the_server_calls_tool_calls_has_no_end_token_and_is_not_usable(rebuilt: Pairs) -> None:
    cut = [
        (row, answer)
        for row, answer in rebuilt
        if row["case"] == "length-in-tool"
        and row["response"]["choices"][0]["finish_reason"] == "tool_calls"
        and "usage" in row["response"]
    ]
    assert cut
    for row, answer in cut:
        assert not answer.raw.endswith(load_format(row["family"]).end.stop), row["id"]
        assert answer.usability == "text_suspect"


def test_text_that_a_server_dropped_is_never_called_usable(rebuilt: Pairs) -> None:
    lost = {"tool-undeclared", "tool-no-tools", "tool-tail"}
    for row, answer in rebuilt:
        if row["case"] in lost and answer.raw != row["truth_raw"]:
            assert answer.usability != "usable", (row["id"], answer.reason)
