"""Compare recorded ids with what text alone would give: the job behind `eagletui validate`."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from eagletui.core.findings import ODD_ENDS, WRONG_FORMAT, Finding
from eagletui.core.json_objects import finding_object, span_object
from eagletui.core.outputs import OutputFormat, fitted
from eagletui.core.text import visible
from eagletui.core.tokdiff import Span, align
from eagletui.recorded.ids import RecordedIds
from eagletui.recorded.lines import Progress
from eagletui.tokens.fit import name_id, think_pair
from eagletui.tokens.judge import fit_findings
from eagletui.tokens.load import Tokenizer

_CONTEXT_BYTES = 24

_ODD_ENDS_UNTOLD = 0.5
"""The same share as `ODD_ENDS` where no finish reason tells cut answers from ended ones."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One sample's recorded ids beside the rebuilt ones."""

    recorded: RecordedIds
    rebuilt: tuple[int, ...]
    spans: tuple[Span, ...]
    """`a` is recorded, `b` rebuilt."""

    @property
    def mismatched(self) -> bool:
        """Tell whether recorded and rebuilt ids differ."""
        return bool(self.spans)


def compare(recorded: RecordedIds, tokenizer: Tokenizer) -> Compared:
    """Decode span by span between special tokens, encode again as if only text had come, and compare.

    A tail that is no whole character cannot come back from text; it is kept as recorded.
    """
    vocabulary = tokenizer.vocabulary
    rebuilt: list[int] = []
    run: list[int] = []
    for token_id in (*recorded.output_ids, None):
        if token_id is not None and not vocabulary.is_special(token_id):
            run.append(token_id)
            continue
        rebuilt += _again(run, tokenizer)
        run = []
        if token_id is not None:
            rebuilt.append(token_id)
    spans = align(recorded.output_ids, rebuilt, vocabulary) if tuple(rebuilt) != recorded.output_ids else ()
    return Compared(recorded, tuple(rebuilt), spans)


def validate_file(
    records: Sequence[RecordedIds], tokenizer: Tokenizer, fmt: OutputFormat, progress: Progress | None = None
) -> tuple[list[Compared], dict[str, Any]]:
    """Compare all lines.

    Returns:
        The comparisons in order, and the summary of the JSON contract.
    """
    compared: list[Compared] = []
    for done, recorded in enumerate(records, 1):
        compared.append(compare(recorded, tokenizer))
        if progress is not None:
            progress(done, len(records))
    findings = _findings(compared, tokenizer, fmt)
    return compared, _summary(compared, findings, tokenizer)


def _again(run: Sequence[int], tokenizer: Tokenizer) -> list[int]:
    """The canonical ids of a run's text; bytes that are no text keep the recorded ids."""
    data = tokenizer.vocabulary.decode(run)
    for kept in range(len(run), max(-1, len(run) - 4), -1):
        head = tokenizer.vocabulary.decode(run[:kept]) if kept < len(run) else data
        try:
            return [*tokenizer.encode(head.decode()), *run[kept:]]
        except UnicodeDecodeError:
            continue
    return list(run)


def _findings(compared: Sequence[Compared], tokenizer: Tokenizer, fmt: OutputFormat) -> list[Finding]:
    fmt = fitted(fmt, tokenizer.vocabulary.specials)
    return [
        *fit_findings(tokenizer, fmt, len(compared), compared[0].recorded.id),
        *_end_findings(compared, tokenizer, fmt),
        *_close_findings(compared, tokenizer, fmt),
    ]


def _end_findings(compared: Sequence[Compared], tokenizer: Tokenizer, fmt: OutputFormat) -> list[Finding]:
    """Answers that do not end with the format's end token."""
    expected = {c.recorded.id: fmt.end_token(c.recorded.finish_reason or "stop") for c in compared}
    ended = [c for c in compared if expected[c.recorded.id] is not None]
    specials = tokenizer.vocabulary.specials
    wrong = [c for c in ended if c.recorded.output_ids[-1:] != (specials.get(expected[c.recorded.id] or ""),)]
    told = any(c.recorded.finish_reason for c in compared)
    if len(wrong) <= (ODD_ENDS if told else _ODD_ENDS_UNTOLD) * len(ended):
        return []
    first = wrong[0].recorded
    last = name_id(tokenizer, first.output_ids[-1]) if first.output_ids else "nothing"
    literal = expected[first.id] or ""
    sentence = (
        f"Wrong end token: {len(wrong)} of {len(ended)} answers do not end with {literal!r} "
        f"({specials.get(literal, 'no token')}); {first.id} ends with {last}"
    )
    action = "Look at the tail of the recorded ids: the stop token was lost, or the format names another one."
    return [Finding("end_token", sentence, len(wrong), len(ended), first.id, action)]


