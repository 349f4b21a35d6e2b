"""Check a file of ids as `export --to jsonl`, `parquet` and `torchspec` write it: all that a trainer takes unseen.

Each file is held to its size and hash, each row to what a row is and to the ledger, their number and their sides to the
manifest, and TorchSpec's cache to the file that it stands for. No model is run: ids come from the ledger, not from it.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from eagletui.core.checks import Check, Faults, Verdict
from eagletui.core.features import sampled_mask
from eagletui.core.row_order import VALIDATION_PERCENT, joins_validation
from eagletui.export import jsonl, parquet
from eagletui.export.ledger_ids import find_ledger
from eagletui.export.ledger_rows import LedgerRows
from eagletui.export.rows import DEFAULT_SET, TrainingRow
from eagletui.export.token_manifest import FileFacts, TokenManifest
from eagletui.export.token_rows import rows_of_lines, rows_of_parquet
from eagletui.export.token_target import TokenTarget, read_target
from eagletui.export.torchspec_config import check_config

_LARGEST_ID: Final = 2**31 - 1


def verify_tokens(
    folder: Path,
    manifest: TokenManifest,
    model: Path | None,
    *,
    on_row: Callable[[int, int], None] = lambda _done, _of: None,
) -> Verdict:
    """Check every row of a folder with files of ids.

    Args:
        folder: the exported folder.
        manifest: its manifest.
        model: the target, whose vocabulary and positions the ids are held to; None: they are held to none.
        on_row: told after each row: how many are read, out of how many.

    Raises:
        InputError: the package that reads the files is not installed.
        ModelError: the target's config cannot be read.
        LedgerError: the run's ledger is there and cannot be read.
    """
    target = None if model is None else read_target(model)
    reading = _Reading(folder, manifest, target)
    for file in manifest.files:
        for row in reading.rows(file):
            on_row(reading.samples, manifest.samples)
            reading.check(row, file)
    checks = list(reading.checks())
    if manifest.format == parquet.FORMAT or manifest.torchspec is not None:
        apart = None if manifest.validation_file is None else manifest.validation_file.file
        longest = reading.longest if manifest.format == parquet.FORMAT else None
        checks += check_config(folder, manifest.file, apart, longest)
    if manifest.torchspec is not None:
        from eagletui.export.cache_check import check_cache

        checks += check_cache(folder, manifest)
    return Verdict(tuple(checks), reading.samples, reading.tokens, len(manifest.files), 0)


class _Reading:
    """Reads row after row and gathers what is wrong with them."""

    def __init__(self, folder: Path, manifest: TokenManifest, target: TokenTarget | None) -> None:
        self.folder = folder
        self.manifest = manifest
        self.target = target
        self.samples = 0
        self.tokens = 0
        self.longest = 0
        self._sampled = 0
        self._evidence: Counter[str] = Counter()
        self._usability: Counter[str] = Counter()
        self._seen: set[str] = set()
        self._too_long = 0
        self._held_out = 0
        self._joining = 0
        """Rows whose prompt is one to validate on."""
        ledger = find_ledger(folder, manifest.ledger, manifest.run)
        self._ledger_rows = None if ledger is None else LedgerRows(ledger, manifest.also_included)
        self._files = Faults("files", "each file has its size and hash, and no other is there")
        self._layout = Faults("layout", "every row can be read as a trainer reads it")
        self._ids = Faults("ids", "ids are whole numbers, masks mark what was sampled, no sample is there twice")
        self._counts = Faults("counts", "samples, tokens, evidence and usability are those of the manifest")
        self._split = Faults("split", "each prompt lies on its side of the split")
        self._ledger = Faults("ledger", "ids, evidence and usability are those of the ledger, in its order")

    def rows(self, facts: FileFacts) -> Iterator[TrainingRow]:
        """Read the rows of a file, after its size and hash."""
        path = self.folder / facts.file
        try:
            size = path.stat().st_size
            if size != facts.bytes:
                self._files.add(f"{facts.file} has {size} bytes instead of {facts.bytes}")
            elif _sha256(path) != facts.sha256:
                self._files.add(f"{facts.file} was changed after it was written: its hash differs")
            read = rows_of_lines if self.manifest.format == jsonl.FORMAT else rows_of_parquet
            yield from read(path, self._layout)
        except FileNotFoundError:
            self._files.add(f"{facts.file} is missing")
        except OSError as error:
            self._files.add(f"{facts.file} cannot be read: {error.strerror or error}")

    def check(self, row: TrainingRow, file: FileFacts) -> None:
        """Check one row."""
        number = self.samples
        self.samples += 1
        self.tokens += len(row.input_ids)
        self.longest = max(self.longest, len(row.input_ids))
        self._sampled += row.output_tokens
        self._evidence[row.evidence] += 1
        self._usability[row.usability] += 1
        if row.id in self._seen:
            self._ids.add(f"{row.id} is there twice")
        self._seen.add(row.id)
        self._check_ids(row)
        is_held_out = None if self.manifest.validation_rows is None else self.manifest.is_held_out(number, file)
        if is_held_out is not None:
            self._check_side(row, is_held_out)
        if self._ledger_rows is not None:
            for fault in self._ledger_rows.faults(row, is_held_out):
                self._ledger.add(fault)

    def checks(self) -> Iterator[Check]:
        """Yield the answers."""
        stray = {jsonl.FORMAT: jsonl.VALIDATION_FILE, parquet.FORMAT: parquet.VALIDATION_FILE}[self.manifest.format]
        if self.manifest.validation_file is None and (self.folder / stray).exists():
            self._files.add(f"{stray} is of another export: the manifest names no such file")
        self._check_counts()
        if self.samples and self._joining == self.samples:
            self._check_all_on_one_side()
        for faults in (self._files, self._layout, self._ids, self._counts):
            yield faults.check()
        if self.manifest.validation_rows is not None:
            yield self._split.check()
        if self._ledger_rows is None:
            where = f"no ledger of run {self.manifest.run} is at {self.manifest.ledger or 'the usual place'}"
            yield Check("ledger", False, "warn", f"{where}: ids were held to no other record of them")
        else:
            if self._ledger_rows.tokenizer_hash != self.manifest.tokenizer_hash:
                self._ledger.add("the manifest names another tokenizer than the ledger")
            if more := self._ledger_rows.more:
                self._ledger.fine += f"; {more:,} more samples are there now"
            yield self._ledger.check()
        if self.target is not None:
            yield from self._against_target(self.target)

    def _check_ids(self, row: TrainingRow) -> None:
        prompt, output = row.prompt_tokens, row.output_tokens
        largest = _LARGEST_ID if self.target is None else self.target.vocab_size - 1
        if len(row.input_ids) != prompt + output or len(row.loss_mask) != len(row.input_ids):
            lengths = f"{len(row.input_ids)} ids and a mask of {len(row.loss_mask)}"
            self._ids.add(f"{row.id} has {lengths}, and states {prompt} tokens of prompt and {output} of answer")
        elif not prompt or not output or row.loss_mask != sampled_mask(prompt, output):
            self._ids.add(f"{row.id} has a mask that does not mark its answer and nothing else")
        elif min(row.input_ids) < 0 or max(row.input_ids) > largest:
            self._ids.add(f"{row.id} holds an id outside the vocabulary")
        if self.target is not None and self.target.positions is not None:
            self._too_long += len(row.input_ids) > self.target.positions

    def _check_side(self, row: TrainingRow, is_held_out: bool) -> None:
        joins = joins_validation(row.id, VALIDATION_PERCENT)
        self._joining += joins
        self._held_out += is_held_out
        if joins != is_held_out:
            side, other = ("to train on", "to validate on") if joins else ("to validate on", "to train on")
            self._split.add(f"{row.id} lies with the rows {side}, and its prompt is one {other}")

    def _check_all_on_one_side(self) -> None:
        """Judge a set whose prompts are all ones to validate on: all of it is to train on."""
        self._split = Faults(self._split.name, self._split.fine)
        if self._held_out:
            self._split.add("all rows are of prompts to validate on, and then none is held out")

    def _check_counts(self) -> None:
        manifest = self.manifest
        pairs: tuple[tuple[str, object, object], ...] = (
            ("samples", manifest.samples, self.samples),
            ("tokens", manifest.tokens, self.tokens),
            ("sampled_tokens", manifest.sampled_tokens, self._sampled),
            ("by_evidence", manifest.by_evidence, dict(self._evidence)),
            ("by_usability", manifest.by_usability, dict(self._usability)),
        )
        for name, stated, found in pairs:
            if stated != found:
                self._counts.add(f"{name} is {stated} in the manifest, and {found} in the rows")
        unasked = set(self._usability) - {*DEFAULT_SET, *manifest.also_included}
        if unasked:
            self._counts.add(f"{', '.join(sorted(unasked))} rows are there, which were not asked for")

    def _against_target(self, target: TokenTarget) -> Iterator[Check]:
        yield Check("vocabulary", True, "error", f"ids were held to {target.vocab_size:,} target tokens")
        if target.positions is not None:
            detail = f"no row is longer than the {target.positions:,} positions of the target"
            if self._too_long:
                detail = f"{self._too_long:,} rows are longer than the {target.positions:,} positions of the target"
            yield Check("positions", not self._too_long, "warn", detail)


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
