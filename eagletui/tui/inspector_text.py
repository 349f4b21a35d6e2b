"""What the inspector says around the tokens: where the sample stands, why a span differs, what the ids are worth.

Pure: a sample and its inspection in, lines of text out.
"""

from textwrap import wrap
from typing import Final

from textual.content import Content

from eagletui.core.vocabulary import Vocabulary
from eagletui.ledger.reader_samples import SampleDetail
from eagletui.tui import figures
from eagletui.tui.evidence_worth import worth
from eagletui.tui.inspection import Inspection, tail_verdict
from eagletui.tui.lane_lines import View
from eagletui.tui.sample_text import attempt_line
from eagletui.tui.span_table import LABEL_CELLS, span_table
from eagletui.tui.widgets.safe_text import Piece, styled

_LEGEND: Final = "· space  ⏎ newline  → tab  <E2> raw byte  [ ] differs"
_ASCII_LEGEND: Final = ". space  \\n newline  -> tab  <E2> raw byte  [ ] differs"
_ASCII_MARKS: Final = str.maketrans({"·": ".", "⏎": "\\n", "→": "->"})
_RAW_LINES: Final = 200
_KINDS: Final = {"~": "same bytes, other ids", "!": "different text", "+": "only {a}", "-": "only canonical"}


def legend(view: View, *, ascii_: bool) -> str:
    """Say what the marks in the token stream mean."""
    if view != "text":
        return "[ ] differs"
    return _ASCII_LEGEND if ascii_ else _LEGEND


def crumbs(
    detail: SampleDetail | None, key: str, place: tuple[int, int], spans: tuple[int, int], *, wide: bool
) -> list[Piece]:
    """Say which sample is shown, where it stands in its list, and how it was billed.

    Args:
        detail: the sample; None where there is none.
        key: which one was asked for.
        place: its index in the list it was opened from, and how long that is.
        spans: the current span, counted from 0, and how many there are.
        wide: the terminal has 100 columns.
    """
    gap = "   " if wide else "  "
    at, listed = place
    span, found = spans
    pieces: list[Piece] = [("2 Samples > ", "$quiet")] if wide else []
    pieces.append((key, "bold"))
    if listed > 1:
        pieces.append((f" {at + 1:,}/{listed:,}", "$quiet"))
    if detail is None:
        return [*pieces, "   no such sample"]
    row = detail.row
    if found:
        pieces.append((f"{gap}span {span + 1:,}/{found:,}", "$proved"))
    pieces.append(
        f"{gap}billed {figures.count(row.billed_output_tokens)}{gap}counted {figures.count(row.output_tokens)}"
        f"{gap}drift {figures.signed(row.drift_tokens)}"
    )
    if row.evidence is not None:
        pieces.append(f"{gap}{row.evidence}, {row.usability}")
    return pieces


def why_no_ids(detail: SampleDetail | None, key: str, *, has_vocabulary: bool, ascii_: bool) -> list[Content]:
    """Say why there are no tokens to look at."""
    if detail is None:
        return [styled(f"There is no sample {key}.", ascii_=ascii_)]
    row = detail.row
    lines: list[Content] = []
    if detail.tokens is not None and not has_vocabulary:
        lines.append(styled(("The run folder has no vocabulary, so ids cannot be shown as text.", "$warning")))
    elif detail.tokens is not None:
        lines.append(styled("This format is used at text level: there are no ids. The raw text follows."))
        lines += [styled(line, ascii_=ascii_) for line in detail.tokens.raw.splitlines()[:_RAW_LINES]]
    else:
        lines.append(styled(f"No ids: the sample is {row.state.replace('_', ' ')}."))
    if row.failure_kind:
        lines.append(styled((f"{row.failure_kind}: {row.failure_detail or ''}", "$error"), ascii_=ascii_))
    lines += [styled(attempt_line(attempt), ascii_=ascii_) for attempt in detail.attempts]
    return lines


def kinds_lines(inspection: Inspection) -> list[str]:
    """Say what the two sides are, and count the spans of each kind."""
    if not inspection.is_compared:
        return []
    name = inspection.a_name
    what = {"proved": "what the model sampled", "inferred": "the likeliest cut"}.get(name, "kept, not proved")
    found: list[str] = [lane.kind for lane in inspection.spans]
    lines = [f"{name}: {what}", "canonical: its text encoded again"]
    return lines + [f"{kind} {found.count(kind):>3,}  {words.format(a=name)}" for kind, words in _KINDS.items()]


def span_title(inspection: Inspection, index: int, part: str) -> str:
    """Name a span with its place.

    Args:
        inspection: the sample's.
        index: which span, counted from 0.
        part: the text of the reply it lies in; '' where the reply does not have it.
    """
    inside = f", in {part}" if part else ""
    return f"Span {index + 1:,} of {len(inspection.spans):,}{inside}: {inspection.bytes_of(index)}"


def span_lines(
    inspection: Inspection,
    index: int,
    detail: SampleDetail,
    vocabulary: Vocabulary,
    room: int,
    *,
    tall: bool,
    ascii_: bool,
) -> list[Content]:
    """Explain a span: the cause in a sentence, both sides byte by byte, and what the evidence is worth."""
    tokens = detail.tokens
    assert tokens is not None
    difference, name = inspection.differences[index], inspection.a_name
    lane = difference.lane
    said = difference.cause(vocabulary, name)
    lines = hanging("cause", f"{lane.kind} {said.translate(_ASCII_MARKS) if ascii_ else said}", room, ascii_=ascii_)
    lines += [styled(*line, ascii_=ascii_) for line in span_table(lane, vocabulary, room, name=name, ascii_=ascii_)]
    if tall:
        lines += hanging("evidence", worth(tokens.evidence), room, ascii_=ascii_)
    return lines


def evidence_lines(inspection: Inspection, detail: SampleDetail, *, ascii_: bool) -> list[Content]:
    """Say what ids without a span are, and what they are worth."""
    tokens = detail.tokens
    assert tokens is not None
    lines = [styled(inspection.note), styled(worth(tokens.evidence))]
    if tokens.reason:
        lines.append(styled((tokens.reason, "$quiet"), ascii_=ascii_))
    return lines


def end_line(
    inspection: Inspection, detail: SampleDetail, vocabulary: Vocabulary, expected: str | None, *, ascii_: bool
) -> tuple[Content, bool]:
    """Say how the answer ends, and whether that is as it should be."""
    sentence, good = tail_verdict(inspection.ids, vocabulary, expected, detail.row.finish_reason)
    return styled((sentence, "" if good else "bold $error"), ascii_=ascii_), good


def hanging(label: str, sentence: str, room: int, *, ascii_: bool) -> list[Content]:
    """Write a sentence beside its label, its further lines below its first."""
    parts = wrap(sentence, max(20, room - LABEL_CELLS), break_on_hyphens=False)
    return [
        styled(((label if number == 0 else "").ljust(LABEL_CELLS), "$quiet"), part, ascii_=ascii_)
        for number, part in enumerate(parts)
    ]
