"""Check a folder exported for a trainer: what its loader would see, and everything that loaders do not look at.

A trainer takes states after the norm for states before it, streams of other layers, zeros and a vocabulary of other
data without a word. Here each file is held to its hash, its ids to the ledger, its streams to a fresh forward, and the
draft vocabulary to the rows it was chosen from.
"""

import pickle
import random
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Literal

import torch

from eagletui.core.checks import Check, Faults, Verdict
from eagletui.core.draft_vocabulary import choose_vocabulary, read_vocabulary
from eagletui.core.errors import RunError
from eagletui.core.features import DTYPES, DType, FeatureLayers
from eagletui.export import prepared, target_head
from eagletui.export.config_check import check_configs
from eagletui.export.feature_files import FileForm, SpecForgeFile, SpeculatorsFile, files_like
from eagletui.export.gathered import ids_digest
from eagletui.export.head_check import check_head
from eagletui.export.ledger_ids import LedgerSample, find_ledger, ledger_samples
from eagletui.export.rows import DEFAULT_SET
from eagletui.export.trainer_files import read_record, trainer_rows
from eagletui.export.trainer_folder import JOURNAL, ExportedRow, TrainerManifest, read_rows
from eagletui.export.vocabulary import load_vocabulary, vocabulary_digest
from eagletui.extract.checks import Comparing, judge, worth_comparing
from eagletui.extract.shards import Record, hash_file
from eagletui.models.checkpoint import read_checkpoint
from eagletui.models.load import TargetModel, load_target

_SEED: Final = 7


def verify_export(
    folder: Path,
    manifest: TrainerManifest,
    model: Path,
    *,
    compared: int | None = None,
    device: str = "auto",
    on_row: Callable[[int, int], None] = lambda _done, _of: None,
) -> Verdict:
    """Check every file and value of a folder, and the streams of some rows.

    Args:
        folder: the exported folder.
        manifest: its manifest.
        model: the target model.
        compared: how many rows to run a fresh forward over; None: see `worth_comparing`.
        device: where to run it.
        on_row: told after each row: how many are read, out of how many.

    Raises:
        RunError: the folder's own lists cannot be read.
        ModelError: the model does not load.
    """
    rows = read_rows(folder)
    target = load_target(model, dtype=_dtype(manifest), device=device) if manifest.route == "offline" else None
    comparing = None if target is None else _comparing(manifest, target)
    reading = _Reading(folder, manifest, rows, comparing)
    count = worth_comparing(len(rows), 1) if compared is None else min(compared, len(rows))
    picked = set(random.Random(_SEED).sample(range(len(rows)), k=count))
    for number, row in enumerate(rows):
        reading.read(number, row, number in picked)
        on_row(number + 1, len(rows))
    counts = reading.counts if reading.counted_rows == len(rows) else None
    checks = [*reading.checks(), *_vocabulary(folder, manifest, counts)]
    if manifest.trainer == "specforge":
        checkpoint = read_checkpoint(model) if (model / "config.json").is_file() else None
        checks += check_configs(folder, manifest, checkpoint)
        if checkpoint is not None and manifest.route == "offline" and target_head.is_needed(checkpoint):
            checks.append(check_head(folder, checkpoint))
    if comparing is not None:
        comparing.close()
    if target is not None:
        checks += _against_model(manifest, target, comparing)
        if target.vocab_size < manifest.vocabulary.target_size:
            checks.append(_vocabulary_size(manifest, target.vocab_size))
    else:
        checks.append(_vocabulary_size(manifest, read_checkpoint(model).vocab_size))
    found = len(comparing.found) if comparing else 0
    return Verdict(tuple(checks), len(rows), sum(row.tokens for row in rows), reading.files, found)


