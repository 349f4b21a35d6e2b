"""What can go wrong at an endpoint, as functions of a sound exchange."""

import json
import random
import re
import string
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from eagletui.core.chat import ToolCall
from tests.soak.answers import Exchange, with_content

Degradation = Callable[[Exchange, random.Random], Exchange]

_GERMAN: Final = "Das ist eine gute Frage, die sich nicht mit einem Wort beantworten lässt, weil vieles davon abhängt. "
_CHINESE: Final = "这是一个很好的问题，但是需要从很多方面来考虑才能回答。"
_STYLE: Final = "Certainly! Here's a breakdown 🚀:\n\n### Overview\n\n- **Point one:** "
_REFUSAL: Final = "I'm sorry, but I can't help with that request."
_PAGE: Final = "<!DOCTYPE html>\n<html><head><title>502 Bad Gateway</title></head><body><h1>Error</h1></body></html>"


def _on_text(change: Callable[[str, random.Random], str]) -> Degradation:
    def degrade(exchange: Exchange, dice: random.Random) -> Exchange:
        text = exchange.reply.content
        return exchange if not text else with_content(exchange, change(text, dice))

    return degrade


def _on_calls(change: Callable[[ToolCall, random.Random], ToolCall]) -> Degradation:
    def degrade(exchange: Exchange, dice: random.Random) -> Exchange:
        calls = tuple(change(call, dice) for call in exchange.reply.tool_calls)
        return replace(exchange, reply=replace(exchange.reply, tool_calls=calls))

    return degrade


def _arguments(call: ToolCall, **changes: object) -> ToolCall:
    return replace(call, arguments=json.dumps(json.loads(call.arguments) | changes))


def _without(call: ToolCall, name: str) -> ToolCall:
    kept = {key: value for key, value in json.loads(call.arguments).items() if key != name}
    return replace(call, arguments=json.dumps(kept))


def _noise(text: str, dice: random.Random) -> str:
    return "".join(dice.choice(string.ascii_letters + string.digits + " .,;!") for _ in text)


def _shuffled(text: str, dice: random.Random) -> str:
    words = text.split(" ")
    dice.shuffle(words)
    return " ".join(words)


def _mojibake(text: str) -> str:
    accented = re.sub("[aou']", lambda found: {"a": "ä", "o": "ö", "u": "ü", "'": "\u2019"}[found[0]], text)
    return accented.encode().decode("cp1252", "replace")


def _half(text: str) -> str:
    ends = [found.end() for found in re.finditer(r"[.!?。](?=\s|$)|\n", text[: len(text) // 2 + 1])]
    return text[: ends[-1]].strip() if ends else text[: len(text) // 2]


def _cut(exchange: Exchange, dice: random.Random) -> Exchange:
    text = exchange.reply.content
    if not text:
        return exchange
    return replace(exchange, reply=replace(exchange.reply, content=text[: len(text) * 2 // 3], finish_reason="length"))


def _echo(exchange: Exchange, dice: random.Random) -> Exchange:
    asked = exchange.prompt.messages[-1].content or ""
    return with_content(exchange, f"{asked}\n\n{exchange.reply.content or ''}")


def _no_calls(exchange: Exchange, dice: random.Random) -> Exchange:
    if not exchange.reply.tool_calls:
        return exchange
    text = f"I would call {exchange.reply.tool_calls[0].name} for that."
    return replace(exchange, reply=replace(exchange.reply, content=text, tool_calls=(), finish_reason="stop"))


def _no_reasoning(exchange: Exchange, dice: random.Random) -> Exchange:
    return replace(exchange, reply=replace(exchange.reply, reasoning=None, reasoning_kind=None))


def _empty(exchange: Exchange, dice: random.Random) -> Exchange:
    return replace(exchange, reply=replace(exchange.reply, content="", tool_calls=()))


def _json_cut(text: str, dice: random.Random) -> str:
    return text[: max(2, len(text) * 2 // 3)] if text.startswith(("{", "```")) else text


DEGRADATIONS: Final[dict[str, Degradation]] = {
    "gibberish, random characters": _on_text(_noise),
    "gibberish, shuffled words": _on_text(_shuffled),
    "gibberish, shuffled letters": _on_text(lambda text, dice: "".join(dice.sample(text, len(text)))),
    "loop of a phrase": _on_text(lambda text, dice: text[:200] + " and so on and on" * 60),
    "loop of one character": _on_text(lambda text, dice: text[:100] + "!" * 300),
    "a paragraph repeated": _on_text(lambda text, dice: f"{text[:300].replace(chr(10), ' ')}\n\n" * 3),
    "empty": _empty,
    "blanks only": _on_text(lambda text, dice: " \n"),
    "another language, same script": _on_text(lambda text, dice: _GERMAN * max(1, len(text) // len(_GERMAN))),
    "another script": _on_text(lambda text, dice: _CHINESE * max(1, len(text) // 60)),
    "tool calls, invalid JSON": _on_calls(lambda call, dice: replace(call, arguments=call.arguments[:-3])),
    "tool calls, unknown name": _on_calls(lambda call, dice: replace(call, name=f"functions.{call.name}")),
    "tool calls, a field missing": _on_calls(lambda call, dice: _without(call, "count")),
    "tool calls, numbers as strings": _on_calls(lambda call, dice: _arguments(call, count="3")),
    "tool calls, value not allowed": _on_calls(lambda call, dice: _arguments(call, unit="kelvin")),
    "tool calls, none any more": _no_calls,
    "blanks stripped": _on_text(lambda text, dice: "".join(text.split())),
    "line breaks lost": _on_text(lambda text, dice: " ".join(text.split())),
    "indentation lost": _on_text(lambda text, dice: re.sub(r"(?m)^[ \t]+|(?<=[ \t])[ \t]+", "", text)),
    "cut by a lower limit": _cut,
    "cut silently": _on_text(lambda text, dice: text[: len(text) * 3 // 5].rstrip(".!? \n")),
    "half as long": _on_text(lambda text, dice: _half(text)),
    "twice as long": _on_text(lambda text, dice: f"{text}\n\n{_half(text)[::-1].title()} {text}"),
    "another model's style": _on_text(
        lambda text, dice: _STYLE + text.replace("\n", "\n- **") + "\n\nHope this helps! 😊"
    ),
    "JSON and code cut": _on_text(_json_cut),
    "refusals": _on_text(lambda text, dice: _REFUSAL),
    "a web page": _on_text(lambda text, dice: _PAGE),
    "wrong encoding": _on_text(lambda text, dice: _mojibake(text)),
    "replacement characters": _on_text(lambda text, dice: re.sub("[aeiou]", "\ufffd", text)),
    "prompt repeated": _echo,
    "template markers shown": _on_text(lambda text, dice: f"<|im_start|>assistant\n{text}<|im_end|>"),
    "one canned answer": _on_text(
        lambda text, dice: "The service answers as well as it can at this moment. Please wait."
    ),
    "reasoning left out": _no_reasoning,
    "all in capitals": _on_text(lambda text, dice: text.upper()),
    "punctuation lost": _on_text(lambda text, dice: re.sub(r"[.,;:!?()'\"]", "", text)),
}
"""By name, for the campaign's table."""
