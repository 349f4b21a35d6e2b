"""Read the filter line of the samples browser.

Pure. `evidence:streamed,logprobs state:failed endpoint:x dataset:y resegmented>0 "some text"`; all must hold.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches
from typing import Final

from eagletui.ledger.filters import FAILED, UNPROVED, Preset, SampleFilter

FIELDS: Final[dict[str, str]] = {
    "state": "states",
    "dataset": "datasets",
    "evidence": "evidence",
    "usability": "usability",
    "endpoint": "endpoints",
    "finish": "finish_reasons",
}
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
    "resegmented>0": "mismatched",
    "drift!=0": "drifting",
    "features:waiting": "waiting",
}
_CONDITIONS: Final[dict[str, Preset]] = {**_WRITTEN, "spans>0": "mismatched", "drift>0": "drifting"}
EXAMPLE: Final = 'evidence:streamed state:failed endpoint:x dataset:y resegmented>0 "text"'


_WORD: Final = re.compile(r'(?:(?P<name>[a-z_]+):(?!/))?(?:"(?P<quoted>[^"]*)"|(?P<bare>[^\s"]+)|(?<=:))')


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
    for name, value, word in _words(line):
        if word in _CONDITIONS:
            wanted = _CONDITIONS[word]
            if preset not in (None, wanted):
                raise FilterLineError(f"{word} cannot be joined with {preset}: use one of them")
            preset = wanted
        elif not name:
            texts.append(value)
        elif name in FIELDS:
            if not value:
                raise FilterLineError(f"{name}: needs a value, such as {_example(name)}")
            found[FIELDS[name]] += tuple(filter(None, value.split(",")))
        else:
            near = get_close_matches(name, FIELDS, n=1)
            hint = f"did you mean {near[0]}:" if near else f"known are {', '.join(FIELDS)}"
            raise FilterLineError(f'{name}: is not a field, {hint}. To search for the text: "{word}"')
    return SampleFilter(
        **found,
        preset=preset,
        text=" ".join(texts),
        sort=base.sort,
        reverse=base.reverse,
    )


def write_filter(wanted: SampleFilter) -> str:
    """Write a filter as the line that gives it."""
    words = [
        f"{name}:{_quoted(','.join(getattr(wanted, field)))}"
        for name, field in FIELDS.items()
        if getattr(wanted, field)
    ]
    words += [word for word, preset in _WRITTEN.items() if preset == wanted.preset]
    if wanted.text:
        words.append(f'"{wanted.text}"')
    return " ".join(words)


def preset_name(wanted: SampleFilter) -> str:
    """Name the ready-made filter that this is, or say that it is none of them."""
    plain = replace(wanted, sort="id", reverse=False)
    return next((name for name, preset in PRESETS.items() if preset == plain), "own")


def _words(line: str) -> Iterator[tuple[str, str, str]]:
    """Yield the field's name or '', its value or the text, and the word as written."""
    if line.count('"') % 2:
        raise FilterLineError('a quote is not closed: "..."')
    for found in _WORD.finditer(line):
        name, quoted, bare = found.group("name", "quoted", "bare")
        yield name or "", quoted if quoted is not None else bare or "", found.group()


def _example(name: str) -> str:
    examples = {"state": "failed", "evidence": "streamed", "usability": "usable", "finish": "length"}
    return f"{name}:{examples.get(name, 'NAME')}"


def _quoted(value: str) -> str:
    return f'"{value}"' if " " in value else value