class _Reading:
    """Reads row after row and gathers what is wrong with them."""

    def __init__(
        self, folder: Path, manifest: TrainerManifest, rows: list[ExportedRow], comparing: Comparing | None
    ) -> None:
        self.folder = folder
        self.manifest = manifest
        self.rows = rows
        self.files = 0
        self.comparing = comparing
        self.counts: Counter[int] = Counter()
        """Sampled tokens of the rows that the draft vocabulary was chosen from."""
        self.all_counts: Counter[int] = Counter()
        self.counted_rows = 0
        self._form: FileForm = SpeculatorsFile() if manifest.trainer == "speculators" else SpecForgeFile(_no_norm)
        ledger = find_ledger(folder, manifest.ledger, manifest.run)
        self._ledger_samples = None if ledger is None else ledger_samples(ledger)
        self._evidence: Counter[str] = Counter()
        self._usability: Counter[str] = Counter()
        self._complete = Faults("complete", "the last export into this folder came to its end")
        self._files = Faults("files", "every row's file has its size and hash, and no other is there")
        self._layout = Faults("layout", "tensors have the names, shapes and types that the trainer reads")
        self._ids = Faults("ids", "ids and masks are those that were exported, in every place they stand")
        self._values = Faults("values", "all states are finite and no row is zero")
        self._ledger = Faults("ledger", "ids are those of the ledger, which has each sample in the training set")
        self._labels = Faults("labels", "evidence and usability are counted as in the ledger", level="warn")
        self._read_rows = 0
        self._trainer_rows = trainer_rows(folder, manifest, len(rows), self._layout)

    def read(self, number: int, row: ExportedRow, is_picked: bool) -> None:
        """Check one row; keep its features where it is picked."""
        read = next(self._trainer_rows, None)
        ids = None if read is None else read.token_ids
        if read is not None:
            self._read_rows += 1
            self._check_ids(f"row {number}", row, read.token_ids, read.loss_mask)
            if read.key not in (None, row.sample):
                self._ids.add(f"row {number} is named {read.key} where the trainer reads it, not {row.sample}")
        if self._ledger_samples is not None:
            self._check_ledger(number, row, self._ledger_samples.get(row.sample))
        record = None if row.feature is None else self._feature(number, row)
        if record is not None:
            ids = record.token_ids.tolist()
            self._check_ids(self._form.path(number), row, ids, record.loss_mask.tolist())
            if self._check_values(record, number) and is_picked and self.comparing is not None:
                self.comparing.add(record)
        if ids is not None:
            sampled = ids[row.prompt_tokens :]
            self.counted_rows += 1
            self.all_counts.update(sampled)
            if row.since <= self.manifest.vocabulary.since:
                self.counts.update(sampled)

    def checks(self) -> Iterator[Check]:
        """Yield the answers."""
        for _beyond in self._trainer_rows:  # what lies behind the last row is counted, and is a fault
            pass
        if not self.manifest.complete or (self.folder / JOURNAL).exists():
            self._complete.add("an export into this folder was interrupted: export again, it goes on where it was")
        if not self.rows:
            self._files.add("there are no rows")
        vocab_size, counted = self.manifest.target.vocab_size, self.manifest.vocabulary.target_size
        if vocab_size != counted:
            self._files.add(f"the manifest says {vocab_size} target tokens, its draft vocabulary {counted}")
        stated = (self.manifest.samples, self.manifest.tokens)
        listed = (len(self.rows), sum(row.tokens for row in self.rows))
        if stated != listed:
            self._files.add(
                f"the manifest says {stated[0]} samples of {stated[1]} tokens, the rows are {listed[0]} of {listed[1]}"
            )
        sampled = listed[1] - sum(row.prompt_tokens for row in self.rows)
        if self.manifest.sampled_tokens != sampled:
            self._files.add(f"the manifest says {self.manifest.sampled_tokens} sampled tokens, the rows have {sampled}")
        with_features = sum(row.feature is not None for row in self.rows)
        if with_features != (len(self.rows) if self.manifest.route == "offline" else 0):
            self._files.add(
                f"the manifest says that the trainer reads this folder {self.manifest.route}, and {with_features} of "
                f"{len(self.rows)} rows have files with features"
            )
        wanted = {row.feature.path for row in self.rows if row.feature is not None}
        for stray in files_like(self.folder, self._form.loaded):
            if stray not in wanted:
                self._files.add(f"{stray} is of no row, and the trainer would train on it")
        if self.manifest.trainer == "speculators":
            self._check_frequencies()
        for faults in (self._complete, self._files, self._layout, self._ids, self._values):
            yield faults.check()
        if self._ledger_samples is None:
            where = f"no ledger of run {self.manifest.run} is at {self.manifest.ledger} any more"
            yield Check("ledger", False, "warn", f"{where}: ids were held to the export's own list alone")
        else:
            yield self._ledger.check()
            yield self._check_labels()

    def _check_ledger(self, number: int, row: ExportedRow, known: LedgerSample | None) -> None:
        if known is None:
            self._ledger.add(
                f"{row.sample} in row {number} is no sample of this run's that can be exported now: export again with "
                "--remove-gone"
            )
            return
        self._evidence[known.evidence] += 1
        self._usability[known.usability] += 1
        if known.ids_digest != row.ids_digest:
            self._ledger.add(f"{row.sample} in row {number} has other ids than the ledger: export again")
        elif known.usability not in (*DEFAULT_SET, *self.manifest.also_included):
            self._ledger.add(
                f"{row.sample} in row {number} is {known.usability} in the ledger now, and not to train on: export "
                "again with --remove-gone"
            )

    def _check_labels(self) -> Check:
        for name, stated, found in (
            ("evidence", self.manifest.by_evidence, dict(self._evidence)),
            ("usability", self.manifest.by_usability, dict(self._usability)),
        ):
            if stated != found:
                self._labels.add(f"{name} is {stated} in the manifest and {found} in the ledger now: export again")
        return self._labels.check()

    def _feature(self, number: int, row: ExportedRow) -> Record | None:
        assert row.feature is not None
        file = self.folder / row.feature.path
        if row.feature.path != self._form.path(number):
            self._files.add(f"{row.feature.path} belongs to row {number}, whose file is {self._form.path(number)}")
        try:
            size = file.stat().st_size
        except OSError:
            self._files.add(f"{row.feature.path} is missing")
            return None
        if size != row.feature.bytes:
            self._files.add(f"{row.feature.path} has {size} bytes instead of {row.feature.bytes}")
        elif hash_file(file) != row.feature.xxh3:
            self._files.add(f"{row.feature.path} was changed after it was written: its hash differs")
        self.files += 1
        try:
            return read_record(file.read_bytes(), row, self.manifest)
        except (OSError, ValueError) as error:
            self._layout.add(f"{row.feature.path} {error}")
            return None

    def _check_ids(self, where: str, row: ExportedRow, ids: list[int], mask: list[int]) -> None:
        if len(ids) != row.tokens or ids_digest(array("i", ids)) != row.ids_digest:
            self._ids.add(f"{where} holds other ids than were exported for {row.sample}")
        elif mask != [0] * row.prompt_tokens + [1] * (row.tokens - row.prompt_tokens):
            self._ids.add(f"{where} holds another mask than was exported for {row.sample}")

    def _check_values(self, record: Record, number: int) -> bool:
        states = record.hidden_states
        finite = bool(torch.isfinite(states).all())
        if not finite:
            self._values.add(f"{record.key} in row {number} has states that are not finite")
        zero = (states == 0).all(dim=-1).any(dim=-1).nonzero().flatten().tolist()
        if zero:
            self._values.add(
                f"{record.key} in row {number} has {len(zero)} tokens with a stream of zeros, the first is {zero[0]}"
            )
        return finite

    def _check_frequencies(self) -> None:
        path = self.folder / prepared.FREQUENCIES_FILE
        try:
            stored = torch.load(path, weights_only=True)
        except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
            self._files.add(f"{path.name} cannot be read: {error}")
            return
        if self._read_rows == len(self.rows) and stored != dict(self.all_counts):
            self._ids.add(f"{path.name} does not count the tokens of these rows")


