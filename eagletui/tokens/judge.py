"""Labels and findings over many samples: what a single reply cannot tell about its endpoint and its format."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from eagletui.core.drift import EndpointCounts, Split, Streams, Verdict, judge, relabel
from eagletui.core.findings import (
    ODD_ENDS,
    WRONG_FORMAT,
    Finding,
    cut_anew_finding,
    endpoint_findings,
    format_differences,
    format_faults,
    leaving_endpoints,
    merged,
)
from eagletui.core.outputs import OutputFormat
from eagletui.core.prompt_counts import PromptCounts, prompt_finding
from eagletui.core.reply import Reply
from eagletui.tokens.answer import Rebuilt
from eagletui.tokens.argument_faults import CallingSample, argument_faults
from eagletui.tokens.fit import fit_checks, name_id
from eagletui.tokens.formats import format_for_model, shipped_format
from eagletui.tokens.load import Tokenizer
from eagletui.tokens.variants import Counted, name_fault

_KINDS: Mapping[str, str] = {
    "end": "end_token",
    "claimed": "end_token",
    "generation": "end_token",
    "reasoning": "missing_close",
}
_TEMPLATE_KINDS: Mapping[str, str] = {
    "template end": "end_token",
    "template opener": "missing_close",
    "template glue after": "glue",
    "template glue before": "glue",
}


_FEW_MISFITS = 0.02
"""Share of replies that a format has no place for up to which it is doubted for them alone."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One rebuilt answer with what its label depends on."""

    id: str
    endpoint: str
    """The provider behind the router; empty for a direct server."""
    model: str | None
    finish: str | None
    split: Split
    rebuilt: Rebuilt
    arguments: tuple[str, ...] = ()
    """Of its tool calls, as received."""
    prompt: PromptCounts | None = None
    """None where either is unknown."""

    @classmethod
    def of(
        cls,
        sample_id: str,
        endpoint: str,
        reply: Reply,
        rebuilt: Rebuilt,
        prompt_tokens: int | None = None,
        has_tools: bool = False,
        asked_model: str | None = None,
    ) -> "Sample":
        """Take what matters from a reply.

        Args:
            sample_id: names it in findings.
            endpoint: the one that answered; empty for a direct server.
            reply: as parsed.
            rebuilt: its ids.
            prompt_tokens: what the chat template writes; None where it was not rendered.
            has_tools: the request declares tools.
            asked_model: the one that the request names, for a reply that names none.
        """
        split = Split(reply.finish_reason or "unknown", bool(reply.reasoning), bool(reply.tool_calls))
        billed = reply.usage.prompt_tokens if reply.usage else None
        return cls(
            sample_id,
            endpoint,
            reply.model or asked_model,
            reply.finish_reason,
            split,
            rebuilt,
            tuple(call.arguments for call in reply.tool_calls),
            None if billed is None or prompt_tokens is None else PromptCounts(billed, prompt_tokens, has_tools),
        )


@dataclass(frozen=True, slots=True)
class Judgement:
    """All samples with their final labels."""

    samples: tuple[Sample, ...]
    findings: tuple[Finding, ...]
    verdicts: Mapping[str, Verdict]
    """By endpoint."""


def judge_samples(
    samples: Sequence[Sample],
    tokenizer: Tokenizer | None,
    fmt: OutputFormat,
    again: Callable[[int, int], Rebuilt],
    rewriting: Collection[str] = (),
) -> Judgement:
    """Judge endpoints and format over all samples and relabel every one.

    Args:
        samples: rebuilt without any offset.
        tokenizer: None at text level.
        fmt: the format in use.
        again: rebuilds a sample, given its position and its endpoint's offset.
        rewriting: endpoints whose loss profile says that they write tool arguments again.
    """
    verdicts = endpoint_verdicts(samples)
    judged = [_with_offset(sample, position, verdicts, again) for position, sample in enumerate(samples)]
    findings = fit_findings(tokenizer, fmt, len(samples), samples[0].id) if samples else []
    doubted: set[int] = set(range(len(samples)) if findings else ())
    if tokenizer is not None:
        findings += _end_findings(judged, tokenizer, fmt)
        findings += _constant_findings(judged, verdicts, tokenizer, fmt)
    misfits, other = _misfit_findings(judged), _other_format_findings(judged, fmt)
    calling = [
        CallingSample(position, sample.id, sample.endpoint, sample.finish, sample.arguments, sample.rebuilt)
        for position, sample in enumerate(judged)
        if sample.arguments and fmt.tools.codec == "json" and sample.endpoint not in rewriting
    ]
    if any(len(positions) > _FEW_MISFITS * len(judged) for _, positions in misfits):
        doubted.update(range(len(judged)))
    for finding, positions in (*misfits, *other, *argument_faults(calling, verdicts, tokenizer)):
        findings.append(finding)
        doubted.update(positions)
    findings += _stream_findings(samples, verdicts)
    findings += _prompt_findings(samples)
    relabelled = [
        _relabelled(sample, verdicts[sample.endpoint], position in doubted) for position, sample in enumerate(judged)
    ]
    findings += _leaving(relabelled, verdicts)
    return Judgement(tuple(relabelled), tuple(merged(findings)), verdicts)


