"""A row's own sampling: `"sampling": {"temperature": 0.2, "max_tokens": 512}`, over that of its data set."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from eagletui.prompts.fields import Fault, found, one_of, take_object


class _Rule(NamedTuple):
    fits: Callable[[object], bool]
    expected: str


def _number(value: object, low: float, high: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


_REASONING: Final = re.compile(r"default|off|minimal|low|medium|high|xhigh|max|[1-9][0-9]{0,6}")

RULES: Final[Mapping[str, _Rule]] = {
    "temperature": _Rule(lambda value: _number(value, 0, 2), "a number from 0 to 2"),
    "top_p": _Rule(lambda value: _number(value, 1e-9, 1), "a number above 0 and at most 1"),
    "top_k": _Rule(_whole, "a whole number from 1"),
    "max_tokens": _Rule(_whole, "a whole number from 1; that of the data set bounds it"),
    "reasoning": _Rule(
        lambda value: isinstance(value, str) and bool(_REASONING.fullmatch(value)),
        "default, off, minimal, low, medium, high, xhigh, max or a number of tokens as text",
    ),
    "seed": _Rule(lambda value: isinstance(value, bool), "true or false"),
}
"""What a row may set, as in `[sampling]` of a config."""


def read_sampling(value: object) -> str | None:
    """Return a row's sampling as JSON, or None where it sets nothing.

    Raises:
        Fault: a field is unknown or its value cannot be.
    """
    if value is None:
        return None
    given = {name: item for name, item in take_object(value, "sampling").items() if item is not None}
    for name, item in given.items():
        rule = RULES.get(name)
        if rule is None:
            raise Fault(f"sampling.{name}", "an unknown field", one_of(tuple(RULES)))
        if not rule.fits(item):
            raise Fault(f"sampling.{name}", found(item), rule.expected)
    return json.dumps(given, sort_keys=True) if given else None
