"""Raw text from replies: what is undone, what stays open, what the counts decide."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagletui.core.assembly import assemble, candidates
from eagletui.core.chat import Message, Prompt, ToolCall
from eagletui.core.choice import TokenCounts, choose, count_tokens
from eagletui.core.outputs import Assembly, LossProfile, OutputFormat, Special, Text, fitted, split_specials
from eagletui.core.reply import FinishReason, ReasoningKind, Reply, Usage
from eagletui.tokens.formats import load_format, load_profile

KIMI: OutputFormat = load_format("kimi-k2.5")
QWEN3 = load_format("qwen3")
RAW = load_profile("raw")
TRIMMED = load_profile("trimmed")
VLLM = load_profile("vllm@0.32")
SGLANG = load_profile("sglang@0.5.23")
TOOLS = (
    '[{"type": "function", "function": {"name": "tip", "parameters": {"type": "object", '
    '"properties": {"who": {"type": "string"}, "ratio": {"type": "number"}, "flag": {"type": "boolean"}}}}}]'
)
ASKED = Prompt((Message("user", "hi"),), TOOLS)


def reply(
    content: str | None = None,
    reasoning: str | None = None,
    *,
    calls: tuple[ToolCall, ...] = (),
    finish: FinishReason = "stop",
    billed: int | None = None,
    billed_reasoning: int | None = None,
    kind: ReasoningKind | None = "text",
) -> Reply:
    return Reply(
        generation_id=None,
        model=None,
        endpoint=None,
        content=content,
        reasoning=reasoning,
        reasoning_kind=kind if reasoning else None,
        tool_calls=calls,
        finish_reason=finish,
        native_finish_reason=finish,
        usage=Usage(10, billed, billed_reasoning) if billed is not None else None,
    )


def tip(arguments: str, call_id: str | None = None) -> tuple[ToolCall, ...]:
    return (ToolCall(call_id, "tip", arguments),)


def by_characters(reading: Assembly) -> TokenCounts:
    """A tokenizer with one token per character."""
    return count_tokens(reading, len)


def raws(readings: tuple[Assembly, ...]) -> set[str]:
    return {reading.raw for reading in readings}


def test_a_thinking_answer_is_reasoning_close_tag_content_end_token() -> None:
    found = assemble(reply("Four.", "2+2"), KIMI, RAW)
    assert found.parts == (
        Text("2+2", "reasoning"),
        Special("</think>"),
        Text("Four.", "content"),
        Special("<|im_end|>"),
    )
    assert found.end == "<|im_end|>"


def test_a_special_string_inside_a_field_stays_text() -> None:
    found = assemble(reply("written <|im_end|> here", "closes with </think>, right"), KIMI, RAW)
    assert Text("written <|im_end|> here", "content") in found.parts
    assert Text("closes with </think>, right", "reasoning") in found.parts


def test_a_cut_answer_has_no_end_token_and_an_open_block_stays_open() -> None:
    assert assemble(reply(None, "still thin", finish="length"), KIMI, RAW).raw == "still thin"
    assert assemble(reply("half an ans", "done", finish="length"), KIMI, RAW).raw == "done</think>half an ans"


def test_no_reasoning_is_the_close_tag_alone_where_the_prompt_opens_and_nothing_where_it_closes() -> None:
    assert assemble(reply("Hi."), KIMI, RAW).raw == "</think>Hi.<|im_end|>"
    assert assemble(reply("Hi."), KIMI, RAW, thinking=False).raw == "Hi.<|im_end|>"


def test_kimi_calls_are_written_with_their_ids_and_arguments_as_received() -> None:
    calls = tip('{"ratio": 1.0, "who": "d\\u00e9j"}', "functions.tip:3")
    found = assemble(reply("Let me see", "hm", calls=calls, finish="tool_calls"), KIMI, RAW)
    assert found.raw == (
        "hm</think>Let me see<|tool_calls_section_begin|><|tool_call_begin|>functions.tip:3"
        '<|tool_call_argument_begin|>{"ratio": 1.0, "who": "d\\u00e9j"}<|tool_call_end|>'
        "<|tool_calls_section_end|><|im_end|>"
    )


def test_the_raw_profile_leaves_no_choice() -> None:
    calls = tip("{}", "functions.tip:3")
    assert len(candidates(reply(None, "hm", calls=calls, finish="tool_calls"), KIMI, RAW)) == 1
    assert len(candidates(reply("Four.", "2+2"), KIMI, RAW)) == 1


def test_stripped_fields_get_the_glue_of_the_family_back_once() -> None:
    expected = "<think>\n2+2\n</think>\n\nFour.<|im_end|>"
    assert assemble(reply("Four.", "2+2"), QWEN3, TRIMMED).raw == expected
    assert assemble(reply("\n\nFour.", "\n2+2\n"), QWEN3, RAW).raw == expected


def test_reasoning_inside_the_content_is_taken_out_where_no_parser_did() -> None:
    expected = "<think>\n2+2\n</think>\n\nFour.<|im_end|>"
    found = assemble(reply("<think>\n2+2\n</think>\n\nFour."), QWEN3, RAW)
    assert found.raw == expected
    assert Special("</think>") in found.parts
    assert assemble(reply("2+2</think>Four."), KIMI, RAW).parts[1] == Special("</think>")


def test_a_server_that_strips_reasoning_leaves_several_raw_texts_and_the_count_chooses() -> None:
    readings = candidates(reply("Four.", "2+2"), KIMI, VLLM)
    assert {"2+2</think>Four.<|im_end|>", "2+2\n</think>Four.<|im_end|>"} <= raws(readings)
    losses = VLLM.losses("kimi-k2.5")
    plain = choose(readings, losses, measure=by_characters, billed=10)
    assert (plain.assembly.raw, plain.agrees, plain.assembly.usability) == (
        "2+2</think>Four.<|im_end|>",
        True,
        "usable",
    )
    longer = choose(readings, losses, measure=by_characters, billed=11, billed_reasoning=4)
    assert longer.assembly.raw == "2+2\n</think>Four.<|im_end|>"
    assert longer.agrees


def test_reasoning_tokens_tell_a_newline_from_a_second_close_tag() -> None:
    readings = candidates(reply("Four.", "2+2"), KIMI, VLLM)
    twice = choose(readings, VLLM.losses("kimi-k2.5"), measure=by_characters, billed=11, billed_reasoning=3)
    assert twice.assembly.raw == "2+2</think></think>Four.<|im_end|>"


def test_without_a_count_a_lossy_server_gives_suspect_text() -> None:
    readings = candidates(reply("Four.", "2+2"), KIMI, VLLM)
    found = choose(readings, VLLM.losses("kimi-k2.5"), measure=None, billed=None).assembly
    assert found.usability == "text_suspect"
    assert "other raw texts give the same reply" in found.reasons[0]


def test_a_count_that_no_raw_text_explains_is_suspect_and_a_small_difference_of_kept_text_is_not() -> None:
    lossy = candidates(reply("Four.", "2+2"), KIMI, VLLM)
    found = choose(lossy, VLLM.losses("kimi-k2.5"), measure=by_characters, billed=60)
    assert (found.agrees, found.assembly.usability) == (False, "text_suspect")
    kept = candidates(reply("Four.", "2+2"), KIMI, RAW)
    near = choose(kept, RAW.losses("kimi-k2.5"), measure=by_characters, billed=12)
    assert (near.agrees, near.assembly.usability) == (False, "usable")
    far = choose(kept, RAW.losses("kimi-k2.5"), measure=by_characters, billed=60)
    assert far.assembly.usability == "text_suspect"


def test_the_offset_of_an_endpoint_is_taken_off_the_bill() -> None:
    readings = candidates(reply("Four.", "2+2"), KIMI, RAW)
    assert choose(readings, RAW.losses("kimi-k2.5"), measure=by_characters, billed=9, offset=-1).agrees


def test_a_call_billed_exactly_max_tokens_is_a_cut_and_has_no_end_token() -> None:
    calls = tip('{"who": "me"}', "functions.tip:0")
    whole = assemble(reply(None, "hm", calls=calls, finish="tool_calls"), KIMI, VLLM, ASKED)
    full = by_characters(whole).total
    cut = reply(None, "hm", calls=calls, finish="tool_calls", billed=full - 2)
    readings = candidates(cut, KIMI, VLLM, ASKED, max_tokens=full - 2)
    found = choose(readings, VLLM.losses("kimi-k2.5"), measure=by_characters, billed=full - 2).assembly
    assert found.open_ended
    assert found.end is None
    assert Special("<|im_end|>") not in found.parts
    assert found.usability == "text_suspect"
    assert "cut by max_tokens" in found.reasons[0]


def test_a_call_that_ends_by_itself_at_max_tokens_keeps_its_end_token() -> None:
    calls = tip('{"who": "me"}', "functions.tip:0")
    whole = assemble(reply(None, "hm", calls=calls, finish="tool_calls"), KIMI, VLLM, ASKED)
    full = by_characters(whole).total
    ended = reply(None, "hm", calls=calls, finish="tool_calls", billed=full)
    readings = candidates(ended, KIMI, VLLM, ASKED, max_tokens=4096)
    assert choose(readings, VLLM.losses("kimi-k2.5"), measure=by_characters, billed=full).assembly.end == "<|im_end|>"


def test_sglang_renumbers_call_ids_so_the_running_index_is_written() -> None:
    calls = tip("{}", "functions.tip:0")
    earlier = Message("assistant", "", tool_calls=tip("{}", "functions.tip:0"))
    prompt = Prompt((Message("user", "hi"), earlier, Message("tool", "12")), TOOLS)
    readings = candidates(reply(None, "hm", calls=calls, finish="tool_calls"), KIMI, SGLANG, prompt)
    assert "functions.tip:1<" in readings[0].raw
    assert any("functions.tip:0<" in raw for raw in raws(readings))


def test_reserialised_arguments_may_have_been_compact_escaped_or_indented() -> None:
    calls = tip('{"who": "dé", "ratio": 1.5}')
    texts = raws(candidates(reply(None, "\nhm\n", calls=calls, finish="tool_calls"), QWEN3, VLLM, ASKED))
    for written in (
        '"arguments": {"who": "dé", "ratio": 1.5}}',
        '"arguments": {"who":"dé","ratio":1.5}}',
        '"arguments": {"who": "d\\u00e9", "ratio": 1.5}}',
        '"arguments": {\n  "who": "dé",\n  "ratio": 1.5\n}}',
    ):
        assert any(written in text for text in texts)


def test_coerced_numbers_may_have_had_a_decimal_point() -> None:
    calls = tip('{"ratio": 1}', "functions.tip:0")
    texts = raws(candidates(reply(None, "hm", calls=calls, finish="tool_calls"), KIMI, VLLM, ASKED))
    assert any('{"ratio": 1.0}' in text for text in texts)
    assert any('{"ratio": 1}' in text for text in texts)


def test_tagged_parameters_keep_strings_as_they_are_and_mark_dsml_types() -> None:
    dsml = load_format("deepseek-v4")
    calls = tip('{"who": "a\\n\\"b\\"", "flag": true}')
    found = assemble(reply(None, "hm", calls=calls, finish="tool_calls"), dsml, SGLANG, ASKED, thinking=True)
    assert found.raw == (
        'hm</think>\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="tip">\n'
        '<｜DSML｜parameter name="who" string="true">a\n"b"</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="flag" string="false">true</｜DSML｜parameter>\n'
        "</｜DSML｜invoke>\n</｜DSML｜tool_calls><｜end▁of▁sentence｜>"
    )
    assert found.parts.count(Special("｜DSML｜")) == 8


def test_gemma_writes_sorted_bare_keys_and_quote_tokens() -> None:
    calls = tip('{"who": "me", "flag": true, "list": [1, "x"]}')
    found = assemble(reply(None, calls=calls, finish="tool_calls"), load_format("gemma-4"), RAW, ASKED)
    assert (
        found.raw == '<|tool_call>call:tip{flag:true,list:[1,<|"|>x<|"|>],who:<|"|>me<|"|>}<tool_call|><|tool_response>'
    )
    assert found.parts.count(Special('<|"|>')) == 4


def test_glm_ends_an_answer_and_a_call_with_different_tokens() -> None:
    glm = load_format("glm-4.7")
    assert assemble(reply("Hi.", "hm"), glm, RAW).end == "<|user|>"
    assert assemble(reply(None, "hm", calls=tip("{}"), finish="tool_calls"), glm, RAW).end == "<|observation|>"
    left = "<tool_call>tip</tool_call>"
    assert assemble(reply(left, "hm"), glm, SGLANG).raw == f"hm</think>{left}<|observation|>"


def test_harmony_writes_each_part_as_a_message() -> None:
    harmony = load_format("gpt-oss")
    assert assemble(reply("Hi.", "hm"), harmony, RAW).raw == (
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Hi.<|return|>"
    )
    assert assemble(reply("Hi."), harmony, RAW).raw == "<|channel|>final<|message|>Hi.<|return|>"
    call = assemble(reply(None, "hm", calls=tip("{}"), finish="tool_calls"), harmony, RAW)
    assert call.refused
    assert call.usability == "text_suspect"


def test_a_server_that_takes_one_header_of_a_call_leaves_no_doubt_about_it() -> None:
    harmony, call = load_format("gpt-oss"), reply(None, "hm", calls=tip("{}"), finish="tool_calls")
    assert assemble(call, harmony, VLLM).refused
    assert assemble(call, harmony, SGLANG).refused is None
    assert all("commentary to=functions.tip" in raw for raw in raws(candidates(call, harmony, SGLANG)))


def test_a_model_that_writes_compact_arguments_writes_them_so_in_every_call() -> None:
    calls = tuple(ToolCall(None, f"tip{number}", '{"who": "me", "ratio": 2}') for number in range(4))
    readings = candidates(reply(None, "hm", calls=calls, finish="tool_calls"), QWEN3, VLLM)
    compact = [reading for reading in readings if reading.raw.count('{"who":"me","ratio":2}') == 4]
    mixed = [reading for reading in readings if 0 < reading.raw.count('{"who":"me","ratio":2}') < 4]
    assert compact
    assert max(reading.prior for reading in compact) > max((reading.prior for reading in mixed), default=0.0)


def test_messages_that_a_server_joined_are_told_by_the_count() -> None:
    harmony = load_format("gpt-oss")
    readings = candidates(reply("First.\nThen.", "hm\nhm"), harmony, VLLM)
    analysis, between = "<|channel|>analysis<|message|>", "<|end|><|start|>assistant"
    final, preamble = "<|channel|>final<|message|>", "<|channel|>commentary<|message|>"
    for raw in (
        f"{analysis}hm{between}{analysis}hm{between}{final}First.\nThen.<|return|>",
        f"{analysis}hm\nhm{between}{preamble}First.{between}{final}Then.<|return|>",
    ):
        billed = next(by_characters(reading).total for reading in readings if reading.raw == raw)
        found = choose(readings, VLLM.losses("gpt-oss"), measure=by_characters, billed=billed)
        assert found.assembly.raw == raw


def test_the_close_tag_that_a_server_left_in_the_content_may_be_the_token() -> None:
    readings = candidates(reply(", right? So.</think>Four.", "It closes with "), KIMI, SGLANG)
    assert raws(readings) == {"It closes with </think>, right? So.</think>Four.<|im_end|>"}
    ways = {tuple(part.text for part in reading.parts if isinstance(part, Special)) for reading in readings}
    assert ways == {("</think>", "<|im_end|>"), ("</think>", "</think>", "<|im_end|>")}
    firsts = {part.text for reading in readings for part in reading.parts[:1]}
    assert firsts == {"It closes with ", "It closes with </think>, right? So."}


def test_an_answer_without_a_block_that_a_parser_took_for_reasoning_is_among_the_readings() -> None:
    assert "Just text.<|im_end|>" in raws(candidates(reply(None, "Just text."), QWEN3, VLLM))


def test_what_the_format_has_no_place_for_is_a_misfit_and_never_sound() -> None:
    found = assemble(reply("Hi.", "hm"), load_format("kimi-k2"), RAW)
    assert found.misfit == "the reply holds reasoning, and kimi-k2 has no reasoning part"
    assert found.usability == "text_suspect"
    calls = assemble(reply(None, calls=tip("{}"), finish="tool_calls"), load_format("chatml"), RAW)
    assert calls.misfit == "the reply holds tool calls, and chatml has no tool syntax"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (reply("Hi.", "summed up", kind="summary"), "the reasoning came as summary, not as text"),
        (reply("Hi.", "xx", kind="encrypted"), "the reasoning came as encrypted, not as text"),
        (reply(""), "the answer is empty"),
        (reply("Hal", finish="content_filter"), "the answer ended with content_filter"),
    ],
)
def test_answers_without_the_models_own_text_are_unusable(answer: Reply, reason: str) -> None:
    found = assemble(answer, KIMI, RAW)
    assert (found.usability, found.reasons) == ("unusable", (reason,))


def test_uncertain_literals_become_tokens_only_where_the_tokenizer_has_them() -> None:
    minimax = load_format("minimax-m2")
    assert "</think>" not in fitted(minimax, {"[e~["}).specials
    settled = fitted(minimax, {"[e~[", "</think>"})
    assert "</think>" in settled.specials
    assert Special("</think>") in assemble(reply("Hi.", "hm"), settled, RAW).parts


def test_measuring_stops_once_the_rest_cannot_change_the_choice() -> None:
    measured: list[str] = []

    def measure(reading: Assembly) -> TokenCounts:
        measured.append(reading.raw)
        return count_tokens(reading, len)

    readings = candidates(reply("Four.", "2+2"), KIMI, VLLM)
    choose(readings, VLLM.losses("kimi-k2.5"), measure=measure, billed=10)
    assert len(measured) < len(readings)


words = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=30)


@given(reasoning=words, content=words, profile=st.sampled_from([RAW, TRIMMED, VLLM, SGLANG]))
def test_every_reading_holds_the_fields_in_order_and_ends_with_the_end_token(
    reasoning: str, content: str, profile: LossProfile
) -> None:
    for reading in candidates(reply(content, reasoning), KIMI, profile):
        assert reading.raw.endswith("<|im_end|>")
        assert "".join(part.text for part in reading.parts) == reading.raw
        if "</think>" not in reasoning + content and profile.losses("kimi-k2.5").special_text == "kept":
            assert reading.raw.startswith(reasoning)
            assert reading.raw.removesuffix("<|im_end|>").endswith(content)


@given(pieces=st.lists(st.sampled_from(["<a>", "<ab>", "<", "a>", "xyz", "\n"])))
def test_split_specials_loses_no_character_and_finds_the_longest_special(pieces: list[str]) -> None:
    text = "".join(pieces)
    parts = split_specials(text, ("<a>", "<ab>"))
    assert "".join(part.text for part in parts) == text
    assert sum(part == Special("<ab>") for part in parts) == text.count("<ab>")


def test_a_reading_counts_tokens_inside_and_through_the_close_tag() -> None:
    reading = assemble(reply("Four.", "2+2"), QWEN3, replace(RAW, rules=()))
    counts = count_tokens(reading, len)
    assert counts == TokenCounts(total=1 + 3 + 1 + 5 + 1, inside=3, through_close=5)
