"""Format and profile files: what loads, what is refused and how, and what the templates say about them."""

import json
from pathlib import Path

import pytest

from eagletui.core.assembly import assemble
from eagletui.core.chat import Message, Prompt, ToolCall
from eagletui.core.errors import FormatError
from eagletui.core.outputs import Losses, LossProfile, OutputFormat
from eagletui.core.reply import FinishReason, Reply
from eagletui.tokens.formats import (
    asked_thinking,
    format_for_model,
    list_formats,
    list_profiles,
    load_format,
    load_profile,
)
from eagletui.tokens.prompt import render_text

TEMPLATES = Path(__file__).parents[1] / "data" / "chat-templates"
FAMILIES = (
    "kimi-k2 kimi-k2-thinking kimi-k2.5 kimi-k2.6 qwen3 qwen3-instruct-2507 qwen3-thinking-2507 qwen3.5 qwen3.6 "
    "deepseek-r1 deepseek-v3 deepseek-v3.1 deepseek-v3.2 deepseek-v4 glm-4.5 glm-4.6 glm-4.7 glm-5 gpt-oss llama-3.1 "
    "minimax-m2 gemma-3 gemma-4 mistral nemotron-3 chatml smollm2"
).split()
STRIPPED = LossProfile(
    "stripped",
    "",
    "",
    Losses(
        reasoning="strip",
        content="strip",
        content_with_tools="strip",
        tool_ids="renumbered",
        implicit_close=False,
        text_after_calls="kept",
    ),
)
"""A server that leaves only what stands between the glue, so that all glue comes from the format."""
CALLS = (ToolCall("abcdefghi", "fa", '{"x": "v1", "n": 3}'), ToolCall("abcdefghj", "fb", '{"y": [1, 2]}'))
TOOLS = json.dumps(
    [
        {
            "type": "function",
            "function": {"name": name, "description": "d", "parameters": {"type": "object", "properties": {}}},
        }
        for name in ("fa", "fb")
    ]
)
WITH_TEMPLATE = [fmt.name for fmt in list_formats() if fmt.template]


def write(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text)
    return str(path)


VALID = """
name = "mine"
title = "Mine"
state = "from documentation"
source = "a page"
specials = ["<end>"]
[end]
stop = "<end>"
"""


def test_every_family_is_there() -> None:
    assert sorted(FAMILIES) == [fmt.name for fmt in list_formats()]


def test_a_family_of_ones_own_is_a_file(tmp_path: Path) -> None:
    fmt = load_format(write(tmp_path, VALID))
    assert (fmt.name, fmt.end.stop) == ("mine", "<end>")


