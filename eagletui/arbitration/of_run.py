"""Let the target model decide what is not proved in a run: the job behind `eagletui arbitrate RUN`.

It works from the stored ids and holds the engine's place while it does, because it writes the engine's tables. Opinions
and the labels that they give are written together, a few at a time; a kill loses those few, and the next call asks only
what has no opinion yet.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from eagletui.arbitration.asking import PACE, Arbitration, Ruled, likelihood_objects, load_arbiter
from eagletui.config.run_config import RunConfig, load_config
from eagletui.core.errors import InputError, RunError
from eagletui.core.fidelity import EVIDENCE, PROVED, Evidence, Usability
from eagletui.core.findings import Finding
from eagletui.core.json_objects import finding_object
from eagletui.core.likelihood import FAR_OFF, KINDS, Likelihood, Structure, impostor_finding, structure_findings
from eagletui.core.opinions import (
    ASKED,
    Answer,
    Doubts,
    Question,
    canonical_ids,
    differing_spans,
    obstacle,
    sampled_length,
)
from eagletui.core.sampling import CUTS_FIRST, Sampling
from eagletui.core.vocabulary import Vocabulary
from eagletui.ledger.filters import SampleFilter
from eagletui.ledger.locks import RoleLock
from eagletui.ledger.orders import StoredOpinion, TokensResult
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.reader_features import FeaturesReader
from eagletui.ledger.reader_samples import ToRebuild
from eagletui.ledger.writer import LedgerWriter
from eagletui.models.identity import hash_model
from eagletui.rebuild.changes import UNFINISHED
from eagletui.runs.folder import RunFolder
from eagletui.tokens.load import load_tokenizer

BATCH: Final = 200
"""Most opinions of one transaction."""

EVERY_S: Final = 2.0
"""How long an opinion may wait for others to be written with."""

SCREENED: Final = 16
"""Proved answers of an endpoint, and unproved ones, that are scored as they are before any other cut is looked for."""

EXAMPLES: Final = 20
"""Samples with other ids that are named."""

Progress = Callable[[int, int], None]
"""Told how many answers were asked about, and of how many."""


def arbitrate_run(
    folder: RunFolder,
    model: Path | None,
    *,
    use_count: bool = True,
    threads: int | None = None,
    progress: Progress = lambda done, of: None,
    note: Callable[[str], None] = lambda sentence: None,
) -> dict[str, Any]:
    """Ask the target model about every answer of a run that is not proved, and write what it decides.

    Args:
        folder: the run; no engine of it may be alive.
        model: a folder or a `.gguf` file; None for the config's.
        use_count: let the billed count speak.
        threads: CPU threads; None takes half of the usable cores.
        progress: told after each answer.
        note: told what is being done.

    Returns:
        The summary as JSON values.

    Raises:
        LockedError: an engine or a rebuild of the run is at work.
        InputError: no model was named.
        ModelError: it cannot be loaded, or is another model's than the tokenizer.
        RunError: a rebuild has begun and not ended.
    """
    with ExitStack() as stack:
        stack.enter_context(RoleLock(folder.path, "engine", job=f"eagletui arbitrate {folder.argument}"))
        config = load_config(folder.config_path)
        weights = model or config.model.weights
        if weights is None:
            raise InputError("--model is missing: name the target model, a folder of safetensors or a .gguf file.")
        reader = stack.enter_context(LedgerReader(folder.ledger_path))
        standing = [row for row in reader.findings() if row.closed_at is None]
        if any(row.kind == UNFINISHED for row in standing):
            raise RunError(f"A rebuild has begun and not ended. First: eagletui rebuild {folder.argument}")
        writer = stack.enter_context(LedgerWriter(folder.ledger_path))
        vocabulary = load_tokenizer(folder.tokenizer_dir).vocabulary
        cases = _Cases(reader, config, Doubts.of(standing), vocabulary, use_count)
        docket = cases.docket(hash_model(weights).xxh3)
        session: Arbitration | None = None
        screened: dict[str, list[tuple[str, Likelihood]]] = {}
        written = _Written()
        if docket.todo:
            note("loading the target model")
            session = Arbitration(load_arbiter(weights, vocabulary, threads=threads), vocabulary)
            note("looking at answers of each endpoint as they are")
            screened = cases.screen(session, docket)
        blocked = _blocked(screened)
        docket.turn_away({finding.endpoint for finding in blocked})
        if session is not None:
            features = stack.enter_context(FeaturesReader(folder.ledger_path))
            written = _ask(cases, session, docket, writer, features, progress)
        likelihoods = _likelihoods(reader, docket.model, screened)
        findings = _findings(reader, docket.model, likelihoods, blocked)
        with writer.transaction(durable=True):
            writer.replace_findings(findings, kinds=KINDS)
            if session is not None:
                writer.event("info", "ctl", "arbitrate", _sentence(session))
        evidence = reader.snapshot().evidence
    return {
        "run": folder.name,
        "model": str(weights),
        "samples": sum(evidence.values()),
        "asked": session.asked if session else 0,
        "asked_before": docket.asked_before,
        "changed": len(written.changed),
        "changed_examples": written.changed[:EXAMPLES],
        "inferred": session.inferred if session else 0,
        "used_count": use_count,
        "skipped": dict(docket.skipped),
        "by_evidence": {kind: evidence[kind] for kind in EVIDENCE if evidence.get(kind)},
        "stale_shards": [
            {"path": path, "samples": samples, "of": written.shards[path]} for path, samples in written.stale.items()
        ],
        **(session.pace() if session else dict.fromkeys(PACE, 0.0)),
        "likelihood": likelihood_objects({name: _total(ones) for name, ones in likelihoods.items()}),
        "findings": [finding_object(finding) for finding in findings],
    }


class _Case(NamedTuple):
    """An answer to ask about."""

    sample_id: int
    endpoint: str
    fingerprint: str


@dataclass
class _Docket:
    """What there is to ask."""

    model: str
    """Hash of the target model's files."""
    todo: list[_Case] = field(default_factory=list)
    asked_before: int = 0
    """Answers that this model was asked about already, with the same question."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Answers by the reason why they are not asked about."""

    def turn_away(self, endpoints: set[str]) -> None:
        """Ask nothing about some endpoints."""
        kept = [case for case in self.todo if case.endpoint not in endpoints]
        if len(kept) < len(self.todo):
            self.skipped["the finding impostor doubts the model"] += len(self.todo) - len(kept)
        self.todo = kept


