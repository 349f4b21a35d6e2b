"""What a run's config makes of its prompts: template kwargs, thinking switches and the reasoning of earlier turns."""

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from eagletui.config.run_config import RunConfig
from eagletui.core.chat import Message, Prompt, ToolCall
from eagletui.core.errors import FormatError
from eagletui.core.money import Price
from eagletui.core.outputs import OutputFormat
from eagletui.embedded.data import tokenizer_dir
from eagletui.engine.connect import connect
from eagletui.providers.base import ChatRequest, Sampling
from eagletui.providers.openai_compatible import OpenAiCompatible
from eagletui.providers.openrouter import OpenRouter
from eagletui.run_ids import RunIds
from eagletui.runs.folder import RunFolder
from eagletui.tokens.formats import asked_kwargs, asked_thinking, list_formats, load_format
from eagletui.tokens.load import load_tokenizer
from eagletui.tokens.prompt import render_text

TEMPLATES = Path(__file__).parent / "data" / "chat-templates"
SMOLLM2 = load_tokenizer(tokenizer_dir())
ECHO = "{{ preserve_thinking }}|{{ enable_thinking }}|{{ thinking }}|{{ reasoning_effort }}"
"""Writes the template variables that a run can set."""


def config_of(fmt: str, reasoning: str, kwargs: dict[str, Any], kind: str = "vllm") -> RunConfig:
    """A config whose data set `chat` asks for reasoning so."""
    return RunConfig.model_validate(
        {
            "run": {"name": "r"},
            "prompts": {"path": ["p.jsonl"]},
            "model": {"id": "m", "tokenizer": "t", "format": fmt, "template_kwargs": kwargs},
            "provider": {"kind": kind},
            "sampling": {"reasoning": "default", "chat": {"reasoning": reasoning}},
            "spend": {"stop_at_usd": "1", "cap_usd": "1"},
        }
    )


@pytest.mark.parametrize(
    ("fmt", "reasoning", "kwargs", "written"),
    [
        ("kimi-k2.6", "default", {"preserve_thinking": True}, "True|||"),
        ("kimi-k2.6", "off", {}, "||False|"),
        ("qwen3", "off", {"preserve_thinking": True}, "True|False||"),
        ("gemma-4", "high", {}, "|True||high"),
        ("gpt-oss", "low", {}, "|||low"),
        ("qwen3", "off", {"enable_thinking": True}, "|True||"),
    ],
)
async def test_kwargs_and_switches_of_the_config_reach_the_template_and_the_server_alike(
    fmt: str, reasoning: str, kwargs: dict[str, Any], written: str, tmp_path: Path
) -> None:
    config = config_of(fmt, reasoning, kwargs)
    ids = RunIds(config, replace(SMOLLM2, chat_template=ECHO), load_format(fmt))
    prompt = Prompt((Message("user", "Hi"),))
    rendered = ids.prompt_ids(prompt, "chat")
    assert rendered is not None
    assert SMOLLM2.vocabulary.decode(rendered).decode() == written
    provider = connect(config, RunFolder(tmp_path))
    assert isinstance(provider, OpenAiCompatible)
    request = ChatRequest(prompt, "m", None, Sampling(1.0, 1.0, reasoning=reasoning), 9, False, False, None)
    sent = provider.request_body(request).get("chat_template_kwargs", {})
    await provider.aclose()
    assert render_text(ECHO, prompt, load_format(fmt), sent) == written


