"""What one answer looks like, as numbers between 0 and 1, for telling a sound endpoint from one that went wrong.

Nothing here is a verdict: one answer may loop, refuse or be empty for good reasons. `core/shifts.py` compares many.
"""

import itertools
import json
import math
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from eagletui.core.chat import Prompt
from eagletui.core.reply import Reply
from eagletui.core.scripts import main_script, script_counts
from eagletui.core.tool_schema import NO_CALLS, call_faults

Rule = Literal["fault", "share", "measure", "context"]


@dataclass(frozen=True, slots=True)
class Trait:
    """One thing that is looked at."""

    name: str
    kind: str
    """Of the finding that a shift opens."""
    rule: Rule
    """`fault`: 0 or 1, more is bad; `share`: 0 or 1, any change is; `measure`: 0 to 1; `context`: of the prompt."""
    least: float
    """Smallest change that matters."""
    words: str
    """What answers do that have it: `are empty`, `hold code`."""
    ceiling: float | None = None
    """Share of a fault that no usual answers reach, whatever was before."""
    unit: Literal["percent", "characters"] = "percent"
    """How a mean is shown."""
    among: str = "answers"
    """Those it says something about."""


_CALLING: Final = "answers with calls"

TRAITS: Final = (
    Trait("empty", "empty", "fault", 0.05, "are empty", 0.3),
    Trait("loop", "loop", "fault", 0.1, "end in a loop", 0.6),
    Trait("repeats", "loop", "fault", 0.1, "say whole lines or paragraphs again"),
    Trait("broken", "encoding", "fault", 0.08, "hold broken characters", 0.5),
    Trait("page", "markup", "fault", 0.05, "are a web page that nobody asked for", 0.2),
    Trait("echo", "echo", "fault", 0.08, "repeat the prompt", 0.5),
    Trait("refusal", "refusal", "fault", 0.1, "refuse", 0.7),
    Trait("markers", "markers", "fault", 0.08, "show markers of a chat template", 0.5),
    Trait("unclosed", "unclosed", "fault", 0.1, "end by themselves inside JSON or a code block"),
    Trait("cut", "truncated", "fault", 0.2, "are cut by the token limit"),
    Trait("same", "same", "fault", 0.1, "are word for word the answer to several other prompts", 0.7),
    Trait("canary", "canary", "fault", 0.1, "miss what they must hold", 0.2, among="answers to canary prompts"),
    Trait(
        "bad_json",
        "tool_json",
        "fault",
        0.08,
        "call a tool with arguments that are no JSON object",
        0.3,
        among=_CALLING,
    ),
    Trait("bad_name", "tool_name", "fault", 0.08, "name a tool that the request does not declare", 0.3, among=_CALLING),
    Trait(
        "off_schema",
        "tool_schema",
        "fault",
        0.1,
        "call a tool with arguments that its schema does not allow",
        0.5,
        among=_CALLING,
    ),
    Trait("calls", "style", "share", 0.35, "call a tool where tools are offered"),
    Trait("reasons", "style", "share", 0.2, "show reasoning"),
    Trait("code", "style", "share", 0.3, "hold a code block"),
    Trait("emoji", "style", "share", 0.25, "hold an emoji"),
    Trait("ends", "unclosed", "share", 0.25, "end with a full stop or a closing mark"),
    Trait("greets", "style", "share", 0.3, "open with a courtesy"),
    Trait("length", "length", "measure", 0.75 / 16, "are as long as", unit="characters"),
    Trait("thinking", "length", "measure", 0.75 / 16, "reason for as long as", unit="characters"),
    Trait("blanks", "spaces", "measure", 0.06, "are blanks"),
    Trait("lines", "spaces", "measure", 0.15, "are line breaks"),
    Trait("indents", "spaces", "measure", 0.12, "are indented lines"),
    Trait("foreign", "script", "measure", 0.2, "are letters of another writing system than the prompt's"),
    Trait("native", "script", "measure", 0.3, "are letters of the prompt's writing system"),
    Trait("english", "language", "measure", 0.1, "are common English words"),
    Trait("letters", "gibberish", "measure", 0.1, "are letters and digits"),
    Trait("words", "gibberish", "measure", 0.08, "are long words"),
    Trait("vowels", "gibberish", "measure", 0.08, "are vowels among letters"),
    Trait("order", "gibberish", "measure", 0.03, "are pairs of words that English does not put together"),
    Trait("dense", "gibberish", "measure", 0.1, "do not compress"),
    Trait("capitals", "style", "measure", 0.12, "are capitals among letters"),
    Trait("marks", "style", "measure", 0.05, "are punctuation"),
    Trait("bullets", "style", "measure", 0.2, "are lists and headings among lines"),
    Trait("asked_length", "", "context", 0.0, ""),
    Trait("asked_english", "", "context", 0.0, ""),
    Trait("asked_blanks", "", "context", 0.0, ""),
    Trait("asked_marks", "", "context", 0.0, ""),
    Trait("asked_turns", "", "context", 0.0, ""),
)
"""Everything that is looked at, in the order of `Traits.values`."""