def test_an_unknown_format_names_near_ones() -> None:
    with pytest.raises(FormatError, match=r"Unknown output format 'kimi-k25'. Did you mean kimi-k2.5"):
        load_format("kimi-k25")
    with pytest.raises(FormatError, match=r"Unknown loss profile 'vlm'. Did you mean"):
        load_profile("vlm")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("title", "titel"), r"mine.toml: key titel: found an unknown key, expected `title`"),
        (('title = "Mine"\n', ""), r"mine.toml: key title: found nothing, expected a string"),
        (('"Mine"', "3"), r"mine.toml: key title: found 3, expected a string"),
        (('"from documentation"', '"guessed"'), r"key state: found 'guessed', expected one of 'proved on served ids'"),
        (('["<end>"]', '"<end>"'), r"key specials: found '<end>', expected a list of a string"),
        (("[end]", "[tools]\ncodec = 'json'\neach = 'x'\n[end]"), r"key tools.each: found 'x', expected the field"),
        (("[end]", "[end"), r"mine.toml: found .*, expected TOML"),
    ],
)
def test_a_broken_format_names_file_key_found_and_expected(
    tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    with pytest.raises(FormatError, match=message):
        load_format(write(tmp_path, VALID.replace(*change)))


def test_an_end_token_is_a_special_whether_it_is_listed_or_not(tmp_path: Path) -> None:
    assert load_format(write(tmp_path, VALID.replace('stop = "<end>"', 'stop = "<stop>"'))).specials == (
        "<end>",
        "<stop>",
    )


def test_a_broken_profile_names_the_rule(tmp_path: Path) -> None:
    text = (
        'name = "p"\ntitle = "P"\nsource = "s"\n[[rules]]\nformats = ["qwen3"]\n[rules.changes]\nreasonig = "strip"\n'
    )
    with pytest.raises(
        FormatError, match=r"key rules\[0\].changes.reasonig: found an unknown key, expected `reasoning`"
    ):
        load_profile(write(tmp_path, text))


def test_a_server_without_a_version_is_its_newest_and_an_unknown_version_the_one_before() -> None:
    assert load_profile("sglang").name == "sglang@0.5.23"
    assert load_profile("vllm@0.32.0").name == "vllm@0.32"
    assert load_profile("sglang@0.5.9").name == "sglang@0.5"
    with pytest.raises(FormatError, match=r"Unknown loss profile 'vllm@0.1'"):
        load_profile("vllm@0.1")


def test_every_profile_speaks_of_known_formats_and_known_spellings() -> None:
    for profile in list_profiles():
        for rule in profile.rules:
            named = rule.changes.get("spellings", ())
            known = {spelling.name for name in rule.formats for spelling in load_format(name).tools.spellings}
            assert isinstance(named, tuple)
            assert set(named) <= known, (profile.name, rule.formats)


def test_the_longest_model_prefix_decides() -> None:
    assert getattr(format_for_model("Qwen/Qwen3-30B-A3B-Thinking-2507"), "name", None) == "qwen3-thinking-2507"
    assert getattr(format_for_model("Qwen/Qwen3-30B-A3B"), "name", None) == "qwen3"
    assert getattr(format_for_model("moonshotai/Kimi-K2.5"), "name", None) == "kimi-k2.5"
    assert format_for_model("someone/else") is None


@pytest.mark.parametrize(
    ("name", "request_", "thinks"),
    [
        ("qwen3", {"chat_template_kwargs": {"enable_thinking": False}}, False),
        ("qwen3", {"chat_template_kwargs": {"other": 1}}, None),
        ("kimi-k2.5", {"chat_template_kwargs": {"thinking": False}}, False),
        ("deepseek-v4", {"chat_template_kwargs": {"thinking": True}}, True),
        ("kimi-k2.5", {"reasoning": {"enabled": False}}, False),
        ("kimi-k2.5", {"reasoning": {"effort": "high"}}, True),
        ("kimi-k2.5", {}, None),
        ("chatml", {"reasoning": {"effort": "high"}}, None),
    ],
)
def test_a_request_says_whether_the_prompt_asks_for_thinking(
    name: str, request_: dict[str, object], thinks: bool | None
) -> None:
    assert asked_thinking(load_format(name), request_) is thinks


def rebuilt(fmt: OutputFormat, turn: Message, finish: FinishReason, thinking: bool) -> str:
    answer = Reply(
        generation_id=None,
        model=None,
        endpoint=None,
        content=turn.content,
        reasoning=turn.reasoning,
        reasoning_kind="text" if turn.reasoning else None,
        tool_calls=turn.tool_calls,
        finish_reason=finish,
        native_finish_reason=None,
        usage=None,
    )
    prompt = Prompt((Message("user", "U"),), TOOLS if turn.tool_calls else None)
    return assemble(answer, fmt, STRIPPED, prompt, thinking=thinking).raw


def rendered(fmt: OutputFormat, turn: Message, kwargs: dict[str, object]) -> str | None:
    """Return what the template writes for an assistant turn after the prompt; None when it refuses or rewrites."""
    template = (TEMPLATES / fmt.template).read_text("utf-8")
    variables = {"bos_token": "<bos>", "eos_token": fmt.end.stop, **kwargs}
    tools = TOOLS if turn.tool_calls else None
    asked = (Message("user", "U"),)
    try:
        before = render_text(template, Prompt(asked, tools), fmt, variables)
        after = render_text(template, Prompt((*asked, turn), tools), fmt, variables, add_generation_prompt=False)
    except FormatError:
        return None
    return after.removeprefix(before) if after.startswith(before) else None


@pytest.mark.parametrize("name", WITH_TEMPLATE)
@pytest.mark.parametrize("shape", ["content", "content and calls", "calls"])
def test_the_glue_is_what_the_template_writes_or_the_file_says_why_not(name: str, shape: str) -> None:
    fmt = load_format(name)
    calls = CALLS if "calls" in shape else ()
    if calls and fmt.tools.codec == "none":
        return
    reasoning = "RSENTINEL" if fmt.reasoning.opened_by != "none" else None
    turn = Message("assistant", "CSENTINEL" if "content" in shape else "", reasoning, calls)
    finish: FinishReason = "tool_calls" if calls else "stop"
    expected = rebuilt(fmt, turn, finish, thinking=True)
    written = rendered(fmt, turn, dict(fmt.reasoning.on))
    if written is None:
        assert fmt.differs or fmt.refuses or fmt.tools.codec == "json", (
            "the template cannot show it and the file is silent"
        )
        return
    # The families without an end token of their own close a turn with the next turn's opener.
    closed = written + (fmt.end_token(finish) or "")
    assert written.startswith(expected) or closed == expected or fmt.differs, f"{written!r} is not {expected!r}"


@pytest.mark.parametrize(
    "name",
    ["deepseek-v3.2", "deepseek-v4", "glm-4.5", "glm-4.6", "glm-4.7", "kimi-k2", "nemotron-3", "qwen3", "qwen3.5"],
)
def test_glue_and_tool_syntax_of_these_families_derive_whole_from_the_template(name: str) -> None:
    fmt = load_format(name)
    reasoning = "RSENTINEL" if fmt.reasoning.opened_by != "none" else None
    for content in ("CSENTINEL", ""):
        turn = Message("assistant", content, reasoning, CALLS)
        written = rendered(fmt, turn, dict(fmt.reasoning.on))
        assert written is not None
        expected = rebuilt(fmt, turn, "tool_calls", thinking=True)
        assert written.startswith(expected) or written + (fmt.end.tool_calls or "") == expected


def test_every_template_that_a_file_names_is_here_and_none_is_left_over() -> None:
    assert {fmt.template for fmt in list_formats() if fmt.template} == {path.name for path in TEMPLATES.iterdir()}