def _no_norm(_states: Any) -> Any:
    raise AssertionError("a check writes no files")


def _vocabulary(folder: Path, manifest: TrainerManifest, counts: Counter[int] | None) -> Iterator[Check]:
    """Check the draft vocabulary; without counts, where rows could not be read, not against the rows."""
    facts = manifest.vocabulary
    chosen = "not held to its rows, which cannot all be read" if counts is None else "chosen from its rows"
    faults = Faults("vocabulary", f"the draft vocabulary is the one of export {facts.since}, {chosen}")
    level: Literal["error", "warn"] = "error"
    try:
        vocabulary = read_vocabulary(*load_vocabulary(folder, manifest.trainer, facts.size))
    except (OSError, ValueError) as error:
        faults.add(f"d2t and t2d cannot be used: {error}")
        yield faults.check()
        return
    if (vocabulary.size, vocabulary.target_size) != (facts.size, facts.target_size):
        faults.add(
            f"it is of {vocabulary.size} of {vocabulary.target_size} tokens, not {facts.size} of {facts.target_size}"
        )
    elif vocabulary_digest(vocabulary) != facts.sha256:
        faults.add("it is not the one that was exported: stale, or another folder's")
    elif counts == Counter():
        level = "warn" if facts.ids_changed else "error"
        faults.add(f"it was chosen from the rows of export {facts.since}, and no row is of it")
    elif counts and choose_vocabulary(counts, facts.size, facts.target_size) != vocabulary:
        level = "warn" if facts.ids_changed else "error"
        faults.add("the rows it was chosen from give another one: stale. Export with --new-vocabulary, or keep it")
    check = faults.check()
    yield Check(check.name, check.ok, level if not check.ok else "error", check.detail)


