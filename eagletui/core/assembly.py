"""From a reply back to the raw text: undo what the server did, put the format's literals in between.

Some replies have one possible raw text, others several. `candidates` lists them, the most likely first; the billed
count decides among them in `core/choice.py`. The weights are guesses of how usual each way is; they only order
readings and say when a text is too uncertain to be called usable.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from eagletui.core.chat import Prompt, ToolCall
from eagletui.core.codecs import Form, declared_types, fill, gemma_form, json_forms, parameter_forms
from eagletui.core.outputs import (
    Assembly,
    Block,
    Field,
    Losses,
    LossProfile,
    OutputFormat,
    Part,
    Special,
    Spelling,
    Text,
    TextUsability,
    Tools,
    split_specials,
)
from eagletui.core.reply import Reply

LIMIT = 48
"""Readings kept per reply."""
FORMS = 8
"""Spellings of one call's arguments that are tried."""
STRIPPED = {"": 0.2, "\n": 0.2, "\n\n": 0.1, "  ": 0.02}
"""Whitespace that a server may have stripped, against the format's own glue with weight 1."""
NO_CLOSE = 0.05
"""A call, or the end, inside the reasoning, against one after the close tag."""
NO_BLOCK = 0.3
"""An answer without any block that the parser took for reasoning."""
CUT_AT_CLOSE = 0.1
"""A cut right after the close tag, against a cut inside the reasoning."""
CUT_CALL = 20.0
"""`tool_calls` with exactly `max_tokens` billed: nearly always a cut that the server does not name."""
STRUCTURE = 0.1
"""Structural strings inside a field that were tokens after all, against ordinary text."""
AFTER_CALL = 0.05
"""Whitespace after the tool section, which most servers drop."""
RARER = 0.1
"""Each further way to write an absent reasoning."""


class _Piece(NamedTuple):
    """One way to write a stretch of the raw text."""

    parts: tuple[Part, ...] = ()
    weight: float = 1.0
    note: str = ""
    block: Block = "none"
    """For the head: the state of the reasoning block."""
    close_at: int | None = None
    """For the head: where in `parts` the close tag's token stands."""


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
    builder = _Builder(reply, fmt, profile.losses(fmt.name), prompt, max_tokens, thinking)
    readings = sorted(builder.readings(), key=lambda reading: -reading.prior)[:LIMIT]
    verbatim = len({reading.raw for reading in readings}) == 1 and builder.losses.special_text == "kept"
    usability, reasons = builder.usability()
    return tuple(
        replace(
            reading,
            usability="text_suspect" if reading.open_ended and usability == "usable" else usability,
            reasons=(*reading.reasons, *reasons),
            refused=builder.refused(),
            misfit=builder.misfit(),
            verbatim=verbatim,
        )
        for reading in readings
    )


