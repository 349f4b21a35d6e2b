"""Which samples to list, and in what order, as SQL."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple

Sort = Literal["id", "drift", "cost", "output", "latency"]
Preset = Literal["mismatched", "drifting", "waiting"]

_SORT_COLUMNS: Final[dict[Sort, str]] = {
    "id": "id",
    "drift": "drift_tokens",
    "cost": "cost_pico",
    "output": "output_tokens",
    "latency": "latency_s",
}

SORT_KEYS: Final[dict[Sort, str]] = {
    sort: f"abs(samples.{column})" if sort == "drift" else f"samples.{column}" for sort, column in _SORT_COLUMNS.items()
}
"""Samples for which the key is unknown are not listed in that order."""

_PRESETS: Final[dict[Preset, str]] = {
    "mismatched": "samples.spans > 0",
    "drifting": "samples.drift_tokens <> 0",
    "waiting": "samples.id IN (SELECT sample_id FROM to_extract)",
}

FAILED: Final = ("failed", "refused")
"""States of samples that were given up."""

UNPROVED: Final = ("inferred", "counted", "canonical", "conflict")
"""Evidence that is not a proof."""


@dataclass(frozen=True, slots=True)
class SampleFilter:
    """Conditions that all must hold; empty ones hold always."""

    states: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    usability: tuple[str, ...] = ()
    endpoints: tuple[str, ...] = ()
    finish_reasons: tuple[str, ...] = ()
    preset: Preset | None = None
    """`mismatched` has differing spans, `drifting` drift other than 0, `waiting` no features yet."""
    text: str = ""
    """Part of the key or of the prompt's preview, any case; this one reads every row."""
    sort: Sort = "id"
    reverse: bool = False
    """Largest first."""


class Where(NamedTuple):
    """A condition and its parameters."""

    sql: str
    parameters: tuple[str | int | float, ...]


def where(wanted: SampleFilter) -> Where:
    """Return the condition on `samples` joined with `prompts` where the text needs it."""
    terms: list[str] = []
    parameters: list[str | int | float] = []
    for column, values in (
        ("state", wanted.states),
        ("dataset", wanted.datasets),
        ("evidence", wanted.evidence),
        ("usability", wanted.usability),
        ("endpoint", wanted.endpoints),
        ("finish_reason", wanted.finish_reasons),
    ):
        if len(values) == 1:
            terms.append(f"samples.{column} = ?")
        elif values:
            terms.append(f"samples.{column} IN ({', '.join('?' * len(values))})")
        parameters += values
    if wanted.preset is not None:
        terms.append(_PRESETS[wanted.preset])
    if wanted.text:
        pattern = "%" + wanted.text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
        terms.append(
            "(samples.sample_key LIKE ? ESCAPE '\\' OR samples.prompt_id IN"
            " (SELECT id FROM prompts WHERE preview LIKE ? ESCAPE '\\'))"
        )
        parameters += (pattern, pattern)
    if wanted.sort != "id":
        terms.append(f"samples.{_SORT_COLUMNS[wanted.sort]} IS NOT NULL")
    return Where(" AND ".join(terms) or "1", tuple(parameters))


def order(wanted: SampleFilter) -> str:
    """Return the ORDER BY of a filter; ids break ties in the same direction."""
    direction = "DESC" if wanted.reverse else "ASC"
    key = SORT_KEYS[wanted.sort]
    return f"samples.id {direction}" if wanted.sort == "id" else f"{key} {direction}, samples.id {direction}"


def alternatives(wanted: SampleFilter) -> Iterator[SampleFilter]:
    """Split a filter with several values of one column into filters of one value each.

    Each of those reads its rows in order from an index, where the whole would be sorted first.
    """
    for field in ("states", "evidence", "usability", "endpoints", "finish_reasons", "datasets"):
        values: tuple[str, ...] = getattr(wanted, field)
        if len(values) > 1:
            for value in dict.fromkeys(values):
                change: dict[str, Any] = {field: (value,)}
                yield replace(wanted, **change)
            return
    yield wanted
