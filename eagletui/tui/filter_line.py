"""Read the filter line of the samples browser.

Pure. `evidence:streamed,logprobs state:failed endpoint:x dataset:y resegmented>0 "some text"`; all must hold.
"""

import shlex
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
_CONDITIONS: Final[dict[str, Preset]] = {
    "features:waiting": "waiting",
    "resegmented>0": "mismatched",
    "spans>0": "mismatched",
    "drift!=0": "drifting",
    "drift>0": "drifting",
}
EXAMPLE: Final = 'evidence:streamed state:failed endpoint:x dataset:y resegmented>0 "text"'


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
    for word in _words(line):
        name, colon, value = word.partition(":")
        if word in _CONDITIONS:
            wanted = _CONDITIONS[word]
            if preset not in (None, wanted):
                raise FilterLineError(f"{word} cannot be joined with {preset}: use one of them")
            preset = wanted
        elif colon and name in FIELDS:
            if not value:
                raise FilterLineError(f"{name}: needs a value, such as {_example(name)}")
            found[FIELDS[name]] += tuple(filter(None, value.split(",")))
        elif colon and name.isidentifier() and len(name) < 12:
            near = get_close_matches(name, FIELDS, n=1)
            hint = f"did you mean {near[0]}: ?" if near else f"known are {', '.join(FIELDS)}"
            raise FilterLineError(f"{name}: is not a field; {hint} Quote it to search for the text.")
        else:
            texts.append(word)
    return SampleFilter(
        **found,
        preset=preset,
        text=" ".join(texts),
        sort=base.sort,
        reverse=base.reverse,
    )


def write_filter(wanted: SampleFilter) -> str:
    """Write a filter as the line that gives it."""
    words = [f"{name}:{','.join(getattr(wanted, field))}" for name, field in FIELDS.items() if getattr(wanted, field)]
    if wanted.preset == "mismatched":
        words.append("resegmented>0")
    elif wanted.preset == "drifting":
        words.append("drift!=0")
    elif wanted.preset == "waiting":
        words.append("features:waiting")
    if wanted.text:
        words.append(f'"{wanted.text}"')
    return " ".join(words)


def preset_name(wanted: SampleFilter) -> str:
    """Name the ready-made filter that this is, or say that it is none of them."""
    plain = replace(wanted, sort="id", reverse=False)
    return next((name for name, preset in PRESETS.items() if preset == plain), "own")


def _words(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="")
    lexer.whitespace_split = True
    lexer.commenters = ""
    lexer.quotes = '"'
    lexer.escape = ""
    try:
        return list(lexer)
    except ValueError:
        raise FilterLineError('a quote is not closed: "..."') from None


def _example(name: str) -> str:
    examples = {"state": "failed", "evidence": "streamed", "usability": "usable", "finish": "length"}
    return f"{name}:{examples.get(name, 'NAME')}"
