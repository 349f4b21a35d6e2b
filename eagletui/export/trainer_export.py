"""Export a run into a folder that SpecForge or speculators trains on, with features or with ids alone.

A second export into the same folder adds to it: rows keep their order and their side of the validation split, files
that are right stay, and the draft vocabulary is kept, so that a draft model trained before still fits. Nothing is
written before the whole set is known to fit, and a folder that is being changed says so.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

import msgspec

from eagletui.core.draft_vocabulary import DEFAULT_SIZE, DraftVocabulary, choose_vocabulary
from eagletui.core.errors import InputError, RunError
from eagletui.core.loaders import (
    SPECFORGE_OFFLINE,
    SPECFORGE_ONLINE,
    SPECULATORS_OFFLINE,
    SPECULATORS_ONLINE,
    LoaderRule,
    SampleLength,
)
from eagletui.core.row_order import VALIDATION_PERCENT, one_sided, place_rows, unusual_split
from eagletui.export import mapping, prepared, target_head, training
from eagletui.export.feature_files import FileForm, FilePlan, SpecForgeFile, SpeculatorsFile, plan_files, write_files
from eagletui.export.feature_places import feature_places
from eagletui.export.gathered import Gathered, gathered_rows, ids_digest
from eagletui.export.limits import Limits, trainer_limits
from eagletui.export.sglang_target import require_layers_as_meant, served_note
from eagletui.export.trainer_folder import (
    JOURNAL,
    ExportedRow,
    TrainerManifest,
    VocabularyFacts,
    alone,
    find_trainer_manifest,
    read_rows,
    remove_leftovers,
    require_same,
    write_rows,
    write_trainer_manifest,
)
from eagletui.export.trainer_target import ExportTarget, target_of_features, target_to_run
from eagletui.export.vocabulary import kept_vocabulary, vocabulary_digest
from eagletui.extract.space import DiskSpace, size_text
from eagletui.files.replacement import Replacement
from eagletui.ledger.reader import LedgerReader
from eagletui.models.norm import load_norm
from eagletui.runs.folder import RunFolder

_IDS_BYTES: Final = 3 * 16
"""Of one token on disk while the rows are written: spooled, as Arrow, and as Arrow once more."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a person wants of an export."""

    trainer: Literal["specforge", "speculators"]
    online: bool = False
    """Ids alone, for a trainer that runs the target itself."""
    also: tuple[str, ...] = ()
    """Usabilities beyond the default set."""
    model: Path | None = None
    """The target; None: where it lay before."""
    vocabulary_size: int | None = None
    """Of the draft model; None: what the folder has, or 32,000."""
    new_vocabulary: bool = False
    """Choose the draft vocabulary anew, although the folder has one."""
    max_length: int | None = None
    """The trainer's limit of tokens; None: its own, or more where a sample is longer."""
    remove_gone: bool = False
    """Leave rows out whose samples are not in the training set any more; others get lower numbers."""
    validation_percent: float | None = None
    """None: what the folder has, or the trainer's default."""
    step: Callable[[int, int], None] = lambda _done, _of: None
    """Told after each file of features: how many are written, out of how many."""

    @property
    def rule(self) -> LoaderRule:
        """The loader that will read the folder."""
        if self.trainer == "speculators":
            return SPECULATORS_ONLINE if self.online else SPECULATORS_OFFLINE
        return SPECFORGE_ONLINE if self.online else SPECFORGE_OFFLINE


@dataclass(frozen=True, slots=True)
class TrainerExport:
    """What was written, and what a trainer would make of it."""

    out: Path
    manifest: TrainerManifest
    validation_rows: int
    added: int
    """Samples that were not in the folder before."""
    files_written: int
    """Of features, by this export."""
    bytes: int
    """Of all feature files."""
    lengths: tuple[SampleLength, ...]
    """Of every sample."""
    served: int | None
    """Tokens of the longest sample that the trainer's server takes; None: any."""
    largest: int | None
    """The largest limit of tokens that it starts with; None: any."""
    by_text_changed: int
    """Samples whose ids would be others if their text were given to the trainer."""
    coverage: float
    """Share of sampled tokens that the draft vocabulary holds."""
    commands: tuple[str, ...]
    """In order; the last one trains. None for a set that the trainer refuses."""
    notes: tuple[str, ...]
    """What to know before training, one sentence each."""
    removed: int = 0
    """Samples that were in the folder and are in the training set no more."""