class _Builder:
    """Lists the readings of one reply. Each method writes one stretch of the raw text."""

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
        self.silent_cut = bool(self.calls) and not self.cut and max_tokens is not None and billed == max_tokens
        asked = fmt.reasoning.default if thinking is None else thinking
        self.thinks = fmt.reasoning.opened_by != "none" and (bool(self.reasoning) or asked)

    def readings(self) -> Iterator[Assembly]:
        """Yield every reading."""
        tails = self._tails()
        for head in self._heads():
            for body in self._bodies(head):
                for tail in tails:
                    yield from self._finish(head, body, tail)

    # The head: the reasoning block.

    def _heads(self) -> Iterator[_Piece]:
        rule = self.fmt.reasoning
        if not self.thinks:
            yield _Piece()
            return
        opener = self._literal(rule.open) if rule.opened_by == "model" else ()
        if not self.reasoning:
            yield from self._empty_heads(opener)
            return
        follows = bool(self.content or self.calls)
        for text in self._reasoning_texts(ends_here=self.cut and not follows):
            inside = (*opener, *text.parts)
            opened = text._replace(parts=inside, block="open")
            if self.cut and not follows:
                yield opened
                yield self._closed(text, inside, CUT_AT_CLOSE, "cut after the close tag")
                continue
            yield self._closed(text, inside)
            if self.content or not self.losses.implicit_close:
                continue
            yield opened._replace(weight=text.weight * NO_CLOSE, note=_join(text.note, "no close tag"))
            if opener and not self.calls:
                started = bool(rule.after_open) and self.reasoning.startswith(rule.after_open)
                weight = NO_CLOSE if started else NO_BLOCK
                yield text._replace(weight=text.weight * weight, note="no reasoning block")

    def _closed(self, text: _Piece, inside: tuple[Part, ...], weight: float = 1.0, note: str = "") -> _Piece:
        close = self._literal(self.fmt.reasoning.close)
        at = next((len(inside) + i for i, part in enumerate(close) if isinstance(part, Special)), None)
        return _Piece((*inside, *close), text.weight * weight, _join(text.note, note), "closed", at)

    def _empty_heads(self, opener: tuple[Part, ...]) -> Iterator[_Piece]:
        rule = self.fmt.reasoning
        glue = rule.after_open + rule.before_close
        ways = [way for way in rule.absent if way != "glue" or not glue or self.losses.reasoning == "strip"]
        for index, way in enumerate(ways or ["close"]):
            weight = RARER**index
            if way == "nothing":
                yield _Piece((), weight, "no reasoning block" if index else "")
            else:
                inside = (*opener, *_text(glue if way == "glue" else "", "glue"))
                yield self._closed(_Piece(), inside, weight, "empty reasoning block" if index else "")

    def _reasoning_texts(self, ends_here: bool) -> list[_Piece]:
        rule, loss, text = self.fmt.reasoning, self.losses.reasoning, self.reasoning
        if loss == "verbatim":
            return [_Piece(_text(text, "reasoning"))]
        start = rule.after_open if loss == "strip" else ""
        return [
            _Piece(_text(start + text + tail, "reasoning"), weight, _named(note, "ends the reasoning"))
            for tail, weight, note in _stripped("" if ends_here else rule.before_close)
        ]

    # The body: the content, up to the first call.

    def _bodies(self, head: _Piece) -> list[_Piece]:
        glue = self.fmt.reasoning.after_close if head.block == "closed" else ""
        if self.calls:
            return self._bodies_before_calls(glue)
        if not self.content and (self.cut or head.block == "open" or (self.reasoning and head.block == "none")):
            return [_Piece()]
        text = glue + self.content if self.losses.content == "strip" and self.content else self.content
        opener = self._literal(self.fmt.content.open)
        bodies = [_Piece((*opener, *_text(text, "content")))]
        if any(special in text for special in self.fmt.specials):
            tokens = (*opener, *self._literal(text, "content"))
            bodies.append(_Piece(tokens, STRUCTURE, "structural strings as tokens"))
        return bodies

    def _bodies_before_calls(self, glue: str) -> list[_Piece]:
        tools, loss, frame, text = self.fmt.tools, self.losses, self.fmt.content, self.content
        if not text.strip():
            kept = loss.blank_content_with_tools == "kept" and loss.content_with_tools == "verbatim"
            if kept:
                return [_Piece(_text(text, "glue"))]
            return [
                _Piece(_text(white, "glue"), weight, _named(note, "stands before the call"))
                for white, weight, note in _stripped(glue + tools.before)
            ]
        start = glue if loss.content_with_tools == "strip" else ""
        match loss.content_with_tools:
            case "verbatim" | "dropped":
                ends = [("", 1.0, "")]
            case "without-glue":
                ends = [(tools.before_with_content, 1.0, ""), ("", RARER, "nothing")]
            case _:
                ends = _stripped(tools.before_with_content)
        opener, closer = self._literal(frame.open_with_tools), self._literal(frame.close_with_tools)
        return [
            _Piece(
                (*opener, *_text(start + text + white, "content"), *closer),
                weight,
                _named(note, "stands before the call"),
            )
            for white, weight, note in ends
        ]

    # The tail: the tool section.

    def _tails(self) -> list[_Piece]:
        if not self.calls:
            return [_Piece()]
        tools = self.fmt.tools
        tails: list[_Piece] = []
        for spelling in (None, *(known for known in tools.spellings if known.name in self.losses.spellings)):
            written = _spelled(tools, spelling)
            calls = [self._call_forms(call, index, written) for index, call in enumerate(self.calls)]
            for chosen in itertools.islice(itertools.product(*calls), LIMIT):
                parts: list[Part] = [*self._literal(written.open)]
                for index, piece in enumerate(chosen):
                    parts += self._literal(written.between) if index else ()
                    parts += piece.parts
                parts += self._literal(written.close)
                weight = math.prod((piece.weight for piece in chosen), start=spelling.weight if spelling else 1.0)
                note = _join(spelling.name if spelling else "", *(piece.note for piece in chosen))
                tails.append(_Piece(tuple(parts), weight, note))
        tails.sort(key=lambda piece: -piece.weight)
        first = tails[0]
        if self.losses.text_after_calls == "dropped" and not self.cut:
            after = _text(tools.after + "\n", "glue")
            tails.append(_Piece((*first.parts, *after), first.weight * AFTER_CALL, "newline after the call"))
        return tails[:LIMIT]

    def _call_forms(self, call: ToolCall, index: int, tools: Tools) -> list[_Piece]:
        types = declared_types(self.prompt.tools_json if self.prompt else None).get(call.name, {})
        forms: tuple[Form, ...]
        match tools.codec:
            case "parameters":
                forms = parameter_forms(call.arguments, self.losses, types, tools)
            case "gemma-dict":
                forms = gemma_form(call.arguments)
            case _:
                forms = json_forms(call.arguments, self.losses, types)
        forms = forms or (Form(call.arguments, 1.0, ""),)
        written_id = self._written_id(call, index)
        pieces: list[_Piece] = []
        for form in forms[:FORMS]:
            values = {"id": written_id, "name": call.name, "arguments": form.text}
            parts = (
                Text(fill(part.text, values), "tool_call") if isinstance(part, Text) else part
                for part in self._literal(tools.each, "tool_call")
            )
            pieces.append(_Piece(tuple(part for part in parts if part.text), form.weight, form.note))
        return pieces

    def _written_id(self, call: ToolCall, index: int) -> str:
        if self.losses.tool_ids == "kept" and call.id:
            return call.id
        earlier = sum(len(message.tool_calls) for message in self.prompt.messages) if self.prompt else 0
        return fill(self.fmt.tools.id_form, {"name": call.name, "index": str(index + earlier)})

    # The end.

    def _finish(self, head: _Piece, body: _Piece, tail: _Piece) -> Iterator[Assembly]:
        parts = (*head.parts, *body.parts, *tail.parts)
        prior = head.weight * body.weight * tail.weight
        note = _join(head.note, body.note, tail.note)
        end = self.fmt.end_token(self.reply.finish_reason)
        if end is None:
            yield Assembly(parts, prior, block=head.block, close_at=head.close_at, note=note)
            return
        glue = _text(self.fmt.tools.after, "glue") if self.calls else ()
        whole = (*parts, *glue, Special(end))
        yield Assembly(whole, prior, end=end, block=head.block, close_at=head.close_at, note=note)
        if self.silent_cut:
            reason = "cut by max_tokens inside a call, though the server says tool_calls"
            yield Assembly(
                whole, prior * CUT_CALL, reasons=(reason,), block=head.block, close_at=head.close_at, open_ended=True,
                note=_join(note, "cut"),
            )  # fmt: skip

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
        return (self.fmt.tools.refused or None) if self.calls else None

    def usability(self) -> tuple[TextUsability, tuple[str, ...]]:
        """Say what the reply as a whole allows before any count."""
        reply = self.reply
        if reply.reasoning_kind in ("summary", "encrypted"):
            return "unusable", (f"the reasoning came as {reply.reasoning_kind}, not as text",)
        if reply.finish_reason in ("error", "content_filter"):
            return "unusable", (f"the answer ended with {reply.finish_reason}",)
        if not reply.content and not reply.reasoning and not self.calls:
            return "unusable", ("the answer is empty",)
        doubts = tuple(doubt for doubt in (self.misfit(), self.refused()) if doubt)
        return ("text_suspect" if doubts else "usable"), doubts

    def _literal(self, text: str, kind: Field = "glue") -> tuple[Part, ...]:
        return split_specials(text, self.fmt.specials, kind)