@pytest.mark.parametrize(
    ("fmt", "reasoning", "kwargs", "sent"),
    [
        ("kimi-k2.6", "default", {}, {}),
        ("kimi-k2.6", "off", {}, {"reasoning": {"enabled": False}}),
        ("kimi-k2.6", "default", {"thinking": False}, {"reasoning": {"enabled": False}}),
        ("qwen3", "off", {"enable_thinking": True}, {"reasoning": {"enabled": True}}),
        ("qwen3", "high", {"enable_thinking": True}, {"reasoning": {"effort": "high"}}),
        ("gpt-oss", "low", {}, {"reasoning": {"effort": "low"}}),
        ("gpt-oss", "low", {"reasoning_effort": "high"}, {"reasoning": {"effort": "high"}}),
        ("kimi-k2.6", "default", {"preserve_thinking": True}, {"chat_template_kwargs": {"preserve_thinking": True}}),
        (
            "kimi-k2.6",
            "off",
            {"preserve_thinking": True},
            {"reasoning": {"enabled": False}, "chat_template_kwargs": {"preserve_thinking": True}},
        ),
    ],
)
async def test_a_router_is_asked_by_its_own_fields_for_what_the_prompt_is_rendered_with(
    fmt: str,
    reasoning: str,
    kwargs: dict[str, Any],
    sent: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", "k")
    config = config_of(fmt, reasoning, kwargs, kind="openrouter")
    prompt = Prompt((Message("user", "Hi"),))
    provider = connect(config, RunFolder(tmp_path))
    assert isinstance(provider, OpenRouter)
    price = Price(Decimal(0), Decimal(0), Decimal(0))
    request = ChatRequest(prompt, "m", "e", Sampling(1.0, 1.0, reasoning=reasoning), 9, False, False, price)
    body = provider.request_body(request)
    await provider.aclose()
    assert {name: body[name] for name in ("reasoning", "chat_template_kwargs") if name in body} == sent
    ids = RunIds(config, replace(SMOLLM2, chat_template=ECHO), load_format(fmt))
    assert ids.thinking("chat") == asked_thinking(load_format(fmt), body)
    written = SMOLLM2.vocabulary.decode(ids.prompt_ids(prompt, "chat") or ()).decode()
    asked = render_text(ECHO, prompt, load_format(fmt), asked_kwargs(load_format(fmt), body))
    assert written.split("|")[::3] == asked.split("|")[::3], "preserve_thinking and reasoning_effort"


def test_another_data_set_keeps_the_default() -> None:
    ids = RunIds(config_of("qwen3", "off", {}), replace(SMOLLM2, chat_template=ECHO), load_format("qwen3"))
    rendered = ids.prompt_ids(Prompt((Message("user", "Hi"),)), "other")
    assert SMOLLM2.vocabulary.decode(rendered or ()).decode() == "|||"


EMPTY = {"type": "object", "properties": {}}
THOUGHT = "a thought of long ago"
TOOLS = json.dumps([{"type": "function", "function": {"name": "f", "description": "d", "parameters": EMPTY}}])
CALL = ToolCall("abcdefghi", "f", "{}")
LOOP = (Message("assistant", None, THOUGHT, (CALL,)), Message("tool", "4", tool_call_id="abcdefghi", name="f"))
QUESTION, NEXT = Message("user", "How many?"), Message("user", "And now?")
PLAIN = (QUESTION, Message("assistant", "Four.", THOUGHT), NEXT)
IN_LOOP = (QUESTION, *LOOP)


def shows_thought(fmt: OutputFormat, messages: tuple[Message, ...], tools: str | None, **kwargs: object) -> bool:
    source = (TEMPLATES / fmt.template).read_text()
    names = {"bos_token": "", "eos_token": "", **fmt.reasoning.on}
    return THOUGHT in render_text(source, Prompt(messages, tools), fmt, {**names, **kwargs})


REASONING = [fmt for fmt in list_formats() if fmt.template and fmt.reasoning.opened_by != "none"]


@pytest.mark.parametrize("fmt", REASONING, ids=lambda fmt: fmt.name)
def test_reasoning_of_earlier_turns_is_treated_as_the_format_says_its_template_treats_it(fmt: OutputFormat) -> None:
    kwarg = fmt.reasoning.history_kwarg
    assert shows_thought(fmt, PLAIN, None) == (fmt.reasoning.history == "kept")
    if kwarg:
        assert any(shows_thought(fmt, PLAIN, None, **{kwarg: value}) for value in (True, False))


IN_LOOP_KEPT = [
    fmt for fmt in REASONING if fmt.reasoning.history not in ("dropped", "kept") and fmt.name != "kimi-k2-thinking"
]


@pytest.mark.parametrize("fmt", IN_LOOP_KEPT, ids=lambda fmt: fmt.name)
def test_reasoning_before_a_tool_result_is_kept_while_the_call_is_worked_on(fmt: OutputFormat) -> None:
    assert shows_thought(fmt, IN_LOOP, TOOLS)
    later = shows_thought(fmt, (*IN_LOOP, Message("assistant", "Four."), NEXT), TOOLS)
    assert later == (fmt.name == "deepseek-v4"), "only DeepSeek V4 keeps it for good where tools are declared"


def test_a_template_that_changes_its_input_is_refused_by_the_sandbox() -> None:
    """llama.cpp's variant of Kimi K2 Thinking's template appends to a list, which transformers refuses too."""
    with pytest.raises(FormatError, match="unsafe"):
        shows_thought(load_format("kimi-k2-thinking"), IN_LOOP, TOOLS)