def export_for_trainer(folder: RunFolder, out: Path, asked: Asked) -> TrainerExport:
    """Export a run's training set into a trainer's folder.

    Args:
        folder: the run.
        out: the folder; made if needed. One of an earlier export of the same run is added to.
        asked: what is wanted.

    Raises:
        InputError: a flag does not fit, a package is missing, or the set does not fit on the disk.
        RunError: the run has nothing to export, or the folder is another one's.
        ModelError: the target is not the one of the features, or the trainer's server would take its layers for others.
    """
    if asked.trainer == "speculators":
        if asked.validation_percent == 0:
            raise InputError(
                "--validation: found 0, expected more: speculators refuses a set without rows to validate on (its "
                "--train-data-ratio lies between 0 and 1). Nothing was written."
            )
        prepared.require_datasets()
    out = out.absolute()
    try:
        with LedgerReader(folder.ledger_path) as reader:
            if asked.online:
                target = target_to_run(folder, reader, asked.model)
                if asked.trainer == "specforge":
                    require_layers_as_meant(target.checkpoint, target.facts.layers_output, folder.argument)
            else:
                computes = asked.trainer == "specforge"
                target = target_of_features(folder, reader, asked.model, compute=computes)
            return _export(folder, out, asked, reader, target)
    except OSError as error:
        raise RunError(f"{out} cannot be written: {error.strerror or error}.") from error


def _export(folder: RunFolder, out: Path, asked: Asked, reader: LedgerReader, target: ExportTarget) -> TrainerExport:
    parent = next(path for path in (out, *out.parents) if path.exists())
    places = None if asked.online else feature_places(folder, reader)
    with ExitStack() as stack:
        if parent == out:
            stack.enter_context(alone(out))
        earlier, before = _earlier(out)
        if parent == out:
            remove_leftovers(out)
        gathered = stack.enter_context(gathered_rows(reader, parent, also=asked.also, only=places))
        percent = _validation_percent(asked, earlier)
        placed = place_rows([row.placed for row in before], gathered.keys, percent, remove_gone=asked.remove_gone)
        rows = [_row(place.sample_key, place.part, place.since, gathered) for place in placed]
        vocabulary, facts = _vocabulary(out, asked, earlier, gathered, target, before, rows)
        limits = trainer_limits(asked.rule, asked.max_length, gathered.longest, target.checkpoint, online=asked.online)
        commands = _commands(out, asked, target, vocabulary, limits, rows)
        manifest = _manifest(folder, reader, asked, target, gathered, rows, facts, percent)
        manifest = replace(manifest, command=commands[-1] if commands else "", max_length=limits.max_length)
        if earlier is not None:
            require_same(out, earlier, manifest)
        form, plan = None, None
        if places is not None:
            form = _form(asked, target)
            plan = plan_files(out, form, rows, places, target.facts.hidden_size)
        head = target_head.needed(asked.rule, target.checkpoint, online=asked.online)
        needed = 0 if plan is None else plan.bytes
        needed += 0 if head is None else target_head.head_bytes(out, head, target.facts.xxh3)
        _require_room(parent, needed + _IDS_BYTES * gathered.census.tokens)
        if parent != out:
            out.mkdir(mode=0o700, parents=True, exist_ok=True)
            stack.enter_context(alone(out))
        write_trainer_manifest(out, manifest)
        with suppress(FileNotFoundError):
            (out / prepared.STATE_FILE).unlink()
        if form is not None and plan is not None and places is not None:
            rows = write_files(out, form, plan, rows, places, folder.features_dir, gathered, asked.step)
        if head is not None:
            target_head.write_head(out, head, target.facts.xxh3)
        _write_rest(out, asked, target, gathered, rows, vocabulary, limits.max_length)
        write_rows(out, rows)
        (out / JOURNAL).unlink(missing_ok=True)
        manifest = replace(manifest, complete=True)
        write_trainer_manifest(out, manifest)
        kept = len({row.sample for row in rows} & {row.sample for row in before})
        done = _told(folder, out, asked, target, gathered, rows, kept, manifest, plan, vocabulary, commands, limits)
        return replace(done, removed=len(before) - kept)