@dataclass
class _Written:
    """What was changed in the ledger."""

    changed: list[str] = field(default_factory=list)
    """Keys of samples with other ids."""
    stale: Counter[str] = field(default_factory=Counter)
    """Samples with features over ids that are others now, by shard."""
    shards: dict[str, int] = field(default_factory=dict)
    """All samples of those shards."""


class _Cases:
    """The unproved answers of a run, as questions."""

    def __init__(
        self, reader: LedgerReader, config: RunConfig, doubts: Doubts, vocabulary: Vocabulary, use_count: bool
    ) -> None:
        self._reader = reader
        self._config = config
        self._doubts = doubts
        self._use_count = use_count
        self.vocabulary = vocabulary

    def docket(self, model: str) -> _Docket:
        """List what this model is to be asked."""
        docket = _Docket(model)
        known = {row.sample_id: row for row in self._reader.opinions()}
        evidence = self._reader.snapshot().evidence
        docket.skipped.update({f"already {kind}": evidence[kind] for kind in PROVED if evidence.get(kind)})
        for sample_id in self._reader.sample_ids(SampleFilter(evidence=("inferred", *ASKED))):
            item = self.item(sample_id)
            why_not = self._obstacle(item)
            if why_not is None:
                fingerprint = self.answer(item).fingerprint(model)
                before = known.get(sample_id)
                # A label that a rebuild took back is given again.
                if before is not None and before.question == fingerprint and not before.inferred:
                    docket.asked_before += 1
                else:
                    docket.todo.append(_Case(sample_id, item.row.endpoint or "", fingerprint))
            elif why_not == "already inferred" and sample_id in known and known[sample_id].model != model:
                docket.skipped["already inferred by another model"] += 1
            else:
                docket.skipped[why_not] += 1
        return docket

    def screen(self, session: Arbitration, docket: _Docket) -> dict[str, list[tuple[str, Likelihood]]]:
        """Score some answers of each endpoint that waits, as they are, with their keys; proved ones first."""
        found: dict[str, list[tuple[str, Likelihood]]] = {}
        for endpoint in dict.fromkeys(case.endpoint for case in docket.todo):
            proved = SampleFilter(states=("tokenized",), evidence=PROVED, endpoints=(endpoint,))
            chosen = list(self._reader.sample_ids(proved)[:SCREENED]) if endpoint else []
            is_judged_by_proof = len(chosen) == SCREENED
            if not is_judged_by_proof:
                chosen += [case.sample_id for case in docket.todo if case.endpoint == endpoint][:SCREENED]
            for sample_id in chosen:
                item = self.item(sample_id)
                if item.tokens is not None and item.tokens.prompt_ids and item.tokens.output_ids:
                    likelihood = session.arbiter.likelihood(self.answer(item).question)
                    found.setdefault(endpoint, []).append((item.row.sample_key, likelihood))
        return found

    def item(self, sample_id: int) -> ToRebuild:
        """Read one stored answer."""
        (item,) = self._reader.to_rebuild(sample_id - 1, 1)
        return item

    def answer(self, item: ToRebuild) -> Answer:
        """Put a stored answer as a question."""
        row, tokens, label = item.row, item.tokens, item.label
        assert tokens is not None
        assert label is not None
        endpoint = row.endpoint or ""
        is_bill_sound = endpoint not in self._doubts.counts
        billed = row.billed_output_tokens if self._use_count and is_bill_sound else None
        length, cut = sampled_length(billed, row.offset_tokens, ended=label.ended, finish_reason=row.finish_reason)
        asked = self._config.sampling.drawn_for(row.dataset, item.prompt.sampling_json)
        ids = tuple(tokens.output_ids or ())
        question = Question(
            tuple(tokens.prompt_ids or ()),
            ids,
            Sampling(
                asked.temperature,
                asked.top_p,
                asked.top_k,
                cuts_first=self._config.provider.kind == CUTS_FIRST,
            ),
            length,
            cut,
            tokens.tail_trimmed,
        )
        return Answer(
            id=row.sample_key,
            endpoint=endpoint,
            evidence=cast(Evidence, tokens.evidence),
            usability=cast(Usability, label.usability),
            reason=tokens.reason,
            billed=row.billed_output_tokens,
            offset=row.offset_tokens,
            tail_trimmed=tokens.tail_trimmed,
            question=question,
            canonical=canonical_ids(ids, tokens.spans, self.vocabulary),
            is_bill_sound=is_bill_sound,
        )

    def _obstacle(self, item: ToRebuild) -> str | None:
        tokens, label = item.tokens, item.label
        if tokens is None or label is None:
            return "no ids"
        if item.row.state == "quarantined":
            return "its endpoint is quarantined"
        unknown = self.vocabulary.first_unknown(tokens.output_ids or ())
        if unknown is not None:
            return "an id is not in the vocabulary"
        why_not = obstacle(
            cast(Evidence, tokens.evidence),
            cast(Usability, label.usability),
            tokens.output_ids,
            tokens.prompt_ids,
            tokens.raw,
        )
        return why_not or self._doubts.obstacle(item.row.endpoint or "")


