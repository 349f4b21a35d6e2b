"""From a reply back to the raw text: undo what the server did, put the format's literals in between.

Some replies have one possible raw text, others several. `candidates` lists them, the most likely first; the billed
count decides among them in `core/choice.py`. The weights are guesses of how usual each way is; they only order
readings and say when a text is too uncertain to be called usable.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from heapq import nlargest

from eagletui.core.chat import Prompt
from eagletui.core.outputs import (
    Assembly,
    Block,
    Field,
    Losses,
    LossProfile,
    OutputFormat,
    Part,
    Special,
    Text,
    TextUsability,
    Written,
    split_specials,
)
from eagletui.core.reply import UNREADABLE, Reply
from eagletui.core.toolsection import last_literal, sections

LIMIT = 64
"""Combinations of head, body and tail that are written per reply."""
ENDS_REASONING: Mapping[str, float] = {"": 0.2, "\n": 0.2, "\n\n": 0.08, "  ": 0.02}
"""Whitespace that a server may have stripped from the end of the reasoning; the format's own glue has weight 1."""
BLANK_CONTENT: Mapping[str, float] = {"": 0.1, "\n": 0.05, "\n\n": 0.05, "  ": 0.01}
"""Whitespace that may have stood before a call without content."""
BEFORE_CALL: Mapping[str, float] = {"": 0.3, "\n": 0.3, "\n\n": 0.4, "  ": 0.02}
"""Whitespace that a server may have stripped between content and a call."""
NO_CLOSE = 0.05
"""A call, or the end, inside the reasoning, against one after the close tag."""
NO_BLOCK = 0.3
"""An answer without any block that the parser took for reasoning."""
CUT_AT_CLOSE = 0.1
"""A cut right after the close tag, or in the header that follows it, against a cut inside the reasoning."""
CUT_CALL = 20.0
"""`tool_calls` with exactly `max_tokens` billed: nearly always a cut that the server does not name."""
STRUCTURE = 0.1
"""Structural strings inside a field that were tokens after all, against ordinary text."""
CLOSE_TWICE = 0.05
"""A second close tag that the parser swallowed."""
MESSAGES = 8
"""Places in a reasoning where two messages may have been joined that are tried."""
RARER = 0.1
"""Each further way to write an absent reasoning, another header, no glue where the format has some."""
WHOLE_CALL = 2.0
"""An answer whose content ends with a call: rather the end token of a call than that of an answer."""
HEADER_LEFT = 0.5
"""A message header that the parser left in the content, against one that the model wrote as text."""
GLUE_KEPT = 0.5
"""Content that still ends with a newline after the server took the glue away: it may have taken nothing."""
LOST_CALL = 0.1
"""No content from a server that drops calls it does not know: a call may be lost."""
SWALLOWED = 0.02
"""What a server that rewrites calls or strips text may have swallowed that no reading writes down."""
SPECIALS_SWALLOWED = 0.01
"""The same for a server that only removes structural strings from text."""

HEADER_NOTE = "a header left in the content"


@dataclass(frozen=True, slots=True)
class _Head:
    """One way to write the reasoning block."""

    parts: tuple[Part, ...] = ()
    weight: float = 1.0
    note: str = ""
    block: Block = "none"
    close_at: int | None = None
    """Where in `parts` the close tag's token stands."""


def assemble(
    reply: Reply,
    fmt: OutputFormat,
    profile: LossProfile,
    prompt: Prompt | None = None,
    *,
    max_tokens: int | None = None,
    thinking: bool | None = None,
) -> Assembly:
    """Return the most likely raw text of a reply; the arguments are those of `candidates`."""
    return candidates(reply, fmt, profile, prompt, max_tokens=max_tokens, thinking=thinking)[0]