def _earlier(out: Path) -> tuple[TrainerManifest | None, list[ExportedRow]]:
    """Return what the folder holds already.

    Raises:
        RunError: it is somebody else's.
    """
    if not out.exists():
        return None, []
    manifest = find_trainer_manifest(out)
    if manifest is None and any(out.iterdir()):
        raise RunError(f"{out} is not empty and is no export of a run for a trainer. Name another folder with --out.")
    rows = read_rows(out)
    return (manifest if rows else None), rows


def _validation_percent(asked: Asked, earlier: TrainerManifest | None) -> float:
    if asked.trainer == "specforge":
        return 0.0  # it takes a second folder to validate on, so its one has no such rows
    if asked.validation_percent is not None:
        return asked.validation_percent
    return VALIDATION_PERCENT if earlier is None else earlier.validation_percent


def _row(key: str, part: Literal["train", "validation"], since: int, gathered: Gathered) -> ExportedRow:
    sample = gathered.sample(key)
    return ExportedRow(key, part, since, len(sample.token_ids), sample.prompt_tokens, ids_digest(sample.token_ids))


def _vocabulary(
    out: Path,
    asked: Asked,
    earlier: TrainerManifest | None,
    gathered: Gathered,
    target: ExportTarget,
    before: list[ExportedRow],
    rows: list[ExportedRow],
) -> tuple[DraftVocabulary, VocabularyFacts]:
    """Keep the folder's draft vocabulary, or choose one."""
    if earlier is None or asked.new_vocabulary:
        size = asked.vocabulary_size or DEFAULT_SIZE
        chosen = choose_vocabulary(gathered.counts, size, target.facts.vocab_size)
        now, digest = max(row.since for row in rows), vocabulary_digest(chosen)
        return chosen, VocabularyFacts(chosen.size, chosen.target_size, now, False, digest)
    kept, facts = kept_vocabulary(out, earlier, asked.vocabulary_size), earlier.vocabulary
    ids = {row.sample: row.ids_digest for row in rows}
    changed = any(row.since <= facts.since and ids.get(row.sample) != row.ids_digest for row in before)
    return kept, replace(facts, ids_changed=facts.ids_changed or changed)


def _form(asked: Asked, target: ExportTarget) -> FileForm:
    if asked.trainer == "speculators":
        return SpeculatorsFile(fp8=target.facts.stored == "fp8")
    assert target.features is not None
    return SpecForgeFile(load_norm(Path(target.facts.path), target.features.dtype))


def _commands(
    out: Path,
    asked: Asked,
    target: ExportTarget,
    vocabulary: DraftVocabulary,
    limits: Limits,
    rows: list[ExportedRow],
) -> list[str]:
    if asked.trainer == "specforge":
        return training.specforge_commands(out, target.facts, limits.max_length, online=asked.online)
    train_rows = sum(row.part == "train" for row in rows)
    if not 0 < train_rows < len(rows):
        return []  # the trainer refuses it; a note says what to do
    ratio = training.train_ratio(train_rows, len(rows))
    return training.speculators_commands(
        out,
        target.facts,
        target.name,
        vocabulary.size,
        limits.max_length,
        ratio,
        server_length=limits.server_length,
    )


