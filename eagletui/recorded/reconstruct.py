"""Rebuild ids over a file of recorded API replies: the job behind `eagletui reconstruct`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eagletui.core.errors import FormatError
from eagletui.core.fidelity import EVIDENCE, same_up_to_last_whole_character
from eagletui.core.findings import Finding
from eagletui.core.json_objects import finding_object, span_object
from eagletui.core.outputs import OutputFormat, fitted
from eagletui.core.tokdiff import align
from eagletui.recorded.lines import Progress
from eagletui.recorded.replies import Recorded
from eagletui.tokens.answer import Rebuilt, rebuild
from eagletui.tokens.formats import asked_kwargs
from eagletui.tokens.judge import Judgement, Sample, judge_samples
from eagletui.tokens.live_check import DIFFERENCE, EVERY, checked
from eagletui.tokens.load import Tokenizer
from eagletui.tokens.parts import measure_with
from eagletui.tokens.profiles import Observed, ProfileChoice, settle_profile
from eagletui.tokens.prompt import render_prompt


@dataclass(frozen=True, slots=True)
class Job:
    """What every line is rebuilt with."""

    tokenizer: Tokenizer | None
    fmt: OutputFormat
    profiles: Mapping[str, ProfileChoice]
    """What each endpoint's server strips, and why that is believed."""
    notes: tuple[str, ...] = ()
    """What was found while preparing, one sentence each."""

    def rebuild(self, recorded: Recorded, offset: int | None = None) -> Rebuilt:
        """Rebuild one line under its endpoint's offset."""
        return rebuild(
            recorded.reply,
            self.tokenizer,
            self.fmt,
            self.profiles[recorded.reply.endpoint or ""].profile,
            max_tokens=recorded.max_tokens,
            offset=offset,
            prompt=recorded.prompt,
            thinking=recorded.thinking(self.fmt),
            stop_strings=recorded.stop_strings,
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """All lines with their labels, and what they show together."""

    lines: tuple[dict[str, Any], ...]
    """Output objects, in order."""
    summary: dict[str, Any]
    findings: tuple[Finding, ...]
    rebuilt: tuple[Rebuilt, ...]
    """What the lines were made of, in order."""
    prompt_ids: tuple[tuple[int, ...] | None, ...]
    """Of each line; None where they are not known."""


def prepare(records: Sequence[Recorded], tokenizer: Tokenizer | None, fmt: OutputFormat, profile: str) -> Job:
    """Settle the loss profile of each endpoint.

    Args:
        records: all lines.
        tokenizer: None works at text level.
        fmt: the format of all lines.
        profile: a name, or `auto` to let each endpoint's samples choose.
    """
    notes: tuple[str, ...] = ()
    if tokenizer is not None:
        tokenizer, differed = checked(tokenizer, map(_text, records[::EVERY]))
        notes = (f"{DIFFERENCE}.",) if differed else ()
    by_endpoint: dict[str, list[Observed]] = {}
    for recorded in records:
        observed = Observed(recorded.reply, recorded.prompt, recorded.max_tokens, recorded.thinking(fmt))
        by_endpoint.setdefault(recorded.reply.endpoint or "", []).append(observed)
    fit = fmt if tokenizer is None else fitted(fmt, tokenizer.vocabulary.specials)
    measure = None if tokenizer is None else measure_with(tokenizer)
    profiles = {name: settle_profile(profile, observed, fit, measure) for name, observed in by_endpoint.items()}
    return Job(tokenizer, fmt, profiles, notes)


def _text(recorded: Recorded) -> str:
    reply = recorded.reply
    return "".join(filter(None, (reply.reasoning, reply.content, *(call.arguments for call in reply.tool_calls))))


def reconstruct_file(records: Sequence[Recorded], job: Job, progress: Progress | None = None) -> Outcome:
    """Rebuild, judge and relabel all lines."""
    samples: list[Sample] = []
    rendered: list[tuple[int, ...] | None] = []
    for done, recorded in enumerate(records, 1):
        rendered.append(_rendered_ids(recorded, job))
        samples.append(
            Sample.of(
                recorded.id,
                recorded.reply.endpoint or "",
                recorded.reply,
                job.rebuild(recorded),
                None if rendered[-1] is None else len(rendered[-1]),
                bool(recorded.prompt and recorded.prompt.tools_json),
                recorded.asked_model,
            )
        )
        if progress is not None:
            progress(done, len(records))
    judgement = judge_samples(
        samples,
        job.tokenizer,
        job.fmt,
        lambda position, offset: job.rebuild(records[position], offset),
        [name for name, choice in job.profiles.items() if choice.profile.losses(job.fmt.name).arguments != "verbatim"],
    )
    rebuilt = tuple(sample.rebuilt for sample in judgement.samples)
    prompt_ids = tuple(map(_prompt_ids, records, rendered))
    lines = [line_object(*of_one, job) for of_one in zip(records, rebuilt, prompt_ids, strict=True)]
    return Outcome(tuple(lines), _summary(lines, judgement, job), judgement.findings, rebuilt, prompt_ids)


def _rendered_ids(recorded: Recorded, job: Job) -> tuple[int, ...] | None:
    """Prompt ids as the chat template writes them; None where it cannot."""
    if job.tokenizer is None or recorded.prompt is None or recorded.request is None:
        return None
    try:
        kwargs = asked_kwargs(job.fmt, recorded.request)
        return render_prompt(recorded.prompt, job.tokenizer, job.fmt, kwargs).ids
    except FormatError:
        return None


def _prompt_ids(recorded: Recorded, rendered: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Prompt ids the server returned, else the rendered ones where the bill does not speak against them."""
    if recorded.reply.prompt_token_ids is not None:
        return recorded.reply.prompt_token_ids
    billed = recorded.reply.usage.prompt_tokens if recorded.reply.usage else None
    return rendered if rendered is None or billed in (None, len(rendered)) else None


def line_object(recorded: Recorded, rebuilt: Rebuilt, prompt_ids: tuple[int, ...] | None, job: Job) -> dict[str, Any]:
    """A rebuilt answer as the JSON contract has it, compared with the truth where the line holds it."""
    line: dict[str, Any] = {"id": recorded.id}
    if prompt_ids is not None:
        line["prompt_ids"] = list(prompt_ids)
    spans = rebuilt.spans
    exact = None
    if recorded.truth_ids is not None and job.tokenizer is not None and rebuilt.output_ids is not None:
        vocabulary = job.tokenizer.vocabulary
        exact = same_up_to_last_whole_character(rebuilt.output_ids, recorded.truth_ids, vocabulary)
        if not exact:
            spans = align(recorded.truth_ids, rebuilt.output_ids, vocabulary)
    line |= {
        "finish_reason": recorded.reply.finish_reason,
        "output_ids": None if rebuilt.output_ids is None else list(rebuilt.output_ids),
        "raw": rebuilt.raw,
        "evidence": rebuilt.evidence,
        "usability": rebuilt.usability,
        "counted": rebuilt.counted,
        "billed": rebuilt.billed,
        "offset": rebuilt.offset,
        "drift": rebuilt.drift,
        "tail_trimmed": rebuilt.tail_trimmed,
        "spans": [span_object(span) for span in spans],
        "reason": rebuilt.reason,
    }
    if exact is not None:
        line["exact"] = exact
    return line


def _summary(lines: Sequence[Mapping[str, Any]], judgement: Judgement, job: Job) -> dict[str, Any]:
    evidence = Counter(line["evidence"] for line in lines)
    usability = Counter(line["usability"] for line in lines)
    resegmented = sum(bool(line["spans"]) and all(span["kind"] == "~" for span in line["spans"]) for line in lines)
    summary: dict[str, Any] = {
        "samples": len(lines),
        "by_evidence": {kind: evidence[kind] for kind in EVIDENCE if evidence[kind]},
        "by_usability": dict(sorted(usability.items())),
        "exact": sum(line.get("exact") is True for line in lines),
        "exact_by_evidence": {
            kind: sum(line.get("exact") is True and line["evidence"] == kind for line in lines)
            for kind in EVIDENCE
            if evidence[kind] and any("exact" in line for line in lines)
        },
        "mismatched": sum(line.get("exact") is False for line in lines),
        "resegmented": resegmented,
        "drift_total": sum(line["drift"] or 0 for line in lines),
        "prompts": {
            "rendered": sum(sample.prompt is not None for sample in judgement.samples),
            "billed_alike": sum(sample.prompt is not None and not sample.prompt.excess for sample in judgement.samples),
        },
        "profiles": {name: choice.profile.name for name, choice in job.profiles.items()},
        "offsets": {
            endpoint: {"offset": verdict.cause.offset, "cause": verdict.cause.name}
            for endpoint, verdict in judgement.verdicts.items()
            if verdict.cause is not None
        },
        "findings": [finding_object(finding) for finding in judgement.findings],
    }
    return summary
