"""Systematic faults in words: one sentence, how many of how many, an example, what to do."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from eagletui.core.argument_style import Histogram, rewriting
from eagletui.core.drift import LEAST_SAMPLES, Streams, Verdict
from eagletui.core.outputs import OutputFormat

LEAVES_OTHERS: Final = 0.25
"""How much larger an endpoint's share of conflicts must be than that of all others together."""

_DEVIATIONS: Final = 3.0
"""Standard deviations of chance that it must lie above them too."""

WRONG_FORMAT: Final = "Do not train on these ids. Correct the format, then rebuild: stored replies cost nothing."


@dataclass(frozen=True, slots=True)
class Finding:
    """One systematic fault."""

    kind: str
    """Short name: `end_token`, `missing_close`, `glue`, `constant`, `counts`, `endpoint`, ..."""
    sentence: str
    affected: int
    examined: int
    example: str | None
    """Id of a sample that shows it."""
    action: str
    endpoint: str = ""
    """Empty for a fault that is not one endpoint's."""


ODD_ENDS: Final = 0.2
"""Share of answers that may end with another end token of the model before the format's is called wrong."""

REWRITTEN: Final = (
    "Ask this endpoint for ids, or rebuild with a loss profile whose arguments are reserialised: "
    "the ids of its calls are not what the model wrote."
)


def endpoint_findings(endpoint: str, verdict: Verdict, example: str | None, named: str = "") -> list[Finding]:
    """Word what an endpoint's counts show beyond named causes.

    Args:
        endpoint: its name; empty for a direct server.
        verdict: of its counts.
        example: a sample that shows it.
        named: which change of the format would explain the counts, where one was found.
    """
    place = who(endpoint)
    if verdict.constant is not None:
        found = verdict.constant
        tokens = "1 token" if abs(found.excess) == 1 else f"{abs(found.excess)} tokens"
        side = "more" if found.excess > 0 else "less"
        sentence = (
            f"On {place}, {found.affected} of {found.examined} {found.where} are billed {tokens} {side} than counted, "
            f"and no named cause explains that{f'; {named}' if named else ''}"
        )
        return [Finding("constant", sentence, found.affected, found.examined, example, WRONG_FORMAT, endpoint)]
    if verdict.disagreeing is not None:
        found = verdict.disagreeing
        sentence = (
            f"On {place}, {found.affected} of {found.examined} counts differ from the bill, without a constant"
            f"{f'; {named}' if named else ''}"
        )
        action = "No count is trusted here. Check the format and the loss profile, or ask for ids or logprobs."
        return [Finding("counts", sentence, found.affected, found.examined, example, action, endpoint)]
    return []


def leaving_endpoints(conflicts: Mapping[str, tuple[int, int]], examples: Mapping[str, str]) -> list[Finding]:
    """Name endpoints whose share of conflicting counts leaves that of the others.

    Args:
        conflicts: per endpoint, samples whose canonical count differs from the bill, and all that have one.
        examples: a conflicting sample of each.
    """
    found: list[Finding] = []
    for endpoint, (bad, examined) in conflicts.items():
        others_bad = sum(other for name, (other, _) in conflicts.items() if name != endpoint)
        others = sum(total for name, (_, total) in conflicts.items() if name != endpoint)
        if examined < LEAST_SAMPLES or others < LEAST_SAMPLES:
            continue
        pooled = (bad + others_bad) / (examined + others)
        chance = _DEVIATIONS * math.sqrt(pooled * (1 - pooled) / examined)
        if bad / examined - others_bad / others > max(LEAVES_OTHERS, chance):
            sentence = (
                f"Endpoint {endpoint} disagrees with the bill in {bad} of {examined} samples, "
                f"the others in {others_bad} of {others}"
            )
            action = f"Quarantine {endpoint}, or give its replies a loss profile of their own."
            found.append(Finding("endpoint", sentence, bad, examined, examples.get(endpoint), action, endpoint))
    return found


def cut_anew_finding(endpoint: str, streams: Streams, example: str | None) -> Finding:
    """Word that the pieces of an endpoint's streams are no tokens."""
    of_all = streams.held + streams.refuted
    sentence = (
        f"On {who(endpoint)}, the pieces of {streams.refuted} of {of_all} streams need more tokens than were billed: "
        "something on the way cuts the text into other pieces than tokens"
    )
    action = "No stream proves ids here. Ask for ids or logprobs, or send the requests without stream."
    return Finding("cut_anew", sentence, streams.refuted, of_all, example, action, endpoint)


def rewritten_finding(endpoint: str, words: str, affected: int, examined: int, example: str | None) -> Finding:
    """Word that an endpoint writes tool arguments again.

    Args:
        endpoint: its name; empty for a direct server.
        words: what shows it.
        affected: how many show it.
        examined: of how many.
        example: a sample that shows it.
    """
    sentence = f"Rewritten tool arguments: on {who(endpoint)}, {words}"
    return Finding("arguments", sentence, affected, examined, example, REWRITTEN, endpoint)


def proved_arguments_finding(endpoint: str, affected: int, examined: int, example: str | None) -> Finding:
    """Word that proved ids write other tool arguments than an endpoint shows."""
    words = f"the proved ids of {affected} of {examined} answers with calls write other arguments than shown"
    return rewritten_finding(endpoint, words, affected, examined, example)


def end_finding(endpoint: str, affected: int, examined: int, example: str | None) -> Finding:
    """Word that answers end with another token than the format's."""
    sentence = (
        f"Wrong end token: on {who(endpoint)}, {affected} of {examined} answers whose last token is known end with "
        "another one than the format's"
    )
    return Finding("end_token", sentence, affected, examined, example, WRONG_FORMAT, endpoint)


