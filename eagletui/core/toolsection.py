"""The tool section of an answer: every way to write its calls that the server hands out the same."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from eagletui.core.chat import Prompt, ToolCall
from eagletui.core.codecs import argument_forms, declared_types, fill
from eagletui.core.outputs import Losses, OutputFormat, Part, Spelling, Text, Tools, Written, split_specials

SECTIONS = 64
"""Ways to write a section that are kept."""
FORMS = 12
"""Spellings of one call's arguments that are tried."""
MIXED = 0.5
"""Calls of one answer that differ in their spelling, against the same habit in all."""
INDEX_RESTARTS = 0.4
"""Call indices that start at 0 in every turn, against indices that go on through the conversation."""
AFTER_CALL = 0.05
"""Whitespace after the section, which most servers drop."""


def sections(calls: tuple[ToolCall, ...], fmt: OutputFormat, losses: Losses, prompt: Prompt | None) -> list[Written]:
    """Return the ways to write these calls, the most likely first.

    Args:
        calls: as received.
        fmt: how the family writes calls.
        losses: which of the other spellings the server recognises, and what it does to ids and arguments.
        prompt: the request; its tools give argument types, its earlier calls the running index.
    """
    tools = fmt.tools
    found: list[Written] = []
    for spelling in (None, *(known for known in tools.spellings if known.name in losses.spellings)):
        written = _spelled(tools, spelling)
        ways = [_call(call, index, written, fmt, losses, prompt) for index, call in enumerate(calls)]
        for likely, chosen in _combined(ways):
            parts = list(split_specials(written.open, fmt.specials))
            for index, call in enumerate(chosen):
                parts += split_specials(written.between, fmt.specials) if index else ()
                parts += call.parts
            parts += split_specials(written.close, fmt.specials)
            weight = likely * (spelling.weight if spelling else 1.0)
            notes = dict.fromkeys(call.note for call in chosen if call.note)
            found.append(Written(tuple(parts), weight, ", ".join((*([spelling.name] if spelling else []), *notes))))
    found.sort(key=lambda way: -way.weight)
    first = found[0]
    if losses.text_after_calls == "dropped":
        after = Text(f"{tools.after}\n", "glue")
        found.append(Written((*first.parts, after), first.weight * AFTER_CALL, "newline after the call"))
    return found[:SECTIONS]


def _combined(ways: Sequence[Sequence[Written]]) -> Iterator[tuple[float, tuple[Written, ...]]]:
    """Yield ways to write all calls with their weights: one habit for all of them first, then each for itself."""
    if len(ways) == 1:
        yield from ((way.weight, (way,)) for way in ways[0])
        return
    seen: set[tuple[int, ...]] = set()
    for note in dict.fromkeys(way.note for call in ways for way in call):
        chosen = tuple(next((way for way in call if way.note == note), call[0]) for call in ways)
        key = tuple(map(id, chosen))
        if key not in seen:
            seen.add(key)
            yield min(way.weight for way in chosen), chosen
    for chosen in itertools.islice(itertools.product(*ways), SECTIONS):
        if tuple(map(id, chosen)) not in seen:
            yield MIXED * math.prod(way.weight for way in chosen), chosen


def _call(
    call: ToolCall, index: int, tools: Tools, fmt: OutputFormat, losses: Losses, prompt: Prompt | None
) -> list[Written]:
    types = declared_types(prompt.tools_json if prompt else None).get(call.name, {})
    forms = argument_forms(call.arguments, losses, types, tools, fmt.specials)[:FORMS]
    return [
        Written(
            fill(tools.each, {"id": written, "name": call.name, "arguments": form.parts}, fmt.specials),
            form.weight * weight,
            ", ".join(part for part in (note, form.note) if part),
        )
        for written, weight, note in _ids(call, index, fmt, losses, prompt)
        for form in forms
    ]


def _ids(
    call: ToolCall, index: int, fmt: OutputFormat, losses: Losses, prompt: Prompt | None
) -> list[tuple[str, float, str]]:
    """Return the ids that the model may have written for this call, with weight and note."""
    if losses.tool_ids == "kept" and call.id:
        return [(call.id, 1.0, "")]
    form = fmt.tools.id_form
    if not form:
        return [("", 1.0, "")]
    earlier = sum(len(message.tool_calls) for message in prompt.messages) if prompt else 0
    ids = [(form.format(name=call.name, index=index + earlier), 1.0, "")]
    if earlier:
        ids.append((form.format(name=call.name, index=index), INDEX_RESTARTS, "call index starts at 0 again"))
    return ids


def last_literal(tools: Tools, specials: tuple[str, ...]) -> Part | None:
    """Return what the section ends with, as one part; None for a format without tools."""
    parts = split_specials(tools.each + tools.close, specials)
    return parts[-1] if parts else None


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
