"""Ids again from the replies a run has kept, for $0: the job behind `eagletui rebuild`.

Every answered sample is rebuilt, all are judged together, and what came out otherwise is written in short
transactions. A kill leaves each sample as it was or as it should be; a second rebuild does the rest.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Final

from eagletui.config.run_config import RunConfig, load_config
from eagletui.core.drift import CAUSES, Cause, Verdict
from eagletui.core.errors import InputError
from eagletui.core.outputs import fitted
from eagletui.ledger.filters import SampleFilter
from eagletui.ledger.locks import RoleLock
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.reader_features import FeaturesReader
from eagletui.providers.reading import read_kept
from eagletui.rebuild.changes import changes_of, moves, write
from eagletui.rebuild.remake import Recipe, Remade, Remakers, Spool
from eagletui.rebuild.report import Rebuild, Trouble
from eagletui.run_ids import RunIds
from eagletui.runs.folder import RunFolder
from eagletui.tokens.formats import AUTO, load_format
from eagletui.tokens.judge import Judgement, Sample, endpoint_verdicts, judge_samples
from eagletui.tokens.live_check import EVERY, checked
from eagletui.tokens.load import Tokenizer, load_tokenizer
from eagletui.tokens.parts import measure_with
from eagletui.tokens.profiles import COUNTED, Observed, ProfileChoice, settle_profile
from eagletui.tokens.variants import MOST_SAMPLES

EXAMPLES: Final = 20
"""Samples with other ids that are named."""

ANSWERED: Final = SampleFilter(states=("answered", "tokenized", "quarantined"))

Step = Callable[[int, int], None]
"""Told how many samples are rebuilt, and of how many."""


def rebuild_run(
    folder: RunFolder,
    *,
    output_format: str | None = None,
    profile: str | None = None,
    dry_run: bool = False,
    keep_inferred: bool = True,
    processes: int | None = None,
    step: Step = lambda done, of: None,
) -> Rebuild:
    """Rebuild the ids of every answered sample of a run.

    Args:
        folder: the run; no engine of it may be alive, unless nothing is written.
        output_format: in place of the run's; the run has it from then on.
        profile: the same for the loss profile; `auto` lets each endpoint's samples choose.
        dry_run: write nothing.
        keep_inferred: leave ids that a target model chose as they are while the text is the same.
        processes: None takes the CPUs of this process.
        step: progress.

    Raises:
        LockedError: an engine of the run is alive.
        InputError: format, profile and tokenizer do not fit each other.
    """
    started = time.monotonic()
    with ExitStack() as stack:
        if not dry_run:
            stack.enter_context(RoleLock(folder.path, "engine", job=f"eagletui rebuild {folder.argument}"))
        config = _asked(load_config(folder.config_path), output_format, profile)
        ids = RunIds(config, load_tokenizer(folder.tokenizer_dir), load_format(config.model.format))
        _refuse_misfit(ids.tokenizer, config)
        reader = stack.enter_context(LedgerReader(folder.ledger_path))
        samples = reader.sample_ids(ANSWERED)
        tokenizer, encoders_differ = checked(ids.tokenizer, _texts(reader, samples[::EVERY]))
        ids = replace(ids, tokenizer=tokenizer)
        profiles = _settle_profiles(reader, ids)
        by_endpoint = profiles if config.model.profile == AUTO else {}
        ids = replace(ids, profiles={endpoint: choice.profile for endpoint, choice in by_endpoint.items()})
        recipe = Recipe(
            folder.ledger_path,
            folder.tokenizer_dir,
            config,
            {endpoint: choice.profile.name for endpoint, choice in by_endpoint.items()},
            by_reference=encoders_differ,
            keep_inferred=keep_inferred,
        )
        cpus = len(os.sched_getaffinity(0)) if processes is None else processes
        remakers = stack.enter_context(closing(Remakers(recipe, samples, cpus)))
        spool = None if dry_run else stack.enter_context(Spool(folder.path))
        made, causes = _remake_all(remakers, _known_causes(reader), spool, lambda done: step(done, len(samples)))
        judgement = _judge(made, reader, ids)
        changes = list(changes_of(made, judgement))
        changed = [change.remade for change in changes if change.remade.ids_changed]
        with FeaturesReader(folder.ledger_path) as features:
            stale = features.shards_holding([one.sample_id for one in changed])
        report = Rebuild(
            run=folder.name,
            dry_run=dry_run,
            format=config.model.format,
            profiles=profiles,
            samples=len(judgement.samples),
            ids_changed=len(changed),
            examples=tuple(one.key for one in changed[:EXAMPLES]),
            labels_changed=len(changes) - len(changed),
            troubles=tuple(Trouble(one.key, one.trouble) for one in made.values() if one.sample is None),
            evidence=moves(made, judgement, lambda label: label.evidence),
            usability=moves(made, judgement, lambda label: label.usability),
            causes=causes,
            findings=judgement.findings,
            stale=tuple(stale),
            encoders_differ=encoders_differ,
            processes=remakers.processes,
            seconds=0.0,
        )
        if spool is not None:
            write(folder, config, report, changes, spool)
        return replace(report, seconds=time.monotonic() - started)


def _asked(config: RunConfig, output_format: str | None, profile: str | None) -> RunConfig:
    """The config with the format and the profile to rebuild with."""
    chosen: dict[str, str] = {}
    if output_format is not None:
        chosen["format"] = _absolute(output_format)
    if profile is not None:
        chosen["profile"] = _absolute(profile)
    return config.model_copy(update={"model": config.model.model_copy(update=chosen)})


def _absolute(name: str) -> str:
    return str(Path(name).expanduser().absolute()) if name.endswith(".toml") else name


def _refuse_misfit(tokenizer: Tokenizer, config: RunConfig) -> None:
    fmt = load_format(config.model.format)
    missing = [special for special in fmt.specials if special not in tokenizer.vocabulary.specials]
    if missing:
        raise InputError(
            f"Format {fmt.name} needs {', '.join(missing)}, which the run's tokenizer does not have. "
            "`eagletui formats` lists the formats."
        )


def _texts(reader: LedgerReader, sample_ids: Sequence[int]) -> Iterator[str]:
    """Raw texts of some samples, for a comparison of encoders."""
    for sample_id in sample_ids:
        yield from (item.tokens.raw for item in reader.to_rebuild(sample_id - 1, 1) if item.tokens is not None)


def _settle_profiles(reader: LedgerReader, ids: RunIds) -> dict[str, ProfileChoice]:
    """Take the profile asked for, or let the first answers of each endpoint choose."""
    name = ids.config.model.profile
    fmt = fitted(ids.fmt, ids.tokenizer.vocabulary.specials)
    choices: dict[str, ProfileChoice] = {}
    for figures in reader.snapshot().endpoints:
        if not figures.samples:
            continue
        observed: list[Observed] = []
        if name == AUTO:
            wanted = replace(ANSWERED, endpoints=(figures.tag,))
            observed = list(ids.observed(reader, reader.sample_ids(wanted)[:COUNTED]))
        choices[figures.tag] = settle_profile(name, observed, fmt, measure_with(ids.tokenizer))
    return choices


def _known_causes(reader: LedgerReader) -> dict[str, Cause]:
    """Named constants that the ledger holds: a first guess that spares most samples a second rebuild."""
    by_name = {cause.name: cause for cause in CAUSES}
    return {row.tag: by_name[row.offset_cause] for row in reader.endpoints() if row.offset_cause in by_name}


def _remake_all(
    remakers: Remakers, guessed: Mapping[str, Cause], spool: Spool | None, step: Callable[[int], None]
) -> tuple[dict[int, Remade], dict[str, Cause]]:
    """Rebuild every sample under the constant that its endpoint's counts show."""
    made: dict[int, Remade] = {}
    for part in remakers.remake(guessed):
        _keep(part, made, spool)
        step(len(made))
    causes = {endpoint: verdict.cause for endpoint, verdict in _verdicts(made).items() if verdict.cause is not None}
    endpoints = {one.sample.endpoint for one in made.values() if one.sample is not None}
    moved = frozenset(endpoint for endpoint in endpoints if causes.get(endpoint) != guessed.get(endpoint))
    if moved:
        for part in remakers.remake(causes, moved):
            _keep(part, made, spool)
    return made, causes