def elsewhere_finding(
    endpoint: str, served_by: str, affected: int, examined: int, example: str | None, *, other_model: bool
) -> Finding:
    """Word that a router had answers given by others than the endpoint asked.

    Args:
        endpoint: the one asked.
        served_by: what the last such answer is filed under; empty: not known any more.
        affected: answers of others.
        examined: answers to requests for this endpoint.
        example: a sample with such an answer.
        other_model: some came from another model.
    """
    what = "another model or endpoint" if other_model else "another endpoint"
    sentence = (
        f"{affected} of {examined} answers that {who(endpoint)} was asked for were served by {what}"
        f"{f', the last by {served_by}' if served_by else ''}"
    )
    suspect = "; those of another model are set aside until you release them" if other_model else ""
    action = (
        f"They are filed under who gave them{suspect}. Quarantine {endpoint}, or name it in only by its whole slug, "
        "and show the router an example."
    )
    return Finding("elsewhere", sentence, affected, examined, example, action, endpoint)


def failing_finding(endpoint: str, affected: int, examined: int, example: str | None) -> Finding:
    """Word that an endpoint fails."""
    sentence = f"On {who(endpoint)}, {affected} of the last {examined} requests failed"
    action = f"Read the log; `ctl RUN quarantine {endpoint}` asks the other endpoints alone."
    return Finding("failures", sentence, affected, examined, example, action, endpoint)


def histogram_findings(spellings: Mapping[str, Histogram], examples: Mapping[str, str]) -> list[Finding]:
    """Name endpoints whose calls are spelled as only a server that writes them again would.

    Args:
        spellings: of each endpoint's calls.
        examples: a sample with calls of each.
    """
    found: list[Finding] = []
    for endpoint, mine in spellings.items():
        others = sum((other for name, other in spellings.items() if name != endpoint), Histogram.of(()))
        shown = rewriting(mine, others)
        if shown is not None:
            what, affected, examined = shown
            words = f"the arguments of {affected} of {examined} calls {what}"
            found.append(rewritten_finding(endpoint, words, affected, examined, examples.get(endpoint)))
    return found


def who(endpoint: str) -> str:
    """Name an endpoint inside a sentence."""
    return f"endpoint {endpoint}" if endpoint else "the server"


def format_differences(given: OutputFormat, shipped: OutputFormat) -> list[str]:
    """Name where a format writes an answer otherwise than the shipped one of the same model."""
    rule, tools, frame = given.reasoning, given.tools, given.content
    theirs_rule, theirs_tools, theirs_frame = shipped.reasoning, shipped.tools, shipped.content
    pairs: list[tuple[str, object, object]] = [
        ("end token on stop", given.end_token("stop"), shipped.end_token("stop")),
        ("end token on tool_calls", given.end_token("tool_calls"), shipped.end_token("tool_calls")),
        ("reasoning is opened by", rule.opened_by, theirs_rule.opened_by),
        ("reasoning opens with", rule.open, theirs_rule.open),
        ("glue behind the opener", rule.after_open, theirs_rule.after_open),
        ("reasoning closes with", rule.close, theirs_rule.close),
        ("glue before the close tag", rule.before_close, theirs_rule.before_close),
        ("glue behind the close tag", rule.after_close, theirs_rule.after_close),
        ("header of the content", frame.open, theirs_frame.open),
        ("header of the content before calls", frame.open_with_tools, theirs_frame.open_with_tools),
        ("close of the content before calls", frame.close_with_tools, theirs_frame.close_with_tools),
        ("arguments are written as", tools.codec, theirs_tools.codec),
        ("tool section opens with", tools.open, theirs_tools.open),
        ("tool section closes with", tools.close, theirs_tools.close),
        ("a call is written", tools.each, theirs_tools.each),
        ("a parameter is written", tools.parameter, theirs_tools.parameter),
        ("glue between parameters", tools.between_parameters, theirs_tools.between_parameters),
        ("booleans are written as", tools.booleans, theirs_tools.booleans),
        ("glue before the calls", tools.before, theirs_tools.before),
        ("glue between content and calls", tools.before_with_content, theirs_tools.before_with_content),
        ("glue between calls", tools.between, theirs_tools.between),
        ("glue behind the calls", tools.after, theirs_tools.after),
    ]
    return [f"{what} {mine!r} where {shipped.name} has {theirs!r}" for what, mine, theirs in pairs if mine != theirs]


def format_faults(fmt: OutputFormat) -> list[tuple[str, str]]:
    """Name what a format leaves out, as kind and clause: no tokenizer is needed to see it."""
    found: list[tuple[str, str]] = []
    if fmt.reasoning.opened_by != "none" and not fmt.reasoning.close:
        found.append(("missing_close", "Reasoning is never closed: missing close tag, such as </think>"))
    if fmt.reasoning.opened_by != "none" and not fmt.reasoning.open:
        found.append(("missing_close", "Reasoning is never opened: missing opener, such as <think>"))
    if not fmt.end_token("stop"):
        found.append(("end_token", "The format writes no end token on stop"))
    return found


def merged(findings: Sequence[Finding]) -> list[Finding]:
    """Keep one finding for each kind, endpoint and sentence, in order."""
    known: dict[tuple[str, str, str], Finding] = {}
    for finding in findings:
        known.setdefault((finding.kind, finding.endpoint, finding.sentence), finding)
    return list(known.values())
