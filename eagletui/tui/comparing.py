"""Two runs side by side, as rows of figures with their difference.

Pure: two snapshots in, rows out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from eagletui.core.fidelity import EVIDENCE, USABILITY
from eagletui.ledger.snapshot import Snapshot
from eagletui.tui import figures, panels, standing

Number = Callable[[Snapshot], float | None]
Wording = Callable[[float | None], str]


@dataclass(frozen=True, slots=True)
class CompareRow:
    """One figure of both runs."""

    label: str
    left: str
    right: str
    difference: str = ""
    """Right minus left; '' where there is nothing to subtract."""
    is_head: bool = False
    """A heading."""


def _count(value: float | None) -> str:
    return figures.count(None if value is None else round(value))


def _signed_count(value: float | None) -> str:
    return figures.signed(None if value is None else round(value))


def _usd(value: float | None) -> str:
    return figures.usd(None if value is None else round(value))


def _signed_usd(value: float | None) -> str:
    if value is None:
        return figures.UNKNOWN
    sign = "+" if value > 0 else "-" if value < 0 else ""
    return f"{sign}{figures.usd(abs(round(value)))}"


def _signed_percent(value: float | None) -> str:
    return "0" if value == 0 else figures.signed_percent(value, 2)


def _signed_rate(value: float | None) -> str:
    return figures.UNKNOWN if value is None else f"{value:+,.1f}"


_MONEY: Final = (_usd, _signed_usd)
_COUNTS: Final = (_count, _signed_count)
_SHARES: Final[tuple[Wording, Wording]] = (lambda value: figures.percent(value, 2), _signed_percent)
_RATES: Final[tuple[Wording, Wording]] = (figures.rate, _signed_rate)


def _proved(snapshot: Snapshot) -> float | None:
    exact, total = panels.proved_level(snapshot)
    return figures.share(exact, total)


def _seconds(snapshot: Snapshot) -> float | None:
    run = snapshot.run
    return None if run.started_at is None else (run.finished_at or snapshot.at) - run.started_at


def _pace(snapshot: Snapshot) -> float | None:
    seconds = _seconds(snapshot)
    return None if not seconds else snapshot.tokens.output / seconds


def _drift_share(snapshot: Snapshot) -> float | None:
    return None if snapshot.drift.percent is None else snapshot.drift.percent / 100


_FIGURES: Final[tuple[tuple[str, tuple[tuple[str, Number, tuple[Wording, Wording]], ...]], ...]] = (
    (
        "Generation",
        (
            ("samples", lambda one: one.samples, _COUNTS),
            ("answered", lambda one: one.answered, _COUNTS),
            ("failed", lambda one: one.states["failed"] + one.states["refused"], _COUNTS),
            ("retried", lambda one: one.retries, _COUNTS),
            ("output tokens", lambda one: one.tokens.output, _COUNTS),
            ("out tok/s, average", _pace, _RATES),
            ("latency p50, s", lambda one: None if one.latency is None else one.latency.p50_s, _RATES),
            ("latency p95, s", lambda one: None if one.latency is None else one.latency.p95_s, _RATES),
        ),
    ),
    (
        "Money",
        (
            ("settled", lambda one: one.spend.books.settled_pico, _MONEY),
            ("wasted", lambda one: one.spend.wasted_pico, _MONEY),
            ("per 1M usable tok", lambda one: one.spend.per_million_usable_pico, _MONEY),
            ("stop-at", lambda one: one.spend.books.stop_at_pico, _MONEY),
            ("cap", lambda one: one.spend.books.cap_pico, _MONEY),
        ),
    ),
    (
        "Ids",
        (
            ("proved", _proved, _SHARES),
            ("drift, tokens", lambda one: one.drift.tokens, _COUNTS),
            ("drift, of billed", _drift_share, _SHARES),
            ("drifting samples", lambda one: one.drift.samples, _COUNTS),
            ("other ids", lambda one: one.resegmented, _COUNTS),
            ("open findings", lambda one: len(one.findings), _COUNTS),
        ),
    ),
    (
        "Features",
        (
            ("samples", lambda one: one.extract.samples, _COUNTS),
            ("rows", lambda one: one.extract.rows, _COUNTS),
        ),
    ),
)


def compare(left: Snapshot, right: Snapshot, now: float) -> list[CompareRow]:
    """Put two runs side by side."""
    rows = [
        CompareRow("Run", left.run.name, right.run.name, "right - left", is_head=True),
        CompareRow("model", left.run.model_id, right.run.model_id, _same(left.run.model_id, right.run.model_id)),
        CompareRow("format", left.run.format, right.run.format, _same(left.run.format, right.run.format)),
        CompareRow(
            "tokenizer",
            (left.run.tokenizer_hash or figures.UNKNOWN)[:12],
            (right.run.tokenizer_hash or figures.UNKNOWN)[:12],
            _same(left.run.tokenizer_hash, right.run.tokenizer_hash),
        ),
        CompareRow("state", _state(left), _state(right)),
        CompareRow("time", standing.elapsed(left, now), standing.elapsed(right, now)),
    ]
    for title, lines in _FIGURES:
        rows.append(CompareRow(title, "", "", is_head=True))
        for label, number, (word, signed) in lines:
            a, b = number(left), number(right)
            rows.append(CompareRow(label, word(a), word(b), signed(None if a is None or b is None else b - a)))
        if title == "Ids":
            rows += _named(left.evidence, right.evidence, EVIDENCE)
            rows += _named(left.usability, right.usability, USABILITY)
    rows.append(CompareRow("Output tokens by endpoint", "", "", is_head=True))
    a_tokens = {endpoint.tag: endpoint.output for endpoint in left.endpoints}
    b_tokens = {endpoint.tag: endpoint.output for endpoint in right.endpoints}
    rows += _named(a_tokens, b_tokens, tuple(sorted(a_tokens.keys() | b_tokens.keys())))
    return rows


def _named(left: Mapping[str, int], right: Mapping[str, int], names: tuple[str, ...]) -> list[CompareRow]:
    return [
        CompareRow(
            name,
            figures.count(left.get(name, 0)),
            figures.count(right.get(name, 0)),
            figures.signed(right.get(name, 0) - left.get(name, 0)),
        )
        for name in names
        if left.get(name) or right.get(name)
    ]


def _same(left: str | None, right: str | None) -> str:
    return "same" if left == right else "differs"


def _state(snapshot: Snapshot) -> str:
    if standing.is_dead(snapshot):
        return "no engine"
    reason = snapshot.run.pause_reason
    return f"{snapshot.run.state}{f' ({reason})' if reason else ''}"