def _keep(part: Sequence[Remade], made: dict[int, Remade], spool: Spool | None) -> None:
    for one in part:
        if spool is not None:
            if one.packed is None:
                spool.drop(one.sample_id)
            else:
                spool.put(one.sample_id, one.packed)
        made[one.sample_id] = replace(one, packed=None if one.packed is None else b"")


def _verdicts(made: Mapping[int, Remade]) -> dict[str, Verdict]:
    return endpoint_verdicts([one.sample for one in made.values() if one.sample is not None])


def _judge(made: Mapping[int, Remade], reader: LedgerReader, ids: RunIds) -> Judgement:
    """Judge endpoints and format over all samples. The samples are rebuilt under their endpoint's constant already."""
    samples = _with_parts(made, reader, ids)
    endpoints = {sample.endpoint for sample in samples}
    return judge_samples(
        samples,
        ids.tokenizer,
        ids.fmt,
        lambda position, offset: samples[position].rebuilt,
        [name for name in endpoints if ids.profile(name).losses(ids.fmt.name).arguments != "verbatim"],
    )


def _with_parts(made: Mapping[int, Remade], reader: LedgerReader, ids: RunIds) -> list[Sample]:
    """The samples, with the raw text of a few where an endpoint's fault must be named."""
    verdicts = _verdicts(made)
    named: Counter[tuple[str, bool]] = Counter()
    samples: list[Sample] = []
    for sample_id, one in made.items():
        sample = one.sample
        if sample is None:
            continue
        # A fault of the endpoint's counts is named by its texts, one of its calls by those of its calls.
        is_named = sample.split.tools or not verdicts[sample.endpoint].trusted
        if is_named and sample.rebuilt.plain_excess is not None:
            named[sample.endpoint, sample.split.tools] += 1
            if named[sample.endpoint, sample.split.tools] <= MOST_SAMPLES:
                sample = _with_text(sample, sample_id, reader, ids)
        samples.append(sample)
    return samples


def _with_text(sample: Sample, sample_id: int, reader: LedgerReader, ids: RunIds) -> Sample:
    for item in reader.to_rebuild(sample_id - 1, 1):
        reply = read_kept(item.reply.encoding, item.reply.body)
        again = ids.rebuild(reply, item.prompt, item.row.dataset, sample.endpoint)
        return replace(sample, rebuilt=replace(sample.rebuilt, parts=again.parts))
    return sample
