"""Raw text from replies: what is undone, what stays open, what the counts decide."""

from eagletui.core.assembly import assemble, candidates
from eagletui.core.chat import ToolCall
from eagletui.core.outputs import OutputFormat, Special, Text
from eagletui.core.reply import FinishReason, Reply, Usage
from eagletui.tokens.formats import load_format, load_profile

KIMI: OutputFormat = load_format("kimi-k2.5")
RAW = load_profile("raw")


def reply(
    content: str | None = None,
    reasoning: str | None = None,
    *,
    calls: tuple[ToolCall, ...] = (),
    finish: FinishReason = "stop",
    billed: int | None = None,
    billed_reasoning: int | None = None,
) -> Reply:
    usage = Usage(10, billed, billed_reasoning) if billed is not None else None
    return Reply(
        generation_id=None,
        model=None,
        endpoint=None,
        content=content,
        reasoning=reasoning,
        reasoning_kind="text" if reasoning else None,
        tool_calls=calls,
        finish_reason=finish,
        native_finish_reason=finish,
        usage=usage,
    )


def test_a_thinking_answer_is_reasoning_close_tag_content_end_token() -> None:
    found = assemble(reply("Four.", "2+2"), KIMI, RAW)
    assert found.parts == (
        Text("2+2", "reasoning"),
        Special("</think>"),
        Text("Four.", "content"),
        Special("<|im_end|>"),
    )
    assert found.raw == "2+2</think>Four.<|im_end|>"
    assert found.end == "<|im_end|>"


def test_a_special_string_inside_a_field_stays_text() -> None:
    found = assemble(reply("written <|im_end|> here", "closes with </think>, right"), KIMI, RAW)
    assert Text("written <|im_end|> here", "content") in found.parts
    assert Text("closes with </think>, right", "reasoning") in found.parts


def test_a_cut_answer_has_no_end_token_and_an_open_block_stays_open() -> None:
    assert assemble(reply(None, "still thin", finish="length"), KIMI, RAW).raw == "still thin"
    assert assemble(reply("half an ans", "done", finish="length"), KIMI, RAW).raw == "done</think>half an ans"


def test_kimi_calls_are_written_with_their_ids_and_arguments_as_received() -> None:
    call = ToolCall("functions.tip:3", "tip", '{"ratio": 1.0, "who": "d\\u00e9j"}')
    found = assemble(reply("Let me see", "hm", calls=(call,), finish="tool_calls"), KIMI, RAW)
    assert found.raw == (
        "hm</think>Let me see<|tool_calls_section_begin|><|tool_call_begin|>functions.tip:3"
        '<|tool_call_argument_begin|>{"ratio": 1.0, "who": "d\\u00e9j"}<|tool_call_end|>'
        "<|tool_calls_section_end|><|im_end|>"
    )


def test_the_raw_profile_leaves_no_choice() -> None:
    call = ToolCall("functions.tip:3", "tip", "{}")
    assert len(candidates(reply(None, "hm", calls=(call,), finish="tool_calls"), KIMI, RAW)) == 1
    assert len(candidates(reply("Four.", "2+2"), KIMI, RAW)) == 1