def _manifest(
    folder: RunFolder,
    reader: LedgerReader,
    asked: Asked,
    target: ExportTarget,
    gathered: Gathered,
    rows: list[ExportedRow],
    vocabulary: VocabularyFacts,
    percent: float,
) -> TrainerManifest:
    run, census = reader.run(), gathered.census
    norm: Literal["pre", "post"] = "pre" if asked.trainer == "speculators" else "post"
    return TrainerManifest(
        trainer=asked.trainer,
        trainer_version=asked.rule.version,
        route="online" if asked.online else "offline",
        run=run.name,
        ledger=str(folder.ledger_path.absolute()),
        served_model=run.model_id,
        output_format=run.format,
        tokenizer_hash=run.tokenizer_hash,
        template_hash=run.template_hash,
        also_included=asked.also,
        validation_percent=percent,
        exports=max(row.since for row in rows),
        target=target.facts,
        last_hidden_norm=None if asked.online else norm,
        vocabulary=vocabulary,
        created_at=time.time(),
        command="",
        max_length=0,
        samples=census.samples,
        tokens=census.tokens,
        sampled_tokens=census.sampled_tokens,
        by_evidence=dict(census.evidence),
        by_usability=dict(census.usability),
        by_dataset=dict(census.dataset),
        left_out=dict(census.left_out),
        verdicts=tuple(verdict.sentence for verdict in reader.verdicts()),
        complete=False,
    )


def _require_room(parent: Path, needed: int) -> None:
    free = DiskSpace(parent).free_bytes()
    if needed > free:
        raise InputError(
            f"The export needs {size_text(needed)}, but {parent} has {size_text(max(0, free))} to give. Name a larger "
            "disk with --out, or export the ids alone with --online. Nothing was written."
        )


def _write_rest(
    out: Path,
    asked: Asked,
    target: ExportTarget,
    gathered: Gathered,
    rows: list[ExportedRow],
    vocabulary: DraftVocabulary,
    max_length: int,
) -> None:
    """Write everything but the feature files; what makes the folder load comes last."""
    samples = (gathered.sample(row.sample) for row in rows)
    if asked.trainer == "speculators":
        prepared.write_frequencies(out, gathered.counts)
        prepared.write_vocabulary(out, vocabulary)
        prepared.write_dataset(out, samples)
        return
    mapping.write_mapping(out, vocabulary)
    training.write_specforge_configs(
        out, target.facts, target.name, target.checkpoint, vocabulary.size, max_length, online=asked.online
    )
    if asked.online:
        with Replacement(out / training.PROMPTS_FILE) as stream:
            for sample in samples:
                line = {"id": sample.key, "input_ids": sample.token_ids.tolist(), "loss_mask": sample.loss_mask}
                stream.write(msgspec.json.encode(line) + b"\n")


def _told(
    folder: RunFolder,
    out: Path,
    asked: Asked,
    target: ExportTarget,
    gathered: Gathered,
    rows: list[ExportedRow],
    rows_before: int,
    manifest: TrainerManifest,
    plan: FilePlan | None,
    vocabulary: DraftVocabulary,
    commands: list[str],
    limits: Limits,
) -> TrainerExport:
    validation_rows = sum(row.part == "validation" for row in rows)
    split = unusual_split(len(rows), validation_rows, manifest.validation_percent)
    if asked.trainer == "speculators":
        split = one_sided(len(rows), validation_rows, folder.argument, computed=not asked.online) or split
    lengths = tuple(gathered.lengths())
    notes = training.notes(asked.trainer, target.name, target.checkpoint, online=asked.online)
    served = served_note(target.checkpoint, target.facts.layers_output) if asked.trainer == "specforge" else None
    return TrainerExport(
        out=out,
        manifest=manifest,
        validation_rows=validation_rows,
        added=len(rows) - rows_before,
        files_written=0 if plan is None else len(plan.missing),
        bytes=sum(row.feature.bytes for row in rows if row.feature is not None),
        lengths=lengths,
        served=limits.served,
        largest=limits.largest,
        by_text_changed=gathered.by_text_changed,
        coverage=vocabulary.coverage(gathered.counts),
        commands=tuple(commands),
        notes=(*notes, *limits.notes(lengths), *(note for note in (served, split) if note is not None)),
    )