def _close_findings(compared: Sequence[Compared], tokenizer: Tokenizer, fmt: OutputFormat) -> list[Finding]:
    """Reasoning that is never closed, or that the format does not know."""
    vocabulary = tokenizer.vocabulary
    pair = think_pair(tokenizer)
    if pair is None:
        return []
    close_id = vocabulary.special_id(pair[1])
    whole = [c for c in compared if c.recorded.finish_reason != "length"]
    holding = [c for c in whole if close_id in c.recorded.output_ids]
    if fmt.reasoning.opened_by == "prompt" and len(holding) < len(whole) / 2:
        without = next(c for c in whole if close_id not in c.recorded.output_ids)
        missing = len(whole) - len(holding)
        sentence = f"Missing {pair[1]}: {missing} of {len(whole)} answers never close the reasoning ({close_id})"
        return [Finding("missing_close", sentence, missing, len(whole), without.recorded.id, WRONG_FORMAT)]
    if fmt.reasoning.opened_by == "none" and holding:
        sentence = (
            f"Wrong format: {len(holding)} of {len(compared)} answers hold {pair[1]} ({close_id}), "
            f"and {fmt.name} has no reasoning part: missing {pair[1]}"
        )
        return [Finding("missing_close", sentence, len(holding), len(compared), holding[0].recorded.id, WRONG_FORMAT)]
    return []


def _summary(compared: Sequence[Compared], findings: Sequence[Finding], tokenizer: Tokenizer) -> dict[str, Any]:
    mismatched = [c for c in compared if c.mismatched]
    kinds = Counter(span.kind for c in mismatched for span in c.spans)
    datasets: dict[str, dict[str, int]] = {}
    for c in compared:
        row = datasets.setdefault(c.recorded.dataset, {"samples": 0, "mismatched": 0})
        row["samples"] += 1
        row["mismatched"] += c.mismatched
    tokens = sum(len(c.recorded.output_ids) for c in compared)
    touched = sum(len(span.a_ids) for c in mismatched for span in c.spans)
    return {
        "samples": len(compared),
        "mismatched": len(mismatched),
        "by_dataset": datasets,
        "by_kind": dict(kinds),
        "tokens": tokens,
        "tokens_differing": touched,
        "mismatches": [
            {
                "id": c.recorded.id,
                "dataset": c.recorded.dataset,
                "spans": [
                    {**span_object(span), "a": _pieces(span.a_ids, tokenizer), "b": _pieces(span.b_ids, tokenizer)}
                    for span in c.spans
                ],
            }
            for c in mismatched
        ],
        "findings": [finding_object(finding) for finding in findings],
        "accepted": not findings and set(kinds) <= {"~"},
        "verdict": _verdict(len(compared), mismatched, set(kinds), findings),
    }


def _verdict(samples: int, mismatched: Sequence[Compared], kinds: Collection[str], findings: Sequence[Finding]) -> str:
    """One sentence a person can sign."""
    if findings:
        return f"Not to be accepted: {findings[0].sentence}"
    if not mismatched:
        return f"All {samples} samples come back exactly from their text"
    if set(kinds) == {"~"}:
        return (
            f"{len(mismatched)} of {samples} samples differ, all same-bytes resegmentations: "
            "the text is the model's, its cut into tokens is not canonical"
        )
    other = sum(any(span.kind != "~" for span in c.spans) for c in mismatched)
    return f"{len(mismatched)} of {samples} samples differ, {other} of them in their text"


def _pieces(ids: Sequence[int], tokenizer: Tokenizer) -> list[str]:
    return [visible(tokenizer.vocabulary.bytes_of(token_id)) for token_id in ids]


def context(compared: Compared, span: Span, tokenizer: Tokenizer) -> str:
    """The text around a span, for people."""
    raw = tokenizer.vocabulary.decode(compared.recorded.output_ids)
    low, high = max(0, span.offset - _CONTEXT_BYTES), span.offset + span.length + _CONTEXT_BYTES
    return visible(raw[low:high].decode("utf-8", "replace"))