def _vocabulary_size(manifest: TrainerManifest, model_size: int) -> Check:
    fits = manifest.vocabulary.target_size == model_size
    detail = f"draft vocabulary and model count {model_size} target tokens"
    if not fits:
        detail = f"the draft vocabulary counts {manifest.vocabulary.target_size} target tokens, the model {model_size}"
    return Check("vocabulary_size", fits, "error", detail)


def _comparing(manifest: TrainerManifest, target: TargetModel) -> Comparing | None:
    """Hook the model; None where it has other sizes than the one the features were made with."""
    facts = manifest.target
    if (target.hidden_size, target.num_layers) != (facts.hidden_size, facts.num_layers):
        return None
    layers = FeatureLayers(facts.num_layers, facts.layers_entering)
    return Comparing(target, layers, manifest.last_hidden_norm or "pre", was_fp8=facts.stored == "fp8")


def _against_model(manifest: TrainerManifest, target: TargetModel, comparing: Comparing | None) -> Iterator[Check]:
    facts = manifest.target
    same = target.hash.xxh3 == facts.xxh3
    detail = f"the files of {target.path} are those the features were made with"
    if not same:
        detail = f"the files of {target.path} are not those the features were made with ({facts.path})"
    yield Check("model", same, "error", detail)
    yield _conventions(manifest)
    if comparing is None:
        sizes = f"{target.num_layers} layers of width {target.hidden_size}"
        stated = f"{facts.num_layers} of width {facts.hidden_size}"
        yield Check("streams", False, "error", f"the model has {sizes}, the manifest says {stated}")
        return
    yield from judge(comparing.found)


def _conventions(manifest: TrainerManifest) -> Check:
    facts = manifest.target
    wanted = "pre" if manifest.trainer == "speculators" else "post"
    faults = Faults(
        "conventions",
        f"{manifest.trainer} gets layers {list(_numbered(manifest))} and the last stream {wanted}-norm",
    )
    if manifest.last_hidden_norm != wanted:
        faults.add(
            f"the last stream is stated to be {manifest.last_hidden_norm}-norm, {manifest.trainer} wants {wanted}"
        )
    if facts.layers_output != tuple(layer - 1 for layer in facts.layers_entering):
        faults.add(f"layers {list(facts.layers_output)} are not the outputs before {list(facts.layers_entering)}")
    return faults.check()


def _numbered(manifest: TrainerManifest) -> tuple[int, ...]:
    facts = manifest.target
    return facts.layers_entering if manifest.trainer == "speculators" else facts.layers_output


def _dtype(manifest: TrainerManifest) -> DType:
    for dtype in DTYPES:
        if dtype == manifest.target.dtype:
            return dtype
    raise RunError(f"The manifest states features in {manifest.target.dtype}; expected {', '.join(DTYPES)}.")