def _ask(
    cases: _Cases,
    session: Arbitration,
    docket: _Docket,
    writer: LedgerWriter,
    features: FeaturesReader,
    progress: Progress,
) -> _Written:
    """Ask, and write each opinion with what it gives."""
    written = _Written()
    waiting: list[tuple[_Case, ToRebuild, Ruled]] = []

    def write() -> None:
        changed = [(case.sample_id, item.row.sample_key) for case, item, ruled in waiting if ruled.is_changed]
        for share in features.shards_holding([sample_id for sample_id, _ in changed]):
            written.stale[share.path] += share.samples
            written.shards[share.path] = share.of
        with writer.transaction():
            for case, item, ruled in waiting:
                _store(writer, case, item, ruled, docket.model, cases.vocabulary)
        written.changed += (key for _, key in changed)
        waiting.clear()

    wrote_at = time.monotonic()
    try:
        for done, case in enumerate(docket.todo, 1):
            item = cases.item(case.sample_id)
            waiting.append((case, item, session.ask(cases.answer(item))))
            if len(waiting) == BATCH or time.monotonic() - wrote_at >= EVERY_S:
                write()
                wrote_at = time.monotonic()
            progress(done, len(docket.todo))
    finally:
        write()
    return written


def _store(
    writer: LedgerWriter, case: _Case, item: ToRebuild, ruled: Ruled, model: str, vocabulary: Vocabulary
) -> None:
    opinion, ruling, likelihood = ruled.opinion, ruled.ruling, ruled.opinion.likelihood
    writer.store_opinion(
        case.sample_id,
        StoredOpinion(
            question=case.fingerprint,
            model=model,
            posterior=opinion.posterior,
            margin=opinion.margin,
            changed=opinion.ids != ruled.answer.question.ids,
            inferred=ruling.is_inferred,
            tokens=likelihood.tokens,
            own=likelihood.own,
            expected=likelihood.expected,
            variance=likelihood.variance,
            structure_json=json.dumps(ruled.structure, ensure_ascii=False),
        ),
    )
    if not ruling.is_inferred:
        return
    tokens, label, canonical = item.tokens, item.label, ruled.answer.canonical
    assert tokens is not None
    assert label is not None
    writer.store_tokens(
        case.sample_id,
        TokensResult(
            output_ids=ruling.ids,
            raw=tokens.raw,
            evidence=ruling.evidence,
            usability=ruling.usability,
            prompt_ids=tokens.prompt_ids,
            spans=differing_spans(ruling.ids, canonical, vocabulary),
            reason=ruling.reason,
            offset=ruling.offset,
            drift=ruling.drift,
            tail_trimmed=ruling.tail_trimmed,
            excess=label.excess,
            plain_excess=label.plain_excess,
            ended=label.ended,
        ),
    )


