"""Read the filter line of the samples browser.

Pure. `evidence:streamed,logprobs !finish:stop endpoint:x dataset:y spans>0 cost>0.01 "text"`; all must hold.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from typing import Final

from eagletui.core.money import PICO, pico_to_usd_string
from eagletui.ledger.filters import (
    FAILED,
    UNPROVED,
    Column,
    Compared,
    Excluded,
    Figure,
    Operator,
    Preset,
    SampleFilter,
)

FIELDS: Final[dict[str, str]] = {
    "state": "states",
    "dataset": "datasets",
    "evidence": "evidence",
    "usability": "usability",
    "endpoint": "endpoints",
    "finish": "finish_reasons",
}
_COLUMNS: Final[dict[str, Column]] = {
    "state": "state",
    "dataset": "dataset",
    "evidence": "evidence",
    "usability": "usability",
    "endpoint": "endpoint",
    "finish": "finish_reason",
}
_FIGURES: Final[dict[str, Figure]] = {
    "spans": "spans",
    "resegmented": "spans",
    "drift": "drift",
    "cost": "cost",
    "latency": "latency",
    "output": "output",
    "billed": "billed",
    "prompt": "prompt",
    "attempts": "attempts",
}
_OPERATORS: Final[dict[str, Operator]] = {"<": "<", "<=": "<=", "=": "=", "!=": "!=", ">=": ">=", ">": ">"}
_COMPARISON: Final = re.compile(r"(?P<name>[a-z_]+)(?P<operator><=|>=|!=|<|>|=)(?P<value>.*)")
PRESETS: Final[dict[str, SampleFilter]] = {
    "all": SampleFilter(),
    "mismatched": SampleFilter(preset="mismatched"),
    "drifting": SampleFilter(preset="drifting"),
    "failed": SampleFilter(states=FAILED),
    "unproved": SampleFilter(evidence=UNPROVED),
    "waiting for features": SampleFilter(preset="waiting"),
}
"""Ready-made filters, in the order of their key."""
_WRITTEN: Final[dict[str, Preset]] = {
    "spans>0": "mismatched",
    "drift!=0": "drifting",
    "features:waiting": "waiting",
}
_CONDITIONS: Final[dict[str, Preset]] = {**_WRITTEN, "resegmented>0": "mismatched", "drift>0": "drifting"}
EXAMPLE: Final = 'evidence:streamed !finish:stop state:failed endpoint:x dataset:y spans>1 cost>0.01 latency>5 "text"'


_WORD: Final = re.compile(r'(?:(?P<not>!)?(?P<name>[a-z_]+):(?!/))?(?:"(?P<quoted>[^"]*)"|(?P<bare>[^\s"]+)|(?<=:))')


_LARGEST: Final = 2**62
"""SQLite's integers end at 2**63."""


class FilterLineError(ValueError):
    """The line cannot be read; `str()` says which word and what would do."""


def read_filter(line: str, base: SampleFilter | None = None) -> SampleFilter:
    """Turn a line into a filter; the order of `base` stays.

    Raises:
        FilterLineError: a word is not known.
    """
    base = base or SampleFilter()
    found: dict[str, tuple[str, ...]] = dict.fromkeys(FIELDS.values(), ())
    preset: Preset | None = None
    texts: list[str] = []
    compared: list[Compared] = []
    excluded: list[Excluded] = []
    for name, value, word, is_negated in _words(line):
        if word in _CONDITIONS:
            wanted = _CONDITIONS[word]
            if preset not in (None, wanted):
                raise FilterLineError(f"{word} cannot be joined with {preset}: use one of them")
            preset = wanted
        elif not name and not word.startswith('"') and (comparison := _COMPARISON.fullmatch(word)):
            compared.append(_compared(comparison))
        elif not name and word.startswith("!") and len(word) > 1:
            raise FilterLineError(
                f'{word}: ! goes with a field, such as !finish:stop. To search for the text: "{word}"'
            )
        elif not name:
            texts.append(value)
        elif name in FIELDS:
            if not value:
                raise FilterLineError(f"{name}: needs a value, such as {_example(name)}")
            if is_negated:
                excluded += [Excluded(_COLUMNS[name], one) for one in value.split(",") if one]
                continue
            found[FIELDS[name]] += tuple(filter(None, value.split(",")))
        else:
            near = get_close_matches(name, FIELDS, n=1)
            hint = f"did you mean {near[0]}:" if near else f"known are {', '.join(FIELDS)}"
            raise FilterLineError(f'{name}: is not a field, {hint}. To search for the text: "{word}"')
    return SampleFilter(
        **found,
        preset=preset,
        compared=tuple(compared),
        excluded=tuple(excluded),
        text=" ".join(texts),
        sort=base.sort,
        reverse=base.reverse,
    )


