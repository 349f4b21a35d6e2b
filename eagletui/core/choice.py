"""Which of the possible raw texts it was: the billed count decides, and what it cannot decide is said."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from eagletui.core.outputs import Assembly, Losses, Special

SURE = 0.7
"""A raw text is called usable when it holds at least this share of the likelihood of all readings that fit."""

UNCOUNTED = 20.0
"""How much more of what is not written down fits a reply when no count speaks against it."""

FAR = 4
"""Tokens that another segmentation of the same text easily differs by."""
FAR_SHARE = 0.1
"""The same as a share of the billed tokens."""


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

    Readings are measured in order only until those that are left cannot change the outcome.

    Args:
        readings: from `assembly.candidates`, the most likely first.
        losses: the profile's losses for this format.
        measure: counts the tokens of a reading; None at text level.
        billed: `usage.completion_tokens`.
        billed_reasoning: `usage.reasoning_tokens`.
        offset: billed minus counted, as proved for the endpoint.
    """
    if measure is None or billed is None:
        counts = None if measure is None else measure(readings[0])
        return _settle(readings, counts, None, readings[0].unlisted * UNCOUNTED)
    left = sum(reading.prior for reading in readings)
    fitting: list[Assembly] = []
    first: TokenCounts | None = None
    best: TokenCounts | None = None
    for reading in readings:
        counts = measure(reading)
        first = first or counts
        left -= reading.prior
        if _fits(reading, counts, billed - offset) and _reasoning_fits(reading, counts, losses, billed_reasoning):
            fitting.append(reading)
            best = best or counts
        if fitting and _share(fitting, left + fitting[0].unlisted) >= SURE:
            break
    if fitting:
        return _settle(fitting, best, True, fitting[0].unlisted)
    apart = abs(billed - offset - first.total) if first else 0
    return _settle(readings, first, False, readings[0].unlisted, text_lost=apart > max(FAR, billed * FAR_SHARE))


def _fits(reading: Assembly, counts: TokenCounts, billed: int) -> bool:
    if reading.open_ended:
        return counts.through_close <= billed <= counts.total if reading.block == "closed" else billed <= counts.total
    return counts.total == billed


def _reasoning_fits(reading: Assembly, counts: TokenCounts, losses: Losses, billed: int | None) -> bool:
    if billed is None or reading.block == "none" or losses.reasoning_tokens == "unknown":
        return True
    if losses.reasoning_tokens == "through-close":
        return billed == counts.through_close
    return billed == counts.inside if reading.block == "closed" else billed >= counts.inside


def _share(fitting: Sequence[Assembly], others: float) -> float:
    """Return the likelihood of the first reading's raw text among those that fit and `others`."""
    same = sum(reading.prior for reading in fitting if reading.raw == fitting[0].raw)
    return same / (sum(reading.prior for reading in fitting) + others)


def _settle(
    fitting: Sequence[Assembly],
    counts: TokenCounts | None,
    agrees: bool | None,
    unlisted: float,
    *,
    text_lost: bool = False,
) -> Choice:
    best = fitting[0]
    share = _share(fitting, unlisted)
    doubt = ""
    if agrees is False and not best.verbatim:
        doubt = "no raw text that gives this reply has the billed count"
    elif agrees is False and text_lost:
        doubt = "the billed count is too far from the text's to be another segmentation of it"
    elif agrees is not False and share < SURE:
        others = dict.fromkeys(reading.note for reading in fitting if reading.raw != best.raw and reading.note)
        named = list(others)[:3] or ["what this server swallows leaves no trace"]
        doubt = f"other raw texts give the same reply: {'; '.join(named)}"
    if doubt:
        usability = "text_suspect" if best.usability == "usable" else best.usability
        best = replace(best, usability=usability, reasons=(*best.reasons, doubt))
    return Choice(best, counts, agrees, share)