def fit_findings(tokenizer: Tokenizer | None, fmt: OutputFormat, samples: int, example: str | None) -> list[Finding]:
    """Word what does not fit between a format and a tokenizer as findings over all samples.

    Args:
        tokenizer: None at text level: only what the format says of itself is looked at.
        fmt: the format in use.
        samples: answers that are read with it.
        example: one of them.
    """
    details = _own_faults(fmt)
    failed = [] if tokenizer is None else [check for check in fit_checks(tokenizer, fmt) if check.failed]
    strings = [check.name.partition(" ")[2] for check in failed if check.name.startswith("special ")]
    if strings:
        named = ", ".join(repr(string) for string in strings)
        details.append(("special", f"{named} {'is' if len(strings) == 1 else 'are'} no added token of this tokenizer"))
    details += [
        (_TEMPLATE_KINDS.get(check.name) or _KINDS.get(check.name.split()[0], "format"), check.detail)
        for check in failed
        if not check.name.startswith("special ")
    ]
    return [
        Finding(kind, f"Wrong format: {detail}", samples, samples, example, WRONG_FORMAT)
        for kind, detail in dict.fromkeys(details)
    ]


def _own_faults(fmt: OutputFormat) -> list[tuple[str, str]]:
    """What a format shows by itself: parts it leaves out, and a shipped format's name over other literals."""
    faults = format_faults(fmt)
    shipped = shipped_format(fmt.name)
    differences = format_differences(fmt, shipped) if shipped is not None else []
    if differences:
        faults.append(
            ("other_format", f"The format named {fmt.name} differs from the shipped one: {'; '.join(differences)}")
        )
    return faults


def endpoint_verdicts(samples: Sequence[Sample]) -> dict[str, Verdict]:
    """Judge every endpoint by the counts and the streams of its samples."""
    by_endpoint: dict[str, list[tuple[Split, int]]] = {}
    for sample in samples:
        observed = by_endpoint.setdefault(sample.endpoint, [])
        if sample.rebuilt.plain_excess is not None:
            observed.append((sample.split, sample.rebuilt.plain_excess))
    streams = _streams(samples)
    return {
        endpoint: judge(EndpointCounts.of(observed), streams[endpoint]) for endpoint, observed in by_endpoint.items()
    }


def _streams(samples: Sequence[Sample]) -> dict[str, Streams]:
    held = Counter(sample.endpoint for sample in samples if sample.rebuilt.stream_holds)
    refuted = Counter(sample.endpoint for sample in samples if sample.rebuilt.stream_holds is False)
    return {sample.endpoint: Streams(held[sample.endpoint], refuted[sample.endpoint]) for sample in samples}


def _stream_findings(samples: Sequence[Sample], verdicts: Mapping[str, Verdict]) -> list[Finding]:
    examples = {sample.endpoint: sample.id for sample in reversed(samples) if sample.rebuilt.stream_holds is False}
    streams = _streams(samples)
    return [
        cut_anew_finding(endpoint, streams[endpoint], examples.get(endpoint))
        for endpoint, verdict in verdicts.items()
        if verdict.cut_anew
    ]


def _prompt_findings(samples: Sequence[Sample]) -> list[Finding]:
    """Endpoints whose billed prompts are not those that the chat template writes."""
    counts: dict[str, Counter[PromptCounts]] = {}
    examples: dict[str, str] = {}
    for sample in samples:
        if sample.prompt is not None:
            counts.setdefault(sample.endpoint, Counter())[sample.prompt] += 1
            if sample.prompt.excess:
                examples.setdefault(sample.endpoint, sample.id)
    found = (prompt_finding(endpoint, counted, examples.get(endpoint)) for endpoint, counted in counts.items())
    return [finding for finding in found if finding is not None]


def _with_offset(
    sample: Sample, position: int, verdicts: Mapping[str, Verdict], again: Callable[[int, int], Rebuilt]
) -> Sample:
    offset = verdicts[sample.endpoint].offset(sample.finish)
    return replace(sample, rebuilt=again(position, offset)) if offset else sample


def _relabelled(sample: Sample, verdict: Verdict, doubted: bool) -> Sample:
    """Apply the endpoint's verdict; a doubted format never lets a count count."""
    rebuilt = sample.rebuilt
    evidence = relabel(rebuilt.evidence, rebuilt.excess, sample.finish, verdict)
    reason = rebuilt.reason
    if doubted and (evidence == "counted" or rebuilt.leans_on_format):
        evidence = "conflict"
    if evidence == "conflict" and rebuilt.evidence != "conflict":
        why = "a finding doubts the format" if doubted else "the endpoint's counts show an unexplained constant"
        if rebuilt.evidence == "streamed" and verdict.cut_anew:
            why = "the endpoint's streams come in other pieces than tokens"
            rebuilt = replace(rebuilt, excess=None)
        reason = f"{reason}; {why}" if reason else why[:1].upper() + why[1:]
    if evidence == "counted" and verdict.provisional:
        note = "fewer than 10 samples of this endpoint, so the label is provisional"
        reason = f"{reason}; {note}" if reason else note[:1].upper() + note[1:]
    usability = rebuilt.usability
    if evidence == "conflict" and usability == "usable":
        usability = "text_suspect" if doubted else "resegmented"
    return replace(sample, rebuilt=replace(rebuilt, evidence=evidence, reason=reason, usability=usability))