INDEX: Final = {trait.name: index for index, trait in enumerate(TRAITS)}
SAME: Final = INDEX["same"]

NO_CANARIES: Final[Mapping[str, re.Pattern[str]]] = MappingProxyType({})

LOOKED_AT: Final = 1_500
"""Characters of a text's beginning, and of its end, that are looked at."""
_ASKED: Final = 500
_LONG: Final = 16.0
"""log2 of the longest text that is told apart."""

_NATIVE: Final = {"kana": ("kana", "han"), "hangul": ("hangul", "han")}
_WORD: Final = re.compile(r"[A-Za-z']+")
_ENGLISH: Final = frozenset(
    "the of and to a in is it you that he was for on are with as i his they be at one have this from or had by not but "
    "what all were we when your can said there use an each which she do how their if will up other about out many then "
    "them these so some her would make like him into has more no could my than been its who now did get may".split()
)
_BEFORE_NOUNS: Final = frozenset("the a an my your his her their its our".split())
_NEVER_AFTER: Final = frozenset("the a an of and to is are was were in on at by with or for be that it he they".split())
_VOWELS: Final = b"aeiouyAEIOUY"
_CAPITALS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LOWER: Final = b"abcdefghijklmnopqrstuvwxyz"
_DIGITS: Final = b"0123456789"
_MARKS: Final = b"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
_BLANKS: Final = b" \t\n\r\x0b\x0c"
_BULLET: Final = re.compile(r"^[ \t]*(?:[-*+\u2022] |#{1,6} |\d+[.)] |\*\*)", re.MULTILINE)
_INDENT: Final = re.compile(r"^(?:  |\t)", re.MULTILINE)
_EMOJI: Final = re.compile("[\u2600-\u27bf\U0001f300-\U0001faff]")
_BROKEN: Final = re.compile(
    "[\ufffd\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
    "|\u00c3[\u0080-\u00bf\u2018-\u203a\u0152-\u0178\u0192\u02c6\u02dc]"
    "|\u00e2\u20ac|\u00f0\u0178|\u00ef\u00bb\u00bf|\u00c2[\u00a0-\u00bf]"
)
"""Replacement and control characters, and UTF-8 that was read as Latin-1 or Windows-1252."""
_PAGE: Final = re.compile(r"\s*(?:<!doctype html|<html|<head>|<body|<\?xml)", re.IGNORECASE)
_ASKS_PAGE: Final = re.compile(r"html|xml|web|page|svg|rss", re.IGNORECASE)
_MARKERS: Final = re.compile(
    r"<\|[a-z_0-9]{2,40}\|>|<\uff5c[^>]{2,60}\uff5c>|\[/?INST\]|</?(?:think|tool_call|function_call|s)>|<(?:start|end)_of_turn>"
)
_REFUSAL: Final = re.compile(
    r"(?:i'?m|i am) (?:very |really |so )?(?:sorry|afraid)[,.]? (?:but )?(?:i|that)"
    r"|(?:i|we) (?:can(?:'t|not)|am not able to|am unable to|won't|must decline)[^.]{0,60}"
    r"(?:help|assist|comply|provide|fulfil|answer|discuss|do that|with that|request)"
    r"|as an ai(?: language)? model|(?:无法|不能)(?:提供|协助|回答|帮助)|抱歉|申し訳|lo siento|je suis désolé",
    re.IGNORECASE,
)
_COURTESY: Final = re.compile(
    r"\s*(?:sure|certainly|of course|absolutely|great question|hello|hi there|thank|here(?:'s| is| are)|okay|i'd be)",
    re.IGNORECASE,
)
_CLEAN_END: Final = re.compile("[.!?`)\\]}>\"'|*_:;\u3002\uff01\uff1f\u2019\u201d\u300d\\d\U0001f300-\U0001faff]\\s*$")


