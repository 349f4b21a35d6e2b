"""Verdicts in words: what one rests on, what accepting costs, and who signed.

Pure: values in, pieces of text out.
"""

from collections.abc import Sequence
from typing import Final

from eagletui.core.fidelity import PROVED
from eagletui.core.verdicts import WORDS, Basis
from eagletui.ledger.rows import VerdictRow
from eagletui.ledger.snapshot import DatasetFigures
from eagletui.tui import figures
from eagletui.tui.widgets.safe_text import Piece

Line = tuple[Piece, ...]

SPAN_WORDS: Final = {
    "~": "same bytes, other ids",
    "!": "other text",
    "+": "only in the proved ids",
    "-": "only in the rebuilt ids",
}


def proved_of(dataset: DatasetFigures) -> int:
    """Samples of a data set with proved ids."""
    return sum(dataset.evidence.get(kind, 0) for kind in PROVED)


def basis_lines(found: Basis) -> list[Line]:
    """Say what a verdict rests on."""
    at_least = "at least " if found.is_lower_bound else ""
    lines: list[Line] = [
        _pair(
            "samples",
            (figures.count(found.samples), "bold"),
            f": {figures.count(found.proved)} proved, {figures.count(found.counted)} whose count agrees",
        ),
        _pair(
            "mismatched",
            (figures.count(found.mismatched), "bold $warning" if found.mismatched else "bold"),
            f"   {found.samples_percent:.2f} % of the samples",
        ),
    ]
    for kind, number in found.by_kind.items():
        lines.append(_pair("", (f"{number:>6,} ", "bold"), WORDS[kind]))
    if found.spans:
        spans = "   ".join(f"{kind} {number:,} {SPAN_WORDS.get(kind, '')}" for kind, number in found.spans.items())
        lines.append(_pair("spans", spans))
    lines.append(
        _pair(
            "tokens",
            f"{at_least}{figures.count(found.tokens_differ)} of {figures.count(found.output_tokens)} output tokens"
            f" differ ({found.tokens_percent:.3f} %)",
        )
    )
    return lines


def signature_lines(verdicts: Sequence[VerdictRow], dataset: str) -> list[Line]:
    """List who signed for a data set, the latest first."""
    own = [verdict for verdict in reversed(verdicts) if verdict.dataset == dataset]
    lines: list[Line] = []
    for verdict in own:
        lines.append(
            _pair(
                "signed" if not lines else "",
                standing(verdict),
                f" by {verdict.accepted_by}, {figures.date_time(verdict.at)},"
                f" at {verdict.mismatched:,} of {verdict.samples:,}: {verdict.rule}",
            )
        )
    return lines or [_pair("signed", ("by nobody yet", "$quiet"))]


def standing(verdict: VerdictRow | None) -> Piece:
    """Say in a word how a data set stands."""
    if verdict is None:
        return ("unsigned", "$quiet")
    return ("refused", "bold $error") if verdict.is_refused else ("accepted", "bold $success")


def _pair(label: str, *pieces: Piece) -> Line:
    return ((f"{label:<11}", "$quiet"), *pieces)
