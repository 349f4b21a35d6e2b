"""Tool arguments that a server parsed and wrote again: shown by proved ids, by counts, or by how they are spelled."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from eagletui.core.argument_style import RESPELLINGS, Histogram, Respelling, respelled
from eagletui.core.drift import LEAST_SAMPLES, Verdict
from eagletui.core.findings import Finding, histogram_findings, proved_arguments_finding, rewritten_finding
from eagletui.core.outputs import Part, Text
from eagletui.tokens.answer import Rebuilt
from eagletui.tokens.load import Tokenizer
from eagletui.tokens.parts import encode_parts, remembering

_SYSTEMATIC: Final = 0.2
"""Share of proved answers with calls from which rewriting is no accident."""

_AGREE: Final = 0.7
"""Share of counts that another spelling must explain, and by `_BETTER` more than the arguments as they came."""
_BETTER: Final = 0.3

_MOST_SAMPLES: Final = 60
"""Samples that are counted again; a server that rewrites does it always."""


class CallingSample(NamedTuple):
    """One answer with tool calls."""

    position: int
    """In the caller's list."""
    id: str
    endpoint: str
    finish: str | None
    arguments: tuple[str, ...]
    """Of each call, as received."""
    rebuilt: Rebuilt


def argument_faults(
    samples: Sequence[CallingSample], verdicts: Mapping[str, Verdict], tokenizer: Tokenizer | None
) -> Iterator[tuple[Finding, list[int]]]:
    """Find endpoints that write tool arguments again, with the positions of the samples whose ids that doubts.

    Args:
        samples: answers with calls, in a format that writes JSON, of endpoints whose profile says nothing of it.
        verdicts: by endpoint.
        tokenizer: None at text level.
    """
    by_endpoint: dict[str, list[CallingSample]] = {}
    for sample in samples:
        by_endpoint.setdefault(sample.endpoint, []).append(sample)
    named: set[str] = set()
    for endpoint, mine in by_endpoint.items():
        finding = _by_proof(endpoint, mine)
        if finding is None and tokenizer is not None:
            finding = _by_count(endpoint, mine, verdicts.get(endpoint, Verdict()), tokenizer)
        if finding is not None:
            named.add(endpoint)
            yield finding, [sample.position for sample in mine]
    spellings = {
        endpoint: Histogram.of(arguments for sample in mine for arguments in sample.arguments)
        for endpoint, mine in by_endpoint.items()
    }
    for finding in histogram_findings(spellings, {endpoint: mine[0].id for endpoint, mine in by_endpoint.items()}):
        if finding.endpoint not in named:
            yield finding, [sample.position for sample in by_endpoint[finding.endpoint]]


def _by_proof(endpoint: str, samples: Sequence[CallingSample]) -> Finding | None:
    """Proved ids show what the model wrote."""
    proved = [sample for sample in samples if sample.rebuilt.arguments_kept is not None]
    rewritten = [sample for sample in proved if not sample.rebuilt.arguments_kept]
    if len(rewritten) <= _SYSTEMATIC * len(proved):
        return None
    return proved_arguments_finding(endpoint, len(rewritten), len(proved), rewritten[0].id)


def _by_count(
    endpoint: str, samples: Sequence[CallingSample], verdict: Verdict, tokenizer: Tokenizer
) -> Finding | None:
    """Another spelling gives the billed counts that the arguments as they came do not give."""
    counted = [sample for sample in samples if sample.rebuilt.plain_excess is not None and sample.rebuilt.parts]
    counted = counted[:_MOST_SAMPLES]
    off = [sample for sample in counted if sample.rebuilt.plain_excess != verdict.offset(sample.finish)]
    if len(counted) < LEAST_SAMPLES or 2 * len(off) < len(counted):
        return None
    agreed = len(counted) - len(off)
    best, spelling = max(
        ((_agreeing(counted, how, verdict, tokenizer), how) for how in RESPELLINGS), key=lambda t: t[0]
    )
    if best < _AGREE * len(counted) or best - agreed < _BETTER * len(counted):
        return None
    words = (
        f"{len(off)} of {len(counted)} answers with calls are billed otherwise than counted, "
        f"and {best} agree once the arguments are {spelling}"
    )
    return rewritten_finding(endpoint, words, len(off), len(counted), off[0].id)


def _agreeing(samples: Sequence[CallingSample], how: Respelling, verdict: Verdict, tokenizer: Tokenizer) -> int:
    encode = remembering(tokenizer.encode)
    return sum(
        len(encode_parts(_respelled_parts(sample, how), tokenizer, encode)[0]) + verdict.offset(sample.finish)
        == sample.rebuilt.billed
        for sample in samples
    )


def _respelled_parts(sample: CallingSample, how: Respelling) -> list[Part]:
    parts: list[Part] = []
    for part in sample.rebuilt.parts:
        if isinstance(part, Text) and part.field == "tool_call":
            text = part.text
            for arguments in sample.arguments:
                text = text.replace(arguments, respelled(arguments, how), 1)
            part = Text(text, part.field)
        parts.append(part)
    return parts