class Traits(NamedTuple):
    """One answer."""

    stratum: str
    """Kind of prompt: only answers to prompts of one kind are compared."""
    values: tuple[float | None, ...]
    """By `TRAITS`; None where a trait says nothing here."""
    digest: int | None
    """Of the text; None for answers without one worth telling apart."""
    asked: int = 0
    """Digest of the prompt."""


def traits_of(
    reply: Reply, prompt: Prompt, dataset: str = "", canaries: Mapping[str, re.Pattern[str]] = NO_CANARIES
) -> Traits:
    """Look at one answer.

    Args:
        reply: as parsed.
        prompt: what was asked.
        dataset: of the prompt.
        canaries: what answers must hold, by the last turn of the user.
    """
    asked = next((m.content for m in reversed(prompt.messages) if m.role == "user" and m.content), "")
    script = main_script(asked)
    found = _of_text(reply, asked, script) | _of_calls(reply, prompt) | _of_prompt(asked, len(prompt.messages))
    text = reply.content or ""
    if canaries and (must := canaries.get(asked.strip())) is not None and reply.finish_reason != "length":
        found["canary"] = float(must.search(text[:LOOKED_AT]) is None and must.search(text[-LOOKED_AT:]) is None)
    has_code = "```" in asked or "def " in asked or "{" in asked
    stratum = f"{dataset}|{script}|{'t' if prompt.tools_json else ''}{'c' if has_code else ''}"
    digest = zlib.crc32(text.encode("utf-8", "replace")) if len(text) >= 40 else None
    values = tuple(map(found.get, INDEX))
    return Traits(stratum, values, digest, zlib.crc32(asked.encode("utf-8", "replace")))


def size(length: int) -> float:
    """Return a length as a number from 0 to 1: one sixteenth more is twice as long."""
    return min(1.0, math.log2(1 + length) / _LONG)


def length_of(share: float) -> float:
    """Undo `size`."""
    return float(2 ** (share * _LONG)) - 1


def _of_text(reply: Reply, asked: str, script: str) -> dict[str, float | None]:
    content, reasoning = reply.content or "", reply.reasoning or ""
    is_cut = reply.finish_reason == "length"
    said = bool(content.strip() or reply.tool_calls or reply.refusal)
    found: dict[str, float | None] = {
        "empty": None if is_cut else float(not said),
        "cut": float(is_cut),
        "reasons": float(bool(reasoning)),
        "thinking": size(len(reasoning)) if reasoning else None,
    }
    text = content if content.strip() else reasoning
    if not text.strip():
        return found
    head, tail = text[:LOOKED_AT], text[-LOOKED_AT:]
    found |= _faults(head, tail, asked, reply)
    found |= _shape(text, head, script)
    if content.strip():
        found["length"] = size(len(content))
    if content.strip() and not is_cut and not reply.tool_calls:
        found["ends"] = float(_CLEAN_END.search(tail[-8:]) is not None)
        found["unclosed"] = float(_is_open(content))
    return found


def _faults(head: str, tail: str, asked: str, reply: Reply) -> dict[str, float | None]:
    broken = len(_BROKEN.findall(head)) if not head.isascii() or not head.isprintable() else 0
    return {
        "loop": float(_loops(tail)),
        "repeats": float(_repeats(head)),
        "broken": float(broken >= 2 and broken * 100 >= min(len(head), 2_000)),
        "page": float(_PAGE.match(head) is not None and _ASKS_PAGE.search(asked) is None),
        "echo": float(_echoes(head, asked)) if len(asked) >= 24 else None,
        "refusal": float(bool(reply.refusal) or _REFUSAL.search(head, 0, 200) is not None),
        "markers": float(_has_markers(head) and not _has_markers(asked)),
        "same": 0.0,
    }