def candidates(
    reply: Reply,
    fmt: OutputFormat,
    profile: LossProfile,
    prompt: Prompt | None = None,
    *,
    max_tokens: int | None = None,
    thinking: bool | None = None,
) -> tuple[Assembly, ...]:
    """Return the raw texts that give this reply, the most likely first; at least one.

    Args:
        reply: the answer as received.
        fmt: how the family writes.
        profile: what the server strips.
        prompt: the request; its tools give argument types.
        max_tokens: the request's limit, to recognise a cut that the server does not name.
        thinking: whether the prompt asked for thinking; None means the format's default.

    Returns:
        Readings with `prior` relative to each other.
    """
    writer = _Writer(reply, fmt, profile.losses(fmt.name), prompt, max_tokens, thinking)
    readings = sorted(writer.readings(), key=lambda reading: -reading.prior)
    first = readings[0]
    verbatim = writer.losses.special_text == "kept" and all(reading.raw == first.raw for reading in readings[1:])
    usability, reasons = writer.usability()
    misfit, refused, unlisted = writer.misfit(), writer.refused(), writer.unlisted(verbatim) * first.prior
    return tuple(
        replace(
            reading,
            usability="text_suspect" if reading.open_ended and usability == "usable" else usability,
            reasons=(*reading.reasons, *reasons),
            refused=refused,
            misfit=misfit,
            verbatim=verbatim,
            unlisted=unlisted,
        )
        for reading in readings
    )


