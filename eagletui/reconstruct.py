"""Rebuild ids over a file of recorded API replies: the job behind `eagletui reconstruct`."""

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eagletui.core.chat import Prompt
from eagletui.core.errors import FormatError, InputError, Problem, ReplyError
from eagletui.core.fidelity import EVIDENCE, same_up_to_last_whole_character
from eagletui.core.findings import Finding
from eagletui.core.outputs import OutputFormat, fitted
from eagletui.core.reply import Reply
from eagletui.core.text import clean_line
from eagletui.core.tokdiff import Span, align
from eagletui.prompts.fields import Fault
from eagletui.prompts.messages import read_messages
from eagletui.providers.decoding import decode_json
from eagletui.providers.parse import parse_body, parse_events
from eagletui.tokens.answer import Rebuilt, rebuild
from eagletui.tokens.formats import asked_kwargs, asked_thinking
from eagletui.tokens.judge import Judgement, Sample, judge_samples
from eagletui.tokens.live_check import DIFFERENCE, EVERY, checked
from eagletui.tokens.load import Tokenizer
from eagletui.tokens.parts import measure_with
from eagletui.tokens.profiles import Observed, ProfileChoice, settle_profile
from eagletui.tokens.prompt import render_prompt

Progress = Callable[[int, int], None]
"""Called with lines done and lines in all."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One line of the input."""

    id: str
    line: int
    """1-based."""
    reply: Reply
    prompt: Prompt | None
    """None when the line has no readable request."""
    max_tokens: int | None
    stop_strings: tuple[str, ...]
    request: Mapping[str, object] | None
    truth_ids: tuple[int, ...] | None

    def thinking(self, fmt: OutputFormat) -> bool | None:
        """Whether the request switches thinking on or off; None where it says nothing."""
        return asked_thinking(fmt, self.request)

    @property
    def asked_model(self) -> str | None:
        """The model that the request names."""
        model = (self.request or {}).get("model")
        return model if isinstance(model, str) else None


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


def read_recorded(path: Path, tokenizer: Tokenizer | None) -> list[Recorded]:
    """Read a file of recorded replies.

    Raises:
        InputError: the first line that is not what the contract asks for, with its field.
    """
    return [_recorded(path, number, line, tokenizer) for number, line in _lines(path)]


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


def write_lines(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Write JSON lines, whole or not at all.

    Raises:
        InputError: the place cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            for line in lines:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from error
    finally:
        temporary.unlink(missing_ok=True)


def span_object(span: Span) -> dict[str, Any]:
    """A span as the JSON contract has it."""
    return {
        "offset": span.offset,
        "length": span.length,
        "a_ids": list(span.a_ids),
        "b_ids": list(span.b_ids),
        "kind": span.kind,
    }


def finding_object(finding: Finding) -> dict[str, Any]:
    """A finding as the JSON contract has it."""
    return {
        "kind": finding.kind,
        "endpoint": finding.endpoint or None,
        "sentence": finding.sentence,
        "affected": finding.affected,
        "examined": finding.examined,
        "example": finding.example,
        "action": finding.action,
    }


def read_text(path: Path, number: int, field: str, value: object) -> str:
    """Read a text of a line that can be written again.

    Raises:
        InputError: it is none, is empty, or holds a lone surrogate.
    """
    if not isinstance(value, str) or not value:
        raise problem(path, number, field, "nothing" if value is None else value, "a text")
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        raise problem(path, number, field, ascii(value), "a text without lone surrogates")
    return value


def problem(path: Path, line: int, field: str | None, found: object, expected: str) -> InputError:
    """A fault of an input line, worded as everywhere."""
    shown = found if isinstance(found, str) else json.dumps(found, default=str, ensure_ascii=False)
    return InputError(str(Problem(str(path), line, field, clean_line(shown, 60) or "empty text", expected)))


def read_objects(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """Read the JSON objects of a file with their line numbers.

    Raises:
        InputError: a line that is no JSON object, or none at all.
    """
    objects: list[tuple[int, dict[str, Any]]] = []
    for number, line in _lines(path):
        try:
            value = decode_json(line)
        except ReplyError as error:
            raise InputError(f"{path}:{number}: {error}") from error
        if not isinstance(value, dict):
            raise problem(path, number, None, value, "a JSON object")
        objects.append((number, value))
    return objects


def _lines(path: Path) -> list[tuple[int, bytes]]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    lines = [(number, line) for number, line in enumerate(content.split(b"\n"), 1) if line.strip()]
    if not lines:
        raise InputError(f"{path}: found no lines, expected one JSON object a line")
    return lines


def _recorded(path: Path, number: int, line: bytes, tokenizer: Tokenizer | None) -> Recorded:
    try:
        value = decode_json(line)
        if not isinstance(value, dict):
            raise problem(path, number, None, value, 'an object with "id" and "response" or "events"')
        sample_id = value.get("id")
        if isinstance(sample_id, int) and not isinstance(sample_id, bool):
            sample_id = str(sample_id)
        sample_id = read_text(path, number, "id", sample_id)
        reply = _reply(path, number, value)
    except ReplyError as error:
        raise InputError(f"{path}:{number}: {error}") from error
    request = value.get("request")
    if request is not None and not isinstance(request, dict):
        raise problem(path, number, "request", request, "an object")
    limit = (request or {}).get("max_tokens", (request or {}).get("max_completion_tokens"))
    stop = (request or {}).get("stop")
    return Recorded(
        id=sample_id,
        line=number,
        reply=reply,
        prompt=_prompt(request),
        max_tokens=limit if isinstance(limit, int) and not isinstance(limit, bool) else None,
        stop_strings=_stop_strings(stop),
        request=request,
        truth_ids=read_ids(path, number, "truth_ids", value["truth_ids"], tokenizer) if "truth_ids" in value else None,
    )


def _stop_strings(stop: object) -> tuple[str, ...]:
    given = [stop] if isinstance(stop, str) else stop if isinstance(stop, list) else []
    return tuple(text for text in given if isinstance(text, str) and text)


def _reply(path: Path, number: int, value: Mapping[str, Any]) -> Reply:
    if "response" in value:
        return parse_body(value["response"])
    events = value.get("events")
    if events is None:
        raise problem(path, number, "response", "nothing", 'an API body, or "events" with the objects of a stream')
    if not isinstance(events, list):
        raise problem(path, number, "events", events, "a list of objects")
    return parse_events(events)


def read_ids(path: Path, number: int, field: str, value: object, tokenizer: Tokenizer | None) -> tuple[int, ...]:
    """Read a list of token ids of a line.

    Raises:
        InputError: it is none, or an id is not in the vocabulary.
    """
    if not isinstance(value, list):
        raise problem(path, number, field, value, "a list of token ids")
    for position, token_id in enumerate(value):
        if not isinstance(token_id, int) or isinstance(token_id, bool):
            raise problem(path, number, f"{field}[{position}]", token_id, "a token id")
        if tokenizer is not None and token_id not in tokenizer.vocabulary:
            expected = f"an id of the vocabulary of {tokenizer.vocabulary.size}"
            raise problem(path, number, f"{field}[{position}]", token_id, expected)
    return tuple(value)


def _prompt(request: Mapping[str, Any] | None) -> Prompt | None:
    """The conversation of a request; None when it cannot be read, which costs only what needs it."""
    if not request or "messages" not in request:
        return None
    try:
        messages = read_messages(request["messages"], "messages")
    except Fault:
        return None
    tools = request.get("tools")
    return Prompt(messages, json.dumps(tools, ensure_ascii=False, default=str) if tools else None)


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