def _split_content(reply: Reply, fmt: OutputFormat, losses: Losses) -> tuple[str, str]:
    """Return reasoning and content, the reasoning taken out of the content where no parser did."""
    rule, content = fmt.reasoning, reply.content or ""
    if reply.reasoning or rule.opened_by == "none" or not losses.reasoning_in_content or rule.close not in content:
        return reply.reasoning or "", content
    head, tail = content.split(rule.close, 1)
    return head.removeprefix(rule.open), tail


def _spelled(tools: Tools, spelling: Spelling | None) -> Tools:
    if spelling is None:
        return tools
    return replace(
        tools,
        open=tools.open if spelling.open is None else spelling.open,
        close=tools.close if spelling.close is None else spelling.close,
        each=tools.each if spelling.each is None else spelling.each,
        between=tools.between if spelling.between is None else spelling.between,
        parameter=tools.parameter if spelling.parameter is None else spelling.parameter,
    )


def _stripped(natural: str) -> list[tuple[str, float, str]]:
    """Return whitespace that may have stood there with weight and note, the format's own first."""
    others = [(white, weight, repr(white)) for white, weight in STRIPPED.items() if white != natural]
    return [(natural, 1.0, ""), *others]


def _named(white: str, what: str) -> str:
    return f"{white} {what}" if white else ""


def _text(text: str, kind: Field) -> tuple[Part, ...]:
    return (Text(text, kind),) if text else ()


def _join(*notes: str) -> str:
    return ", ".join(note for note in notes if note)
