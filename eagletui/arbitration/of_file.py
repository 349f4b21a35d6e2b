"""Rebuild recorded replies and let the target model decide what is not proved: the job behind `eagletui arbitrate`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from typing import Any, Final

from eagletui.arbitration.asking import Arbitration, Ruled, likelihood_objects
from eagletui.core.fidelity import EVIDENCE, same_up_to_last_whole_character
from eagletui.core.json_objects import finding_object
from eagletui.core.opinions import Answer, Doubts, Question, canonical_ids, differing_spans, obstacle, sampled_length
from eagletui.core.posterior import calibrate
from eagletui.core.sampling import CUTS_FIRST, Sampling
from eagletui.core.vocabulary import Vocabulary
from eagletui.recorded.lines import Progress
from eagletui.recorded.reconstruct import Job, Outcome, line_object
from eagletui.recorded.replies import Recorded
from eagletui.tokens.answer import Rebuilt

_PENALTIES: Final[Mapping[str, object]] = {
    "repetition_penalty": 1,
    "frequency_penalty": 0,
    "presence_penalty": 0,
    "logit_bias": {},
}
"""Settings that move probabilities, with the value that changes nothing."""


@dataclass(frozen=True, slots=True)
class ArbitratedFile:
    """All lines with their final labels."""

    lines: tuple[dict[str, Any], ...]
    summary: dict[str, Any]


def arbitrate_file(
    records: Sequence[Recorded],
    outcome: Outcome,
    job: Job,
    arbitration: Arbitration,
    *,
    use_count: bool = True,
    progress: Progress | None = None,
) -> ArbitratedFile:
    """Ask the arbiter about every answer that is not proved.

    Args:
        records: the input.
        outcome: as `reconstruct_file` rebuilt it.
        job: what it was rebuilt with; it has a tokenizer.
        arbitration: the session.
        use_count: let the billed count speak.
        progress: told how many lines are done.
    """
    assert job.tokenizer is not None
    vocabulary = job.tokenizer.vocabulary
    doubts = Doubts.of(outcome.findings)
    lines: list[dict[str, Any]] = []
    ruled: list[tuple[Recorded, Ruled]] = []
    skipped: Counter[str] = Counter()
    for index, (recorded, rebuilt, prompt_ids) in enumerate(
        zip(records, outcome.rebuilt, outcome.prompt_ids, strict=True)
    ):
        endpoint = recorded.reply.endpoint or ""
        why_not = obstacle(rebuilt.evidence, rebuilt.usability, rebuilt.output_ids, prompt_ids, rebuilt.raw)
        why_not = why_not or doubts.obstacle(endpoint)
        if why_not is not None or rebuilt.output_ids is None or prompt_ids is None:
            skipped[why_not or "no ids"] += 1
            lines.append(outcome.lines[index])
        else:
            is_sound = endpoint not in doubts.counts
            sampling = sampling_of(recorded.request, job.profiles[endpoint].profile.name)
            answer = _answer(
                recorded, rebuilt, rebuilt.output_ids, prompt_ids, sampling, use_count and is_sound, vocabulary
            )
            answer = replace(answer, is_bill_sound=is_sound)
            one = arbitration.ask(answer)
            ruled.append((recorded, one))
            line = line_object(recorded, _with_ruling(rebuilt, one, vocabulary), prompt_ids, job)
            lines.append(line | {"posterior": one.opinion.posterior, "margin": one.opinion.margin})
        if progress is not None:
            progress(index + 1, len(records))
    summary = _summary(outcome.lines, lines, ruled, arbitration, skipped, vocabulary)
    return ArbitratedFile(tuple(lines), summary | {"used_count": use_count})


def sampling_of(request: Mapping[str, object] | None, profile: str = "") -> Sampling:
    """Read how an answer was sampled; what a request does not say is not assumed.

    Args:
        request: as it was sent.
        profile: name of what its server strips, which tells the server.
    """
    asked = request or {}

    def number(name: str, otherwise: float) -> float:
        value = asked.get(name)
        if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
            return otherwise
        return float(value)

    temperature = max(0.0, number("temperature", 1.0))
    if any(asked.get(name) not in (None, neutral) for name, neutral in _PENALTIES.items()):
        # They move probabilities in ways that are not computed here: nothing is taken for impossible.
        return Sampling(temperature)
    top_k = int(number("top_k", 0))
    top_p = number("top_p", 1.0)
    return Sampling(
        temperature,
        top_p if 0.0 < top_p <= 1.0 else 1.0,
        top_k if top_k > 0 else None,
        max(0.0, number("min_p", 0.0)),
        cuts_first=profile == CUTS_FIRST,
    )


def _answer(
    recorded: Recorded,
    rebuilt: Rebuilt,
    ids: tuple[int, ...],
    prompt_ids: tuple[int, ...],
    sampling: Sampling,
    use_count: bool,
    vocabulary: Vocabulary,
) -> Answer:
    billed = rebuilt.billed if use_count else None
    length, cut = sampled_length(
        billed, rebuilt.offset, ended=rebuilt.ended, finish_reason=recorded.reply.finish_reason
    )
    question = Question(prompt_ids, ids, sampling, length, cut, rebuilt.tail_trimmed)
    return Answer(
        id=recorded.id,
        endpoint=recorded.reply.endpoint or "",
        evidence=rebuilt.evidence,
        usability=rebuilt.usability,
        reason=rebuilt.reason,
        billed=rebuilt.billed,
        offset=rebuilt.offset,
        tail_trimmed=rebuilt.tail_trimmed,
        question=question,
        canonical=canonical_ids(ids, rebuilt.spans, vocabulary),
    )


def _with_ruling(rebuilt: Rebuilt, ruled: Ruled, vocabulary: Vocabulary) -> Rebuilt:
    ruling, canonical = ruled.ruling, ruled.answer.canonical
    return replace(
        rebuilt,
        output_ids=ruling.ids,
        evidence=ruling.evidence,
        usability=ruling.usability,
        reason=ruling.reason,
        counted=len(ruling.ids),
        offset=ruling.offset,
        drift=ruling.drift,
        tail_trimmed=ruling.tail_trimmed,
        spans=differing_spans(ruling.ids, canonical, vocabulary),
    )


def _summary(
    before: Sequence[Mapping[str, Any]],
    after: Sequence[Mapping[str, Any]],
    ruled: Sequence[tuple[Recorded, Ruled]],
    arbitration: Arbitration,
    skipped: Mapping[str, int],
    vocabulary: Vocabulary,
) -> dict[str, Any]:
    evidence = Counter(line["evidence"] for line in after)
    summary: dict[str, Any] = {
        "samples": len(after),
        "asked": arbitration.asked,
        "changed": arbitration.changed,
        "inferred": arbitration.inferred,
        "skipped": dict(skipped),
        "by_evidence": {kind: evidence[kind] for kind in EVIDENCE if evidence[kind]},
        **arbitration.pace(),
        "likelihood": likelihood_objects(arbitration.likelihoods()),
        "findings": [finding_object(finding) for finding in arbitration.findings()],
    }
    if any("exact" in line for line in after):
        answers = [
            (one.opinion.posterior, same_up_to_last_whole_character(one.opinion.ids, recorded.truth_ids, vocabulary))
            for recorded, one in ruled
            if recorded.truth_ids is not None
        ]
        pairs = [(old.get("exact"), new.get("exact")) for old, new in zip(before, after, strict=True)]
        summary |= {
            "exact_before": sum(old is True for old, _ in pairs),
            "exact": sum(new is True for _, new in pairs),
            "broken": sum(old is True and new is False for old, new in pairs),
            "calibration": [asdict(row) for row in calibrate(answers)],
        }
    return summary
