"""Prompt ids: what the sandbox renders, and what it refuses."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from eagletui.core.chat import Message, Prompt, ToolCall
from eagletui.core.errors import FormatError
from eagletui.tokens.formats import load_format
from eagletui.tokens.load import Tokenizer
from eagletui.tokens.prompt import encode_rendered, render_prompt, render_text

TEMPLATES = Path(__file__).parents[1] / "data" / "chat-templates"
CHATML = load_format("chatml")
TOOLS = [{"type": "function", "function": {"name": "f", "description": "é <b>", "parameters": {"type": "object"}}}]
TALK = Prompt(
    (
        Message("system", "Be brief."),
        Message("user", "hi"),
        Message("assistant", "look", "hm", (ToolCall("functions.f:0", "f", '{"b": 1.0, "a": [true, null]}'),)),
        Message("tool", "12", tool_call_id="functions.f:0", name="f"),
        Message("assistant", "done", "ok"),
        Message("user", "again"),
    ),
    json.dumps(TOOLS),
)


@pytest.mark.parametrize("kwargs", [{}, {"enable_thinking": False}, {"thinking": True}], ids=str)
@pytest.mark.parametrize("path", sorted(TEMPLATES.iterdir()), ids=lambda path: str(path.stem))
def test_templates_render_as_transformers_renders_them(path: Path, kwargs: dict[str, object]) -> None:
    library = pytest.importorskip("transformers.utils.chat_template_utils")
    source = path.read_text("utf-8")
    variables = {"bos_token": "<s>", "eos_token": "</s>", **kwargs}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": "look",
            "reasoning_content": "hm",
            "reasoning": "hm",
            "tool_calls": [
                {
                    "id": "functions.f:0",
                    "type": "function",
                    "function": {"name": "f", "arguments": {"b": 1.0, "a": [True, None]}},
                }
            ],
        },
        {"role": "tool", "content": "12", "tool_call_id": "functions.f:0", "name": "f"},
        {"role": "assistant", "content": "done", "reasoning_content": "ok", "reasoning": "ok"},
        {"role": "user", "content": "again"},
    ]
    try:
        expected = library.render_jinja_template(
            [messages], tools=TOOLS, chat_template=source, add_generation_prompt=True, **variables
        )[0][0]
    except Exception:  # the template refuses this conversation
        with pytest.raises(FormatError, match="refuses this conversation"):
            render_text(source, TALK, CHATML, variables)
        return
    assert render_text(source, TALK, CHATML, variables) == expected


def test_special_strings_of_the_rendered_text_become_their_tokens(kimi: Tokenizer) -> None:
    found = render_prompt(Prompt((Message("user", "hi"),)), kimi, load_format("kimi-k2.5"))
    specials = kimi.vocabulary.specials
    assert found.text == "<|im_user|>user<|im_middle|>hi<|im_end|><|im_assistant|>assistant<|im_middle|><think>"
    assert found.ids[0] == specials["<|im_user|>"]
    assert found.ids[-1] == specials["<think>"]
    assert kimi.vocabulary.decode(found.ids).decode() == found.text


def test_kimi_tools_in_json_cost_what_the_provider_billed(kimi: Tokenizer) -> None:
    # A recorded bill: 75 prompt tokens for this message.
    text = "😃🎨🎮🎴🎵" + "🎵" * 28
    found = render_prompt(Prompt((Message("user", text),)), kimi, load_format("kimi-k2.5"))
    assert len(found.ids) == 75


def test_typescript_tools_reach_a_template_that_reads_them_and_no_other() -> None:
    fmt = load_format("kimi-k2.5")
    reads = "{% if tools_ts_str %}{{ tools_ts_str }}{% else %}{{ tools | tojson }}{% endif %}"
    assert render_text(reads, TALK, fmt).startswith("# Tools\n\n## functions\nnamespace functions {\n// é <b>\n")
    assert render_text("{{ tools | tojson }}", TALK, fmt) == json.dumps(TOOLS, ensure_ascii=False)


def test_absent_fields_are_absent_and_arguments_are_objects() -> None:
    template = "{% for m in messages %}{{ m | tojson }}\n{% endfor %}"
    lines = [json.loads(line) for line in render_text(template, TALK, CHATML).splitlines()]
    assert lines[1] == {"role": "user", "content": "hi"}
    assert lines[2]["tool_calls"][0]["function"]["arguments"] == {"b": 1.0, "a": [True, None]}
    text = [json.loads(line) for line in render_text(template, TALK, load_format("deepseek-r1")).splitlines()]
    assert text[2]["tool_calls"][0]["function"]["arguments"] == '{"b": 1.0, "a": [true, null]}'


def test_the_date_of_a_prompt_is_the_one_that_was_given() -> None:
    at = datetime(2026, 7, 26, tzinfo=UTC)
    assert render_text("{{ strftime_now('%d %b %Y') }}", TALK, CHATML, now=at) == "26 Jul 2026"


def test_generation_tags_and_loop_controls_are_known() -> None:
    template = "{% for m in messages %}{% generation %}{{ m.role }} {% endgeneration %}{% break %}{% endfor %}"
    assert render_text(template, TALK, CHATML) == "system "


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ raise_exception('Conversation roles must alternate') }}",
        "{{ 1 / 0 }}",
        "{% for x in range(10 ** 9) %}{% endfor %}",
        "{% if %}",
    ],
)
def test_a_hostile_or_refusing_template_is_one_error(template: str) -> None:
    with pytest.raises(FormatError, match="The chat template of chatml refuses this conversation"):
        render_text(template, TALK, CHATML)


def test_a_folder_without_a_template_is_named(kimi: Tokenizer) -> None:
    from dataclasses import replace

    with pytest.raises(FormatError, match=r"kimi-shaped: found no chat template, expected chat_template.jinja"):
        render_prompt(TALK, replace(kimi, chat_template=None), CHATML)


def test_prompts_take_the_tokenizers_unicode_form_and_answers_do_not(smollm2: Tokenizer) -> None:
    from dataclasses import replace

    decomposed = "e\u0301"
    composing = replace(smollm2, prompt_form="NFC")
    assert encode_rendered(decomposed, composing) == tuple(smollm2.encode("é"))
    assert encode_rendered(decomposed, smollm2) == tuple(smollm2.encode(decomposed))