def _shape(text: str, head: str, script: str) -> dict[str, float | None]:
    data = head.encode("utf-8", "replace")
    length = len(head)
    lines = head.count("\n")
    counts = script_counts(head)
    counted = sum(counts.values())
    own = _NATIVE.get(script, (script,))
    words = _WORD.findall(head) if counts.get("latin", 0) * 2 > counted else []
    foreign = sum(number for name, number in counts.items() if name not in own and name != "latin")
    capitals, vowels = _count(data, _CAPITALS), _count(data, _VOWELS)
    ascii_letters = capitals + _count(data, _LOWER)
    found: dict[str, float | None] = {
        "code": float("```" in text),
        "emoji": float(not head.isascii() and _EMOJI.search(head) is not None),
        "greets": float(_COURTESY.match(head) is not None),
        "bullets": min(1.0, len(_BULLET.findall(head)) / (lines + 1)),
        **_of_words(words),
    }
    if counted >= 10:
        found["foreign"] = foreign / counted
        found["native"] = sum(counts.get(name, 0) for name in own) / counted if script else None
    if ascii_letters >= 20:
        found["vowels"] = vowels / ascii_letters
        found["capitals"] = capitals / ascii_letters
    if length >= 40:
        found["blanks"] = _count(data, _BLANKS) / length
        found["lines"] = min(1.0, 20 * lines / length)
        found["indents"] = len(_INDENT.findall(head)) / (lines + 1) if lines >= 3 else None
        found["letters"] = min(1.0, (counted + _count(data, _DIGITS)) / length)
        found["marks"] = _count(data, _MARKS) / length
        found["dense"] = min(1.0, len(zlib.compress(data, 1)) / (1.2 * length))
    return found


def _count(data: bytes, of: bytes) -> int:
    return len(data) - len(data.translate(None, of))


def _of_words(words: list[str]) -> dict[str, float | None]:
    if len(words) < 8:
        return {}
    lowered = [word.lower() for word in words]
    common = sum(word in _ENGLISH for word in lowered)
    pairs = itertools.pairwise(lowered)
    odd = sum(one in _BEFORE_NOUNS and other in _NEVER_AFTER for one, other in pairs)
    return {
        "english": common / len(words),
        "words": min(1.0, sum(map(len, words)) / len(words) / 20),
        "order": min(1.0, 3 * odd / len(words)),
    }


def _of_calls(reply: Reply, prompt: Prompt) -> dict[str, float | None]:
    faults = call_faults(reply.tool_calls, prompt.tools_json) if reply.finish_reason != "length" else NO_CALLS
    found: dict[str, float | None] = {
        "bad_json": _flag(faults.invalid_json),
        "bad_name": _flag(faults.unknown_name),
        "off_schema": _flag(faults.off_schema),
    }
    if prompt.tools_json:
        found["calls"] = float(bool(reply.tool_calls))
    return found


def _of_prompt(asked: str, turns: int) -> dict[str, float | None]:
    head = asked[:_ASKED]
    data = head.encode("utf-8", "replace")
    words = _WORD.findall(head)
    return {
        "asked_length": size(len(asked)),
        "asked_english": sum(word.lower() in _ENGLISH for word in words) / len(words) if words else None,
        "asked_blanks": _count(data, _BLANKS) / len(head) if head else None,
        "asked_marks": _count(data, _MARKS) / len(head) if head else None,
        "asked_turns": size(turns),
    }


def _flag(value: bool | None) -> float | None:
    return None if value is None else float(value)


def _loops(tail: str) -> bool:
    """Tell whether a text ends in one piece of 1 to 400 characters, four times or more and over 120 characters."""
    text = tail.rstrip()
    if len(text) < 120:
        return False
    end = text[-24:]
    at = text.rfind(end, 0, len(text) - 1)
    if at < 0:
        return False
    period = len(text) - 24 - at
    if period > 400:
        return False
    wanted = max(120, 4 * period)
    return len(text) >= wanted and text[-wanted + period :] == text[-wanted:-period]


def _repeats(head: str) -> bool:
    """Tell whether more than a third of a text stands in lines that stand there already."""
    seen: set[str] = set()
    again = total = 0
    for line in head.split("\n"):
        piece = line.strip()
        if len(piece) < 40:
            continue
        total += len(piece)
        if piece in seen:
            again += len(piece)
        seen.add(piece)
    return again * 3 > total and again >= 80


def _has_markers(text: str) -> bool:
    return ("<" in text or "[" in text) and _MARKERS.search(text) is not None


def _echoes(head: str, asked: str) -> bool:
    return asked.strip()[:80] in head[:400]


def _is_open(content: str) -> bool:
    """Tell whether a text that ended by itself ends inside a code block or inside JSON."""
    if content.count("```") % 2:
        return True
    stripped = content.strip()
    if stripped[:1] not in "{[" or len(stripped) < 2 or stripped[1] not in '"{[ \n\r\t':
        return False
    return _is_cut_json(stripped)


def _is_cut_json(text: str) -> bool:
    """Tell whether JSON breaks off at its end; other faults of it are the model's own."""
    try:
        json.JSONDecoder().raw_decode(text)
    except json.JSONDecodeError as error:
        return error.pos >= len(text) - 2 or error.msg.startswith("Unterminated string")
    except RecursionError:
        return False
    return False
