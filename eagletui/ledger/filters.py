"""Which samples to list, and in what order, as SQL."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple

Sort = Literal["id", "drift", "cost", "output", "latency"]
Preset = Literal["mismatched", "drifting", "waiting"]
Figure = Literal["spans", "drift", "cost", "latency", "output", "billed", "prompt", "attempts"]
Operator = Literal["<", "<=", "=", "!=", ">=", ">"]
Column = Literal["state", "dataset", "evidence", "usability", "endpoint", "finish_reason"]

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

_FIGURES: Final[dict[Figure, str]] = {
    "spans": "samples.spans",
    "drift": "abs(samples.drift_tokens)",
    "cost": "samples.cost_pico",
    "latency": "samples.latency_s",
    "output": "samples.output_tokens",
    "billed": "samples.billed_output_tokens",
    "prompt": "samples.prompt_tokens",
    "attempts": "samples.attempts",
}
_INDEXED: Final[tuple[Figure, ...]] = ("drift", "cost", "latency", "output")
_ABOVE_ZERO: Final[dict[Figure, str]] = {"spans": "samples.spans > 0", "drift": "samples.drift_tokens <> 0"}
"""Conditions of the indexes that hold the few rows of these figures; SQLite wants to read them word for word."""

FAILED: Final = ("failed", "refused")
"""States of samples that were given up."""

UNPROVED: Final = ("inferred", "counted", "canonical", "conflict")
"""Evidence that is not a proof."""


class Compared(NamedTuple):
    """A figure of a sample against a number; samples without the figure do not fit."""

    figure: Figure
    """`drift` is taken without its sign."""
    operator: Operator
    value: float
    """In the column's unit: picodollars, seconds, tokens."""


class Excluded(NamedTuple):
    """A value that a sample must not have; samples that have none fit."""

    column: Column
    value: str


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
    compared: tuple[Compared, ...] = ()
    excluded: tuple[Excluded, ...] = ()
    text: str = ""
    """Part of the key or of the prompt's preview, any case; this one reads every row."""
    sort: Sort = "id"
    reverse: bool = False
    """Largest first."""


class Where(NamedTuple):
    """A condition and its parameters."""

    sql: str
    parameters: tuple[str | int | float, ...]


class Term(NamedTuple):
    """One condition of a filter, and how SQLite may look for the rows that fit."""

    sql: str
    parameters: tuple[str | int | float, ...]
    reach: Literal["value", "range", "scan"] = "scan"
    """`value`: an index has the rows of this value by id; `range`: an index has them by their figure; `scan`: none."""

    @property
    def by_id(self) -> str:
        """The same condition, for which SQLite looks the rows up first, whatever their order."""
        return f"samples.id IN (SELECT id FROM samples WHERE {self.sql})"

    @property
    def unindexed(self) -> str:
        """The same condition, which SQLite then only checks on rows it found otherwise."""
        return self.sql.replace("samples.", "+samples.") if self.reach != "scan" else self.sql


def where(wanted: SampleFilter) -> Where:
    """Return the condition on `samples`, for reading every row that fits."""
    found = terms(wanted)
    parameters = tuple(parameter for term in found for parameter in term.parameters)
    return Where(" AND ".join(term.sql for term in found) or "1", parameters)


def where_first(wanted: SampleFilter, is_rare: Callable[[Term], bool]) -> Where:
    """Return the condition on `samples`, for reading the first rows in order.

    Rare rows are found by their index and sorted. Where nothing is rare, the order's own index is walked until enough
    rows fit: sorting most of a million rows to show a hundred takes ten times as long.

    Args:
        wanted: one value a column, see `alternatives`.
        is_rare: tells, for a term with an index, whether few rows fit.
    """
    found = terms(wanted, first=True)
    rare = next((term for term in found if term.reach != "scan" and is_rare(term)), None)
    leads = rare or next((term for term in found if term.reach == "value" and wanted.sort == "id"), None)
    parameters = tuple(parameter for term in found for parameter in term.parameters)
    written = [term.unindexed if term is not leads else term.by_id if term is rare else term.sql for term in found]
    return Where(" AND ".join(written) or "1", parameters)


def terms(wanted: SampleFilter, *, first: bool = False) -> list[Term]:
    """List the conditions of a filter.

    Args:
        wanted: the filter.
        first: look each text up row by row, which finds the first rows sooner and all of them later.
    """
    found: list[Term] = []
    for column, values in (
        ("state", wanted.states),
        ("dataset", wanted.datasets),
        ("evidence", wanted.evidence),
        ("usability", wanted.usability),
        ("endpoint", wanted.endpoints),
        ("finish_reason", wanted.finish_reasons),
    ):
        if len(values) == 1:
            found.append(Term(f"samples.{column} = ?", values, "value"))
        elif values:
            found.append(Term(f"samples.{column} IN ({', '.join('?' * len(values))})", values))
    if wanted.preset is not None:
        found.append(Term(_PRESETS[wanted.preset], (), "scan" if wanted.preset == "waiting" else "value"))
    for figure, operator, value in wanted.compared:
        compared = f"{_FIGURES[figure]} {operator} ?"
        if figure in _ABOVE_ZERO and operator in (">", ">=", "=") and (value > 0 or (operator == ">" and value == 0)):
            found.append(Term(f"{_ABOVE_ZERO[figure]} AND {compared}", (value,), "value"))
        else:
            found.append(Term(compared, (value,), "range" if figure in _INDEXED and operator != "!=" else "scan"))
    found += [Term(f"samples.{column} IS NOT ?", (value,)) for column, value in wanted.excluded]
    if wanted.text:
        pattern = like_pattern(wanted.text)
        in_prompt = "samples.prompt_id IN (SELECT id FROM prompts WHERE preview LIKE ? ESCAPE '\\')"
        if first:
            in_prompt = (
                "EXISTS (SELECT 1 FROM prompts WHERE prompts.id = samples.prompt_id AND preview LIKE ? ESCAPE '\\')"
            )
        found.append(Term(f"(samples.sample_key LIKE ? ESCAPE '\\' OR {in_prompt})", (pattern, pattern)))
    if wanted.sort != "id":
        found.append(Term(f"samples.{_SORT_COLUMNS[wanted.sort]} IS NOT NULL", ()))
    return found


def like_pattern(text: str) -> str:
    """Write a text as the pattern of LIKE that finds it anywhere, with a backslash as ESCAPE."""
    return "%" + text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"


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
