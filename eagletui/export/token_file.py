"""Write a run's training set as one file of ids with a manifest beside it: what JSONL and Parquet share."""

import hashlib
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, Protocol, Self

import msgspec

from eagletui.core.errors import RunError
from eagletui.core.loaders import SampleLength
from eagletui.export.held_out import validation_last
from eagletui.export.rows import Census, TrainingRow, selected_rows, training_rows
from eagletui.export.selection import Selection
from eagletui.files.replacement import Replacement, made
from eagletui.ledger.reader import LedgerReader
from eagletui.runs.folder import RunFolder

MANIFEST_FILE: Final = "manifest.json"


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written."""

    file: Path
    manifest: Path
    bytes: int
    sha256: str
    census: Census
    lengths: tuple[SampleLength, ...]
    """Of every sample, in file order."""
    model_id: str
    """The target's name at the API."""
    by_text_changed: int
    """Samples whose proved ids would be others if their text were given to a trainer; a hidden tail alone does not
    count."""
    validation_rows: int
    """Last rows of the file, or those of the second one; none in a selection."""
    is_split: bool
    """Rows to validate on lie last; a selection keeps its own order."""
    validation_file: Path | None = None
    """Where they lie, if not in the same file."""


class RowSink(Protocol):
    """Turns rows into a file's bytes."""

    def add(self, row: TrainingRow) -> None:
        """Take one row."""

    def finish(self) -> None:
        """Write what is still held back."""


@dataclass(slots=True)
class CountedStream:
    """A file that knows its size and hash, for writers that only go forward."""

    _stream: IO[bytes]
    size: int = 0
    sha256: Any = field(default_factory=hashlib.sha256)
    closed: bool = False

    def write(self, content: bytes) -> int:
        """Write bytes."""
        view = bytes(content)
        self.sha256.update(view)
        self.size += self._stream.write(view)
        return len(view)

    def tell(self) -> int:
        """Return how much was written."""
        return self.size

    def flush(self) -> None:
        """Do nothing: the file is flushed once it is whole."""


@dataclass(frozen=True, slots=True)
class _Apart:
    """The file of rows to validate on."""

    path: Path
    stream: CountedStream
    writer: RowSink

    @classmethod
    def open(cls, files: ExitStack, path: Path, sink: Callable[[CountedStream], RowSink]) -> Self:
        stream = CountedStream(files.enter_context(Replacement(path)))
        return cls(path, stream, sink(stream))

    def described(self) -> dict[str, Any]:
        return {"file": self.path.name, "bytes": self.stream.size, "sha256": self.stream.sha256.hexdigest()}


def export_tokens(
    folder: RunFolder,
    out: Path,
    name: str,
    form: str,
    sink: Callable[[CountedStream], RowSink],
    *,
    also: Sequence[str] = (),
    only: Selection | None = None,
    validation_name: str | None = None,
) -> Exported:
    """Write the training set of a run and a manifest beside it.

    The files appear whole or not at all; an earlier export of the same name is replaced only then. Rows to validate on
    come last or in a file of their own, the same ones in every export.

    Args:
        folder: the run.
        out: the folder for both files; made if needed.
        name: of the data file.
        form: what the manifest calls the format.
        sink: makes the writer of a file.
        also: usabilities beyond the default set.
        only: of these samples alone.
        validation_name: of the file for rows to validate on, there only if there are any; None: they lie last.

    Raises:
        RunError: there is nothing to export, or the folder cannot be written.
        InputError: a picked id is not one of the run's.
    """
    census = Census()
    data, manifest = out / name, out / MANIFEST_FILE
    lengths: list[SampleLength] = []
    by_text_changed = 0
    try:
        with made(out), LedgerReader(folder.ledger_path) as reader, reader.moment(), ExitStack() as files:
            stream = CountedStream(files.enter_context(Replacement(data)))
            writer = sink(stream)
            apart: _Apart | None = None
            if only is None:
                rows = validation_last(training_rows(reader, census, also), out)
            else:
                rows = ((row, False) for row in selected_rows(reader, census, also, only))
            validation_rows = 0
            for row, is_held_out in rows:
                if is_held_out and validation_name is not None and apart is None:
                    apart = _Apart.open(files, out / validation_name, sink)
                (apart.writer if is_held_out and apart is not None else writer).add(row)
                validation_rows += is_held_out
                lengths.append(SampleLength(row.prompt_tokens, row.output_tokens))
                by_text_changed += row.resegmented_spans > 0
            writer.finish()
            if apart is not None:
                apart.writer.finish()
            if not census.samples:
                raise RunError(
                    f"Run {folder.name} has no samples to export"
                    + (f": {_listed(census)} are left out." if census.left_out else " yet.")
                )
            described = _describe(reader, census, also, form, name, stream)
            described["ledger"] = str(folder.ledger_path.absolute())
            if only is None:
                described["validation_rows"] = validation_rows
                if apart is not None:
                    described["validation_file"] = apart.described()
            else:
                described["picked"] = len(only.lines)
            model_id = reader.run().model_id
        if validation_name is not None and apart is None:
            (out / validation_name).unlink(missing_ok=True)
        with Replacement(manifest) as file:
            file.write(msgspec.json.format(msgspec.json.encode(described), indent=2) + b"\n")
    except OSError as error:
        raise RunError(f"{out} cannot be written: {error.strerror or error}.") from error
    digest = stream.sha256.hexdigest()
    return Exported(
        data,
        manifest,
        stream.size,
        digest,
        census,
        tuple(lengths),
        model_id,
        by_text_changed,
        validation_rows,
        only is None,
        None if apart is None else apart.path,
    )


def _describe(
    reader: LedgerReader, census: Census, also: Sequence[str], form: str, name: str, stream: CountedStream
) -> dict[str, Any]:
    run = reader.run()
    return {
        "format": form,
        "file": name,
        "bytes": stream.size,
        "sha256": stream.sha256.hexdigest(),
        "run": run.name,
        "model": run.model_id,
        "output_format": run.format,
        "tokenizer_hash": run.tokenizer_hash,
        "template_hash": run.template_hash,
        "also_included": list(also),
        **census_object(census),
        "verdicts": [
            {
                "dataset": verdict.dataset,
                "rule": verdict.rule,
                "accepted_by": verdict.accepted_by,
                "at": verdict.at,
                "mismatched": verdict.mismatched,
                "samples": verdict.samples,
                **msgspec.json.decode(verdict.detail_json),
            }
            for verdict in reader.verdicts()
        ],
        "created_at": time.time(),
    }


def census_object(census: Census) -> dict[str, Any]:
    """Return the figures of a training set as JSON values."""
    return {
        "samples": census.samples,
        "tokens": census.tokens,
        "sampled_tokens": census.sampled_tokens,
        "by_evidence": dict(census.evidence),
        "by_usability": dict(census.usability),
        "by_finish_reason": dict(census.finish_reason),
        "by_dataset": dict(census.dataset),
        "left_out": dict(census.left_out),
    }


def _listed(census: Census) -> str:
    return ", ".join(f"{samples} {reason}" for reason, samples in census.left_out.items())
