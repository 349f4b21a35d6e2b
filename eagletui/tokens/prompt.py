"""Prompt ids: the chat template rendered as transformers does it, special tokens by id.

Templates come with models and are untrusted: they run in jinja2's immutable sandbox, without access to Python objects.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from unicodedata import normalize

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment

from eagletui.core.chat import Message, Prompt
from eagletui.core.errors import FormatError
from eagletui.core.outputs import OutputFormat
from eagletui.tokens.kimi_tools import declare_tools, sort_keys
from eagletui.tokens.load import Tokenizer

TYPESCRIPT = "tools_ts_str"
"""The variable that a template reads the TypeScript declaration from; one without it gets the tools as they are."""
_SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """A prompt as the model reads it."""

    text: str
    """What the chat template wrote."""
    ids: tuple[int, ...]
    """Its token ids; special strings in `text` are the special tokens, also where a message contains one."""


def render_prompt(
    prompt: Prompt,
    tokenizer: Tokenizer,
    fmt: OutputFormat,
    kwargs: Mapping[str, object] | None = None,
    *,
    template: str | None = None,
    now: datetime | None = None,
) -> RenderedPrompt:
    """Render a conversation up to where the model answers, and encode it.

    Args:
        prompt: the request.
        tokenizer: its template and ids.
        fmt: how the family passes tools and earlier calls to its template.
        kwargs: template kwargs of the request, such as `enable_thinking`.
        template: Jinja source to use in place of the tokenizer's.
        now: the time that `strftime_now` shows; the current time by default.

    Raises:
        FormatError: the family has no template, or the template refuses the conversation.
    """
    source = template or tokenizer.chat_template
    if source is None:
        why = (
            f"; {fmt.title} ships none, so prompt ids come only from a server" if fmt.prompt_renderer == "none" else ""
        )
        raise FormatError(
            f"Tokenizer folder {tokenizer.folder}: found no chat template, expected chat_template.jinja{why}"
        )
    text = render_text(source, prompt, fmt, {**_special_strings(tokenizer), **(kwargs or {})}, now=now)
    return RenderedPrompt(text, encode_rendered(text, tokenizer))


def render_text(
    template: str,
    prompt: Prompt,
    fmt: OutputFormat,
    kwargs: Mapping[str, object] | None = None,
    *,
    add_generation_prompt: bool = True,
    now: datetime | None = None,
) -> str:
    """Render a conversation with a chat template.

    Raises:
        FormatError: the template is broken or refuses the conversation.
    """
    variables: dict[str, object] = dict(kwargs or {})
    tools = json.loads(prompt.tools_json) if prompt.tools_json else None
    typescript = fmt.prompt_tools == "typescript" and TYPESCRIPT in template
    if tools is not None and (typescript or fmt.prompt_tools == "sorted"):
        tools = sort_keys(tools)
    if tools is not None and typescript:
        declared = declare_tools(tools)
        if declared is not None:
            variables[TYPESCRIPT] = declared
    moment = now or datetime.now().astimezone()
    try:
        return _compiled(template)(
            messages=[_message(message, fmt) for message in prompt.messages],
            tools=tools,
            documents=None,
            add_generation_prompt=add_generation_prompt,
            strftime_now=moment.strftime,
            **variables,
        )
    except (
        TemplateError,
        TypeError,
        ValueError,
        ArithmeticError,
        LookupError,
        AttributeError,
        RecursionError,
    ) as error:
        raise FormatError(f"The chat template of {fmt.name} refuses this conversation: {error}") from error


def encode_rendered(text: str, tokenizer: Tokenizer) -> tuple[int, ...]:
    """Encode rendered text: special strings by id, the spans between them canonically.

    Unlike an answer, a prompt passes the tokenizer's own normalizer on the server.
    """
    specials = tokenizer.vocabulary.specials
    ids: list[int] = []
    for index, piece in enumerate(_splitter(tuple(specials)).split(text)):
        if index % 2:
            ids.append(specials[piece])
        else:
            ids += tokenizer.encode(normalize(tokenizer.prompt_form, piece) if tokenizer.prompt_form else piece)
    return tuple(ids)


@lru_cache(maxsize=8)
def _splitter(specials: tuple[str, ...]) -> re.Pattern[str]:
    ordered = sorted(specials, key=len, reverse=True)
    return re.compile(f"({'|'.join(re.escape(special) for special in ordered)})" if ordered else "(?!)()")


def _special_strings(tokenizer: Tokenizer) -> dict[str, object]:
    found: dict[str, object] = {}
    for name in _SPECIAL_NAMES:
        value = tokenizer.config.get(name)
        value = value.get("content") if isinstance(value, Mapping) else value
        if isinstance(value, str):
            found[name] = value
    return found


def _message(message: Message, fmt: OutputFormat) -> dict[str, object]:
    """Shape a message for a template. Absent keys stay absent: some templates print None for a null."""
    shaped: dict[str, object] = {"role": message.role, "content": message.content or ""}
    if message.reasoning is not None:
        # Templates read the reasoning under three names.
        shaped |= dict.fromkeys(("reasoning_content", "reasoning", "thinking"), message.reasoning)
    if message.tool_calls:
        shaped["tool_calls"] = [
            {
                **({"id": call.id} if call.id is not None else {}),
                "type": "function",
                "function": {"name": call.name, "arguments": _arguments(call.arguments, fmt)},
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        shaped["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        shaped["name"] = message.name
    return shaped


def _arguments(text: str, fmt: OutputFormat) -> object:
    """Parse arguments as servers do before they render a template; broken JSON stays text."""
    if fmt.prompt_arguments == "text":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


class _GenerationTag(Extension):
    """`{% generation %}`, which marks the model's own text for training; here its body is rendered as it is."""

    tags = {"generation"}  # noqa: RUF012 (jinja2's interface)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller: Macro) -> str:
        return str(caller())


@lru_cache(maxsize=16)
def _compiled(template: str) -> Callable[..., str]:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    return environment.from_string(template).render


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON as transformers' filter does: jinja2's own escapes HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> str:
    raise TemplateError(message)