def _compared(found: re.Match[str]) -> Compared:
    name, value = found.group("name"), found.group("value")
    figure = _FIGURES.get(name)
    if figure is None:
        near = get_close_matches(name, _FIGURES, n=1)
        hint = f"did you mean {near[0]}" if near else f"known are {', '.join(_FIGURES)}"
        raise FilterLineError(f'{name} is not a figure, {hint}. To search for the text: "{found.group()}"')
    try:
        amount = Decimal(value.removeprefix("$").replace(",", ""))
    except InvalidOperation:
        raise FilterLineError(f"{name}: found {value or 'nothing'}, expected a number, such as {name}>1") from None
    if not amount.is_finite():
        raise FilterLineError(f"{name}: found {value}, expected a number, such as {name}>1")
    number = int(amount * PICO) if figure == "cost" else float(amount) if figure == "latency" else amount
    if isinstance(number, Decimal):
        if number != int(number):
            raise FilterLineError(f"{name}: found {value}, expected a whole number")
        number = int(number)
    if abs(number) >= _LARGEST:
        raise FilterLineError(f"{name}: found {value}, which is more than any sample has")
    return Compared(figure, _OPERATORS[found.group("operator")], number)


def may_go_on_as_field(line: str) -> bool:
    """Tell whether the last word of a line that is being typed may become the name of a field or a figure."""
    words = line.split()
    last = words[-1].lstrip("!") if words and not line.endswith(" ") else ""
    return bool(last) and any(name.startswith(last) for name in (*FIELDS, *_FIGURES, "features"))


def write_filter(wanted: SampleFilter) -> str:
    """Write a filter as the line that gives it."""
    words = [
        f"{name}:{_quoted(','.join(getattr(wanted, field)))}"
        for name, field in FIELDS.items()
        if getattr(wanted, field)
    ]
    names = {column: name for name, column in _COLUMNS.items()}
    words += [f"!{names[column]}:{_quoted(value)}" for column, value in wanted.excluded]
    words += [word for word, preset in _WRITTEN.items() if preset == wanted.preset]
    for figure, operator, value in wanted.compared:
        shown = pico_to_usd_string(int(value)) if figure == "cost" else f"{value:g}" if value % 1 else str(int(value))
        words.append(f"{figure}{operator}{shown}")
    if wanted.text:
        words.append(f'"{wanted.text}"')
    return " ".join(words)


def preset_name(wanted: SampleFilter) -> str:
    """Name the ready-made filter that this is, or say that it is none of them."""
    plain = replace(wanted, sort="id", reverse=False)
    return next((name for name, preset in PRESETS.items() if preset == plain), "own")


def _words(line: str) -> Iterator[tuple[str, str, str, bool]]:
    """Yield the field's name or '', its value or the text, the word as written, and whether it is negated."""
    if line.count('"') % 2:
        raise FilterLineError('a quote is not closed: "..."')
    for found in _WORD.finditer(line):
        name, quoted, bare = found.group("name", "quoted", "bare")
        yield name or "", quoted if quoted is not None else bare or "", found.group(), bool(found.group("not"))


def _example(name: str) -> str:
    examples = {"state": "failed", "evidence": "streamed", "usability": "usable", "finish": "length"}
    return f"{name}:{examples.get(name, 'NAME')}"


def _quoted(value: str) -> str:
    return f'"{value}"' if " " in value else value
