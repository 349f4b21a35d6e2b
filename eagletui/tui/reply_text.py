"""The texts of a stored reply beside the raw text rebuilt from it, with what the API took away or changed marked.

Pure: bytes and strings in, pieces of text out. A reply is read leniently here: what cannot be read is shown as it is.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from eagletui.core.text import visible

_REASONING: Final = ("reasoning", "reasoning_content")
_MISSING: Final = "bold $warning reverse"
_ADDED: Final = "bold $proved underline"

Line = tuple[tuple[str, str], ...]
"""Text with its style."""


@dataclass(frozen=True, slots=True)
class ReplyPart:
    """One text of a reply."""

    name: str
    """`reasoning`, `content`, `tool call NAME`, or `body` where nothing else could be read."""
    text: str


@dataclass(frozen=True, slots=True)
class Compared:
    """Both sides, ready to be painted."""

    reply: tuple[tuple[str, str], ...]
    """Pieces; what the raw text does not have is marked."""
    raw: tuple[tuple[str, str], ...]
    """Pieces; what the reply does not have, which the API stripped and the format put back, is marked."""
    stripped: int
    """Characters of the raw text that the reply does not have."""
    lost: int
    """Characters of the reply that the raw text does not have."""


def reply_parts(body: bytes, encoding: str) -> list[ReplyPart]:
    """Read the texts of a reply in the order a model writes them: reasoning, content, tool calls."""
    reasoning, content = "", ""
    calls: dict[int, tuple[str, str]] = {}
    for message in _messages(body, encoding):
        reasoning += next((str(message[name]) for name in _REASONING if message.get(name)), "")
        content += str(message.get("content") or "")
        for position, call in enumerate(_list(message.get("tool_calls"))):
            function = call.get("function")
            if isinstance(function, dict):
                index = call.get("index", position)
                name, arguments = calls.get(index, ("", ""))
                calls[index] = (name + str(function.get("name") or ""), arguments + _text(function.get("arguments")))
    parts = [ReplyPart("reasoning", reasoning)] if reasoning else []
    parts += [ReplyPart("content", content)] if content else []
    for name, arguments in calls.values():
        parts.append(ReplyPart(f"tool call {name}", arguments))
    return parts or [ReplyPart("body", body.decode("utf-8", "replace"))]


def _messages(body: bytes, encoding: str) -> Iterator[dict[str, Any]]:
    """Yield the message of a body, or the deltas of a stream."""
    text = body.decode("utf-8", "replace")
    chunks = [text] if encoding == "json" else [line[5:] for line in text.splitlines() if line.startswith("data:")]
    for chunk in chunks:
        try:
            found = json.loads(chunk)
        except ValueError:
            # The end mark of a stream, a broken last line: what could be read before is shown.
            continue
        for choice in _list(found.get("choices") if isinstance(found, dict) else None):
            for name in ("message", "delta"):
                if isinstance(choice.get(name), dict):
                    yield choice[name]


def _list(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


def compare_texts(parts: Sequence[ReplyPart], raw: str, *, ascii_: bool = False) -> Compared:
    """Find each text of a reply in the raw text, one after the other. What one side lacks stands in brackets."""
    reply: list[tuple[str, str]] = []
    shown: list[tuple[str, str]] = []
    at = stripped = lost = 0
    for part, found, length in _found(parts, raw):
        reply.append((f"[{part.name}]\n", "$quiet"))
        if found < 0:
            lost += len(part.text)
            reply += [(f"[{part.text}]", _MISSING), ("\n", "")] if part.text else []
            continue
        if found > at:
            stripped += found - at
            shown += _bracketed(raw[at:found], ascii_=ascii_)
        at = found + length
        shown.append((raw[found:at], ""))
        reply.append((f"{part.text}\n", ""))
    if at < len(raw):
        stripped += len(raw) - at
        shown += _bracketed(raw[at:], ascii_=ascii_)
    return Compared(tuple(reply), tuple(shown), stripped, lost)


def place_name(parts: Sequence[ReplyPart], raw: str, offset_bytes: int) -> str:
    """Name the text of the reply that a byte of the raw text lies in; '' where the reply does not have it.

    Args:
        parts: texts of the reply.
        raw: the text that the model itself wrote.
        offset_bytes: counted in the UTF-8 bytes of `raw`.
    """
    at = len(raw.encode("utf-8", "surrogatepass")[:offset_bytes].decode("utf-8", "ignore"))
    return next(
        (part.name for part, found, length in _found(parts, raw) if 0 <= found <= at < found + length),
        "",
    )


def _found(parts: Sequence[ReplyPart], raw: str) -> Iterator[tuple[ReplyPart, int, int]]:
    """Yield each text with its place in the raw text and its length there; the place is -1 where it is not found."""
    at = 0
    for part in parts:
        found, wanted = raw.find(part.text, at) if part.text else -1, part.text
        if found < 0 and part.text.strip():
            # Servers take blanks off the ends; what is between must be there word for word.
            wanted = part.text.strip()
            found = raw.find(wanted, at)
        yield part, found, len(wanted)
        at = at if found < 0 else found + len(wanted)


def _bracketed(text: str, *, ascii_: bool) -> list[tuple[str, str]]:
    """Mark what the reply lacks; its blanks are shown, since they are often all that was lost."""
    return [(f"[{visible(text, ascii_=ascii_)}]", _ADDED), ("\n" if "\n" in text else "", "")]


def texts_sentence(compared: Compared) -> str:
    """Say what the marks mean and how much they mark."""
    if not compared.stripped and not compared.lost:
        return "The reply has the whole raw text: the API took nothing away."
    said = []
    if compared.stripped:
        said.append(
            f"{compared.stripped:,} characters in [ ] at the right are not in the reply: the API stripped them and"
        )
        said.append("the format put them back.")
    if compared.lost:
        said.append(f"{compared.lost:,} characters in [ ] at the left are not in the raw text word for word.")
    return " ".join(said)