def _blocked(screened: Mapping[str, Sequence[tuple[str, Likelihood]]]) -> list[Finding]:
    """Endpoints whose answers are so far off that the model's word on their cuts is worth nothing."""
    found = (impostor_finding(endpoint, ones, least_off=FAR_OFF) for endpoint, ones in screened.items())
    return [finding for finding in found if finding is not None]


def _likelihoods(
    reader: LedgerReader, model: str, screened: Mapping[str, Sequence[tuple[str, Likelihood]]]
) -> dict[str, list[tuple[str, Likelihood]]]:
    """What is known of each endpoint: the opinions on ids that stayed, and what was scored before any was asked."""
    found: dict[str, dict[str, Likelihood]] = {endpoint: dict(ones) for endpoint, ones in screened.items()}
    for row in reader.opinions():
        if row.model != model:
            continue
        of_endpoint = found.setdefault(row.endpoint or "", {})
        of_endpoint[row.sample_key] = Likelihood(row.tokens, row.own, row.expected, row.variance)
        if row.changed:
            # Ids that are not what was sampled look unlikely under any model.
            del of_endpoint[row.sample_key]
    return {endpoint: list(ones.items()) for endpoint, ones in found.items() if ones}


def _findings(
    reader: LedgerReader,
    model: str,
    likelihoods: Mapping[str, Sequence[tuple[str, Likelihood]]],
    blocked: Sequence[Finding],
) -> list[Finding]:
    known = {finding.endpoint for finding in blocked}
    impostors = (impostor_finding(endpoint, ones) for endpoint, ones in likelihoods.items() if endpoint not in known)
    structure = [
        Structure(row.sample_key, text, score)
        for row in reader.opinions()
        if row.model == model
        for text, score in json.loads(row.structure_json).items()
    ]
    return [*blocked, *(finding for finding in impostors if finding is not None), *structure_findings(structure)]


def _total(samples: Sequence[tuple[str, Likelihood]]) -> Likelihood:
    return sum((likelihood for _, likelihood in samples), Likelihood())


def _sentence(session: Arbitration) -> str:
    return (
        f"The target model was asked about {session.asked:,} samples: {session.inferred:,} are inferred now, "
        f"{session.changed:,} of them with other ids."
    )
