"""Which of the possible raw texts it was: the billed count decides, and what it cannot decide is said."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from eagletui.core.outputs import Assembly, Losses, Special

SURE = 0.75
"""A raw text is called usable when it holds at least this share of the likelihood of all readings that fit."""


class TokenCounts(NamedTuple):
    """How many tokens a reading has."""

    total: int
    """All of them, the end token included."""
    inside: int
    """Tokens of the stretch between special tokens that holds the reasoning text."""
    through_close: int
    """Tokens from the start up to and with the close tag; all of them where the block is open."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The reading that was chosen, its usability final."""

    assembly: Assembly
    counts: TokenCounts | None
    """None without a tokenizer."""
    agrees: bool | None
    """The count equals the billed one under the given offset; None when either is unknown."""
    share: float
    """Likelihood of this raw text among all readings that fit, 0 to 1."""


def count_tokens(reading: Assembly, length: Callable[[str], int]) -> TokenCounts:
    """Count a reading's tokens.

    Args:
        reading: parts; adjacent texts are encoded as one.
        length: tokens of a text encoded with specials off.
    """
    total = inside = 0
    through_close = 0
    run: list[str] = []
    reasoning = False

    def flush() -> None:
        nonlocal total, inside, run, reasoning
        if run:
            tokens = length("".join(run))
            total += tokens
            inside += tokens if reasoning else 0
        run, reasoning = [], False

    for index, part in enumerate(reading.parts):
        if isinstance(part, Special):
            flush()
            total += 1
            if index == reading.close_at:
                through_close = total
            continue
        run.append(part.text)
        reasoning = reasoning or part.field == "reasoning"
    flush()
    return TokenCounts(total, inside, through_close or total)


def choose(
    readings: Sequence[Assembly],
    losses: Losses,
    *,
    measure: Callable[[Assembly], TokenCounts] | None,
    billed: int | None,
    billed_reasoning: int | None = None,
    offset: int = 0,
) -> Choice:
    """Let the billed counts pick among readings and settle whether the text is usable.

    Args:
        readings: from `assembly.candidates`, the most likely first.
        losses: the profile's losses for this format.
        measure: counts the tokens of a reading; None at text level.
        billed: `usage.completion_tokens`.
        billed_reasoning: `usage.reasoning_tokens`.
        offset: billed minus counted, as proved for the endpoint.
    """
    if measure is None or billed is None:
        return _settle(readings, None if measure is None else measure(readings[0]), None)
    counted = [(reading, measure(reading)) for reading in readings]
    fitting = [
        (reading, counts)
        for reading, counts in counted
        if _fits(reading, counts, billed - offset) and _reasoning_fits(reading, counts, losses, billed_reasoning)
    ]
    if not fitting:
        return _settle(readings, counted[0][1], False)
    return _settle([reading for reading, _ in fitting], fitting[0][1], True)


def _fits(reading: Assembly, counts: TokenCounts, billed: int) -> bool:
    return counts.total > billed if reading.open_ended else counts.total == billed


def _reasoning_fits(reading: Assembly, counts: TokenCounts, losses: Losses, billed: int | None) -> bool:
    if billed is None or reading.block == "none" or losses.reasoning_tokens == "unknown":
        return True
    if losses.reasoning_tokens == "through-close":
        return billed == counts.through_close
    return billed == counts.inside if reading.block == "closed" else billed >= counts.inside


def _settle(fitting: Sequence[Assembly], counts: TokenCounts | None, agrees: bool | None) -> Choice:
    best = fitting[0]
    whole = sum(reading.prior for reading in fitting)
    share = sum(reading.prior for reading in fitting if reading.raw == best.raw) / whole
    doubt = ""
    if agrees is False and not best.verbatim:
        doubt = "no raw text that gives this reply has the billed count"
    elif agrees is not False and share < SURE:
        others = sorted({reading.note or "the plain one" for reading in fitting if reading.raw != best.raw})
        doubt = f"other raw texts give the same reply: {', '.join(others[:4])}"
    if doubt:
        usability = "text_suspect" if best.usability == "usable" else best.usability
        best = replace(best, usability=usability, reasons=(*best.reasons, doubt))
    return Choice(best, counts, agrees, share)