def _end_findings(samples: Sequence[Sample], tokenizer: Tokenizer, fmt: OutputFormat) -> list[Finding]:
    """Answers whose sampled end is known and is not the format's."""
    known = [sample for sample in samples if sample.rebuilt.ended and sample.rebuilt.sampled_end is not None]
    wrong = [sample for sample in known if "end_token" in sample.rebuilt.findings]
    if len(wrong) <= ODD_ENDS * len(known):
        return []
    sampled = wrong[0].rebuilt.sampled_end
    expected = fmt.end_token(wrong[0].finish)
    expected_id = tokenizer.vocabulary.specials.get(expected or "")
    has = "no token" if expected_id is None else name_id(tokenizer, expected_id)
    sentence = (
        f"Wrong end token: the format ends an answer with {expected!r}, {has}; "
        f"{len(wrong)} of {len(known)} answers end with {name_id(tokenizer, sampled or 0)}"
    )
    return [Finding("end_token", sentence, len(wrong), len(known), wrong[0].id, WRONG_FORMAT)]


def _constant_findings(
    samples: Sequence[Sample], verdicts: Mapping[str, Verdict], tokenizer: Tokenizer, fmt: OutputFormat
) -> list[Finding]:
    findings: list[Finding] = []
    for endpoint, verdict in verdicts.items():
        if verdict.trusted:
            continue
        mine = [s for s in samples if s.endpoint == endpoint and s.rebuilt.plain_excess is not None]
        example = next((sample.id for sample in mine if sample.rebuilt.plain_excess), None)
        counted = [
            Counted(sample.rebuilt.parts, sample.rebuilt.billed, sample.rebuilt.ended)
            for sample in mine
            if sample.rebuilt.billed is not None
        ]
        named = name_fault(counted, tokenizer, fmt.end_token("stop"))
        findings += endpoint_findings(endpoint, verdict, example, named)
    return findings


def _misfit_findings(samples: Sequence[Sample]) -> list[tuple[Finding, list[int]]]:
    """Replies that hold what the format has no place for."""
    found: list[tuple[Finding, list[int]]] = []
    misfits = [(p, s.split) for p, s in enumerate(samples) if "misfit" in s.rebuilt.findings]
    for part, affected, missing in (
        ("reasoning", [p for p, split in misfits if split.reasoning], "missing close tag, such as </think>"),
        ("tool calls", [p for p, split in misfits if not split.reasoning], "missing tool syntax"),
    ):
        if affected:
            sentence = (
                f"Wrong format: {len(affected)} of {len(samples)} replies hold {part}, "
                f"for which it has no place: {missing}"
            )
            kind = "missing_close" if part == "reasoning" else "misfit"
            finding = Finding(kind, sentence, len(affected), len(samples), samples[affected[0]].id, WRONG_FORMAT)
            found.append((finding, affected))
    return found


def _other_format_findings(samples: Sequence[Sample], fmt: OutputFormat) -> list[tuple[Finding, list[int]]]:
    """Replies of a model whose shipped format writes answers otherwise."""
    by_model: dict[str, list[int]] = {}
    for position, sample in enumerate(samples):
        if sample.model:
            by_model.setdefault(sample.model, []).append(position)
    found: list[tuple[Finding, list[int]]] = []
    for model, positions in by_model.items():
        shipped = format_for_model(model)
        differences = format_differences(fmt, shipped) if shipped is not None else []
        if differences:
            sentence = (
                f"Wrong format: {len(positions)} of {len(samples)} replies come from {model}, "
                f"and {fmt.name} differs: {'; '.join(differences)}"
            )
            finding = Finding(
                "other_format", sentence, len(positions), len(samples), samples[positions[0]].id, WRONG_FORMAT
            )
            found.append((finding, positions))
    return found


def _leaving(samples: Sequence[Sample], verdicts: Mapping[str, Verdict]) -> list[Finding]:
    """Compare endpoints by what the canonical encoding shows, which is fair to those that prove nothing."""
    off: dict[str, tuple[int, int]] = {}
    examples: dict[str, str] = {}
    for sample in samples:
        excess = sample.rebuilt.canonical_excess
        if excess is None:
            continue
        finish = sample.finish if sample.rebuilt.ended else None
        is_off = excess != verdicts[sample.endpoint].offset(finish)
        bad, examined = off.get(sample.endpoint, (0, 0))
        off[sample.endpoint] = (bad + is_off, examined + 1)
        if is_off:
            examples.setdefault(sample.endpoint, sample.id)
    return leaving_endpoints(off, examples)