class _Writer:
    """Writes the readings of one reply, stretch by stretch."""

    def __init__(
        self,
        reply: Reply,
        fmt: OutputFormat,
        losses: Losses,
        prompt: Prompt | None,
        max_tokens: int | None,
        thinking: bool | None,
    ) -> None:
        self.reply, self.fmt, self.losses, self.prompt = reply, fmt, losses, prompt
        self.calls = reply.tool_calls
        self.reasoning, self.content = _split_content(reply, fmt, losses)
        self.cut = fmt.end_token(reply.finish_reason) is None
        billed = reply.usage.completion_tokens if reply.usage else None
        at_limit = max_tokens is not None and billed == max_tokens
        self.silent_cut = bool(self.calls) and not self.cut and at_limit and losses.cut_calls == "kept"
        asked = fmt.reasoning.default if thinking is None else thinking
        self.thinks = fmt.reasoning.opened_by != "none" and (bool(self.reasoning) or asked)

    def readings(self) -> Iterator[Assembly]:
        """Yield the readings of the most likely combinations."""
        tails = sections(self.calls, self.fmt, self.losses, self.prompt) if self.calls else [Written()]
        combined = [(head, body, tail) for head in self._heads() for body in self._bodies(head) for tail in tails]
        if len(combined) > LIMIT:
            combined = nlargest(LIMIT, combined, key=lambda way: way[0].weight * way[1].weight * way[2].weight)
        for head, body, tail in combined:
            yield from self._finish(head, body, tail)
        if self.losses.special_text == "kept" and self.reasoning and not self.calls:
            yield from self._closed_later()

    def _closed_later(self) -> Iterator[Assembly]:
        """The close tag at which the server cut was text, and the next one, left in the content, was the token."""
        rule = self.fmt.reasoning
        opener = self._literal(rule.open) if rule.opened_by == "model" else ()
        before, found, after = self.content.partition(rule.close) if rule.close else ("", "", "")
        if found:
            inside = (*opener, *_text(self.reasoning + rule.close + before, "reasoning"))
            head = self._closed(inside, STRUCTURE, "the first close tag as text")
            yield from self._finish(head, Written(_text(after, "content")), Written())

    # The head: the reasoning block.

    def _heads(self) -> Iterator[_Head]:
        rule = self.fmt.reasoning
        if not self.thinks:
            yield _Head()
            return
        opener = self._literal(rule.open) if rule.opened_by == "model" else ()
        if not self.reasoning:
            yield from self._empty_heads(opener)
            return
        nothing_follows = not self.content and not self.calls
        for text in self._reasoning_texts(ends_here=self.cut and nothing_follows):
            inside = (*opener, *text.parts)
            opened = _Head(inside, text.weight, text.note, "open")
            closed = self._closed(inside, text.weight, text.note)
            if self.cut and nothing_follows:
                yield opened
                yield replace(
                    closed, weight=text.weight * CUT_AT_CLOSE, note=_join(text.note, "cut after the close tag")
                )
                continue
            yield closed
            yield from self._split_reasoning(opener)
            if self.content or not self.losses.implicit_close:
                continue
            yield replace(opened, weight=text.weight * NO_CLOSE, note=_join(text.note, "no close tag"))
            if self.calls:
                continue
            if self._holds_specials(self.reasoning):
                tokens = (*opener, *(part for piece in text.parts for part in self._literal(piece.text, "reasoning")))
                yield _Head(tokens, text.weight * STRUCTURE, "a call inside the reasoning", "open")
            if opener:
                started = bool(rule.after_open) and self.reasoning.startswith(rule.after_open)
                yield _Head(text.parts, text.weight * (NO_CLOSE if started else NO_BLOCK), "no reasoning block")

    def _split_reasoning(self, opener: tuple[Part, ...]) -> Iterator[_Head]:
        """Two reasoning messages that the server joined."""
        joint = self.losses.messages_joined_by
        pieces = self.reasoning.split(joint) if joint else []
        places = range(1, min(len(pieces), MESSAGES))
        for at in places:
            before, after = (_text(joint.join(part), "reasoning") for part in (pieces[:at], pieces[at:]))
            inside = (*opener, *before, *self._literal(self.fmt.reasoning.close), *opener, *after)
            yield self._closed(inside, RARER / len(places), "two reasoning messages")

    def _closed(self, inside: tuple[Part, ...], weight: float, note: str) -> _Head:
        close = self._literal(self.fmt.reasoning.close)
        at = next((len(inside) + index for index, part in enumerate(close) if isinstance(part, Special)), None)
        return _Head((*inside, *close), weight, note, "closed", at)

    def _empty_heads(self, opener: tuple[Part, ...]) -> Iterator[_Head]:
        rule = self.fmt.reasoning
        glue = rule.after_open + rule.before_close
        # A server that keeps the glue would have returned it as reasoning.
        ways = [way for way in rule.absent if way != "glue" or not glue or self.losses.reasoning == "strip"]
        for index, way in enumerate(ways or ["close"]):
            weight = RARER**index
            if way == "nothing":
                yield _Head((), weight, "no reasoning block" if index else "")
            else:
                inside = (*opener, *_text(glue if way == "glue" else "", "glue"))
                yield self._closed(inside, weight, "empty reasoning block" if index else "")

    def _reasoning_texts(self, ends_here: bool) -> list[Written]:
        rule, loss, text = self.fmt.reasoning, self.losses.reasoning, self.reasoning
        if loss == "verbatim":
            return [Written(_text(text, "reasoning"))]
        start = rule.after_open if loss == "strip" else ""
        return [
            Written(_text(start + text + tail, "reasoning"), weight, _named(note, "ends the reasoning"))
            for tail, weight, note in _stripped("" if ends_here else rule.before_close, ENDS_REASONING)
        ]

    # The body: the content, up to the first call.

    def _bodies(self, head: _Head) -> Iterator[Written]:
        rule, frame = self.fmt.reasoning, self.fmt.content
        glue = rule.after_close if head.block == "closed" else ""
        if self.calls:
            yield from self._bodies_before_calls(glue)
            return
        ends_in_reasoning = bool(self.reasoning) and head.block != "closed"
        if not self.content and (self.cut or ends_in_reasoning):
            yield Written()
            return
        text = self.content
        if text and self.losses.content == "strip":
            text = glue + text
        opener = self._literal(frame.open)
        yield Written((*opener, *_text(text, "content")))
        left = self._header_left(text) if frame.open and head.block == "closed" else None
        if left is not None:
            yield Written(left, HEADER_LEFT, HEADER_NOTE)
        for other in frame.other_opens:
            yield Written((*self._literal(other), *_text(text, "content")), RARER, "another header")
        joint = self.losses.messages_joined_by
        if joint and joint in text and frame.open_with_tools:
            before, _, after = text.partition(joint)
            preamble = (*self._literal(frame.open_with_tools), *_text(before, "content"))
            closer = self._literal(frame.close_with_tools)
            yield Written((*preamble, *closer, *opener, *_text(after, "content")), RARER, "a preamble of its own")
        if self._holds_specials(text):
            tokens = (*opener, *self._literal(text, "content"))
            yield Written(tokens, STRUCTURE, "structural strings as tokens")
        if self.losses.special_text == "removed" and head.block == "closed" and text.startswith(glue) and text:
            twice = (*_text(glue, "glue"), *self._literal(rule.close), *_text(text.removeprefix(glue), "content"))
            yield Written(twice, CLOSE_TWICE, "the close tag twice")

    def _header_left(self, text: str) -> tuple[Part, ...] | None:
        """Write content that starts with the next message's header, which overlaps the close of the reasoning."""
        close = self.fmt.reasoning.close
        overlap = next((size for size in range(len(close), 0, -1) if text.startswith(close[-size:])), 0)
        rest = text[overlap:]
        return self._literal(rest, "content") if overlap and self._holds_specials(text[:overlap]) else None

    def _bodies_before_calls(self, glue: str) -> Iterator[Written]:
        tools, loss, frame, text = self.fmt.tools, self.losses, self.fmt.content, self.content
        if not text.strip():
            if loss.blank_content_with_tools == "kept" and loss.content_with_tools == "verbatim":
                yield Written(_text(text, "glue"))
                return
            for white, weight, note in _stripped(glue + tools.before, BLANK_CONTENT):
                yield Written(_text(white, "glue"), weight, _named(note, "stands before the call"))
            return
        start = glue if loss.content_with_tools == "strip" else ""
        match loss.content_with_tools:
            case "rstrip" | "strip":
                ends = _stripped(tools.before_with_content, BEFORE_CALL)
            case "without-glue":
                untouched = GLUE_KEPT if text.endswith("\n") else RARER
                ends = [(tools.before_with_content, 1.0, ""), ("", untouched, "nothing")]
            case "after":
                yield Written()
                return
            case _:
                ends = [("", 1.0, "")]
        opener, closer = self._literal(frame.open_with_tools), self._literal(frame.close_with_tools)
        for white, weight, note in ends:
            parts = (*opener, *_text(start + text + white, "content"), *closer)
            yield Written(parts, weight, _named(note, "stands before the call"))

    # The end.

    def _finish(self, head: _Head, body: Written, tail: Written) -> Iterator[Assembly]:
        parts = (*head.parts, *body.parts, *tail.parts)
        prior = head.weight * body.weight * tail.weight
        note = _join(head.note, body.note, tail.note)
        known = Assembly(parts, prior, block=head.block, close_at=head.close_at, note=note)
        end = self.fmt.end_token(self.reply.finish_reason)
        if end is None:
            yield known
            header = self._literal(self.fmt.content.open)
            if head.block == "closed" and header and not self.content:
                where = "cut in the header of the content"
                yield replace(known, parts=(*parts, *header), open_ended=True, note=where, reasons=(where,))
            return
        if body.note == HEADER_NOTE and parts[-1:] in (
            (Special(self.fmt.end.stop),),
            (Special(self.fmt.end.tool_calls),),
        ):
            yield replace(known, end=parts[-1].text)
            return
        after = _text(self.fmt.tools.after, "glue") if self.calls else ()
        if self.calls and self.losses.content_with_tools == "after" and self.content:
            after = _text(f"\n{self.content}", "content")
        whole = (*parts, *after, Special(end))
        yield replace(known, parts=whole, end=end)
        if self._ends_with_call():
            end = self.fmt.end.tool_calls or end
            yield replace(known, parts=(*parts, *after, Special(end)), end=end, prior=prior * WHOLE_CALL)
        if self.silent_cut:
            reason = "cut by max_tokens inside a call, though the server says tool_calls"
            cut = replace(known, prior=prior * CUT_CALL, open_ended=True, reasons=(reason,))
            yield replace(cut, note=_join(note, "cut"))

    def _ends_with_call(self) -> bool:
        """Say whether the content ends with the markup of a call, in a format that ends such an answer otherwise."""
        last = last_literal(self.fmt.tools, self.fmt.specials)
        differs = self.fmt.end.tool_calls not in ("", self.fmt.end.stop)
        return differs and not self.calls and last is not None and self.content.rstrip().endswith(last.text)

    # What the reply as a whole allows.

    def misfit(self) -> str | None:
        """Name what the reply holds and the format has no place for."""
        if self.reply.reasoning and self.fmt.reasoning.opened_by == "none":
            return f"the reply holds reasoning, and {self.fmt.name} has no reasoning part"
        if self.calls and self.fmt.tools.codec == "none":
            return f"the reply holds tool calls, and {self.fmt.name} has no tool syntax"
        return None

    def refused(self) -> str | None:
        """Say why this answer cannot be rebuilt from text."""
        return (self.fmt.tools.refused or None) if self.calls and not self.losses.all_spellings_known else None

    def usability(self) -> tuple[TextUsability, tuple[str, ...]]:
        """Say what the reply as a whole allows before any count."""
        reply = self.reply
        if reply.reasoning_kind in UNREADABLE:
            return "unusable", (f"the reasoning came as {reply.reasoning_kind}, not as text",)
        if reply.finish_reason in ("error", "content_filter"):
            return "unusable", (f"the answer ended with {reply.finish_reason}",)
        if not reply.content and not reply.reasoning and not self.calls:
            return "unusable", ("the answer is empty",)
        doubts = tuple(doubt for doubt in (self.misfit(), self.refused()) if doubt)
        return ("text_suspect" if doubts else "usable"), doubts

    def unlisted(self, verbatim: bool) -> float:
        """Weigh the raw texts that no reading writes down, against the most likely reading."""
        declared = self.prompt is not None and bool(self.prompt.tools_json)
        dropped = self.losses.undeclared_calls if declared else self.losses.calls_without_tools
        if self.cut:
            dropped = self.losses.cut_calls if declared else "kept"
        if dropped == "dropped" and not self.calls and not self.content.strip():
            return LOST_CALL
        if verbatim:
            return 0.0
        stripped = bool(self.reasoning) and self.losses.reasoning != "verbatim"
        return SWALLOWED if self.calls or stripped else SPECIALS_SWALLOWED

    def _literal(self, text: str, kind: Field = "glue") -> tuple[Part, ...]:
        return split_specials(text, self.fmt.specials, kind)

    def _holds_specials(self, text: str) -> bool:
        return any(special in text for special in self.fmt.specials)


def _split_content(reply: Reply, fmt: OutputFormat, losses: Losses) -> tuple[str, str]:
    """Return reasoning and content, the reasoning taken out of the content where no parser did."""
    rule, content = fmt.reasoning, reply.content or ""
    inside = losses.reasoning_in_content and bool(rule.close) and rule.close in content
    if reply.reasoning or rule.opened_by == "none" or not inside:
        return reply.reasoning or "", content
    head, tail = content.split(rule.close, 1)
    return head.removeprefix(rule.open), tail


def _stripped(natural: str, others: Mapping[str, float]) -> list[tuple[str, float, str]]:
    """Return whitespace that may have stood there with weight and note, the format's own first."""
    return [(natural, 1.0, ""), *((white, weight, repr(white)) for white, weight in others.items() if white != natural)]


def _named(white: str, what: str) -> str:
    return f"{white} {what}" if white else ""


def _text(text: str, kind: Field) -> tuple[Part, ...]:
    return (Text(text, kind),) if text else ()


def _join(*notes: str) -> str:
    return ", ".join(note for note in notes if note)
