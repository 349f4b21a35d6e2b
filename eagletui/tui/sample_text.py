"""One sample in words: a line, a preview, a document."""

from textual.content import Content

from eagletui.ledger.reader_samples import SampleDetail
from eagletui.ledger.rows import AttemptRow, SampleRow
from eagletui.tui import figures
from eagletui.tui.widgets.safe_text import Piece, styled

_PROMPT_CHARACTERS = 200
_ANSWER_CHARACTERS = 1_000
"""What a panel of 40 columns has room for; wrapping more would delay every key."""


def row_lines(row: SampleRow, *, ascii_: bool = False) -> list[Content]:
    """Sum a sample up in two lines at most: what its ids are worth, and its figures."""
    name: Piece = (row.sample_key, "bold")
    if row.failure_kind:
        said = (f" {row.state}: {row.failure_kind} {row.failure_detail or ''}", "$error")
        return [styled(name, said, ascii_=ascii_)]
    if row.evidence is None:
        said_so_far = f" {row.state.replace('_', ' ')}, {figures.plural(row.attempts, 'attempt')}"
        return [styled(name, said_so_far, ascii_=ascii_)]
    spans = figures.plural(row.spans or 0, "span")
    counts = f"billed {figures.count(row.billed_output_tokens)} counted {figures.count(row.output_tokens)}"
    drift, finish = figures.signed(row.drift_tokens), row.finish_reason or "finish unknown"
    return [
        styled(name, f" {row.evidence}, {row.usability}, {spans}", ascii_=ascii_),
        styled(f"{counts} (drift {drift}), {finish}, {figures.latency(row.latency_s)}", ascii_=ascii_),
    ]


def row_line(row: SampleRow) -> str:
    """Sum a sample up in one line, for a clipboard or a file."""
    return "; ".join(line.plain for line in row_lines(row))


def preview_lines(detail: SampleDetail, *, ascii_: bool = False) -> list[Content]:
    """Describe a sample for the panel beside the list."""
    row, tokens = detail.row, detail.tokens
    facts: list[tuple[str, str]] = [
        ("state", row.state.replace("_", " ") + (", extracted" if row.extracted else "")),
        ("attempts", figures.count(row.attempts)),
        ("data set", row.dataset),
        ("endpoint", row.endpoint or figures.UNKNOWN),
        ("finish", f"{row.finish_reason or 'unknown'}   {figures.latency(row.latency_s)}"),
        ("billed", f"in {figures.count(row.billed_prompt_tokens)}  out {figures.count(row.billed_output_tokens)} tok"),
        ("counted", f"in {figures.count(row.prompt_tokens)}  out {figures.count(row.output_tokens)} tok"),
        ("drift", f"{figures.signed(row.drift_tokens)} tok   offset {figures.signed(row.offset_tokens)}"),
        ("spans", f"{figures.count(row.spans)}"),
        ("evidence", row.evidence or figures.UNKNOWN),
        ("usability", row.usability or figures.UNKNOWN),
        ("cost", figures.usd(row.cost_pico)),
    ]
    lines = [styled((row.sample_key, "bold"), ascii_=ascii_)]
    lines += [styled((f"{label:<10}", "$quiet"), value, ascii_=ascii_) for label, value in facts]
    if tokens is not None and tokens.reason:
        lines.append(styled((tokens.reason, "$warning"), ascii_=ascii_))
    if row.failure_kind:
        lines.append(styled((f"{row.failure_kind}: {row.failure_detail or ''}", "$error"), ascii_=ascii_))
    lines += [styled(""), styled(("prompt", "$quiet"))]
    last = detail.prompt.messages[-1].content or "" if detail.prompt.messages else ""
    lines += _block(last, _PROMPT_CHARACTERS, ascii_)
    if tokens is not None:
        lines += [styled(""), styled(("answer", "$quiet"))]
        lines += _block(tokens.raw, _ANSWER_CHARACTERS, ascii_)
    return lines


def attempt_line(attempt: AttemptRow) -> str:
    """Sum an attempt up."""
    cost = figures.usd(attempt.cost_pico) if attempt.cost_pico is not None else f"hold {figures.usd(attempt.hold_pico)}"
    status = f" HTTP {attempt.http_status}" if attempt.http_status is not None else ""
    error = f" {attempt.error_kind}: {attempt.error_detail or ''}" if attempt.error_kind else ""
    return f"attempt {attempt.number} {attempt.endpoint} {attempt.state} {cost}{status}{error}"


def sample_document(detail: SampleDetail) -> str:
    """Write everything about a sample, for a file."""
    row, tokens = detail.row, detail.tokens
    parts = [row_line(row), ""]
    parts += [attempt_line(attempt) for attempt in detail.attempts]
    for message in detail.prompt.messages:
        parts += ["", f"[{message.role}]", message.content or ""]
    if tokens is not None:
        parts += ["", "[raw text]", tokens.raw, "", f"evidence: {tokens.evidence}   {tokens.reason}"]
        parts += ["ids: " + " ".join(map(str, tokens.output_ids or ()))]
        parts += [
            f"span at byte {span.offset}, {span.length} bytes, {span.kind} a={list(span.a_ids)} b={list(span.b_ids)}"
            for span in tokens.spans
        ]
    if detail.reply is not None:
        parts += ["", f"[reply, {detail.reply.encoding}]", detail.reply.body.decode("utf-8", "replace")]
    return "\n".join(parts) + "\n"


def _block(text: str, most: int, ascii_: bool) -> list[Content]:
    found = [styled(line, ascii_=ascii_) for line in text[:most].splitlines()]
    if len(text) > most:
        found.append(styled((f"({len(text):,} characters in all)", "$quiet")))
    return found
