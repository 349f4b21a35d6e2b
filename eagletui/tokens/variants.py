"""Which small change of a format would make billed and counted agree: the name of a fault."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from eagletui.core.outputs import Part, Special, Text
from eagletui.tokens.load import Tokenizer
from eagletui.tokens.parts import encode_parts

MOST_SAMPLES: Final = 60
"""Samples that are tried; a constant shows in fewer."""

_BETTER: Final = 0.3
"""How much larger the share of agreeing counts must become."""

_MOST: Final = 0.7
"""Share of counts that a named fault must explain."""

_TAG: Final = re.compile(r"^[<\[]/?[\w:]*think[\w:]*[>\]]$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Counted:
    """One sample whose count is known."""

    parts: tuple[Part, ...]
    """Its raw text as the format has it."""
    billed: int
    ended: bool
    """The model ended the answer itself."""


Change = Callable[[tuple[Part, ...], bool], tuple[Part, ...]]


def name_fault(samples: Sequence[Counted], tokenizer: Tokenizer, end: str | None) -> str:
    """Say which change explains the counts.

    Args:
        samples: of one endpoint.
        tokenizer: encodes the changed texts.
        end: the format's end token.

    Returns:
        A clause such as "doubled glue: without it 58 of 60 counts agree", or empty text.
    """
    tried = samples[:MOST_SAMPLES]
    if not tried:
        return ""
    tags = [special for special in tokenizer.vocabulary.specials if _TAG.match(special)]
    close = next((tag for tag in tags if "/" in tag), None)
    opener = next((tag for tag in tags if "/" not in tag), None)
    changes: list[tuple[str, Change]] = [("doubled glue: without the format's glue", _without_glue)]
    if close is not None:
        changes.append((f"missing {close}: with it", lambda parts, ended: _with_close(parts, close)))
        changes.append((f"{close} too many: without it", lambda parts, ended: _without(parts, close)))
    if opener is not None:
        changes.append((f"{opener} too many: without it", lambda parts, ended: _without(parts, opener)))
    if end:
        changes.append(("missing end token: with it", lambda parts, ended: _with_end(parts, end) if ended else parts))
    before = _agreeing(tried, tokenizer, lambda parts, ended: parts)
    best, words = before, ""
    for name, change in changes:
        agreeing = _agreeing(tried, tokenizer, change)
        if agreeing > best:
            best, words = agreeing, f"{name} {agreeing} of {len(tried)} counts agree, not {before}"
    enough = best - before >= _BETTER * len(tried) and best >= _MOST * len(tried)
    return words if enough else ""


def _agreeing(samples: Sequence[Counted], tokenizer: Tokenizer, change: Change) -> int:
    return sum(
        len(encode_parts(change(sample.parts, sample.ended), tokenizer)[0]) == sample.billed for sample in samples
    )


def _without_glue(parts: tuple[Part, ...], ended: bool) -> tuple[Part, ...]:
    return tuple(part for part in parts if not (isinstance(part, Text) and part.field == "glue"))


def _without(parts: tuple[Part, ...], literal: str) -> tuple[Part, ...]:
    return tuple(part for part in parts if part.text != literal)


def _with_end(parts: tuple[Part, ...], end: str) -> tuple[Part, ...]:
    return (*parts, Special(end))


def _with_close(parts: tuple[Part, ...], close: str) -> tuple[Part, ...]:
    """Put the close tag behind the reasoning, or first where there is none."""
    if any(part.text == close for part in parts):
        return parts
    at = max((i for i, part in enumerate(parts, 1) if isinstance(part, Text) and part.field == "reasoning"), default=0)
    return (*parts[:at], Special(close), *parts[at:])
