"""What a folder exported for a trainer says about itself, and how it grows.

`manifest.json` says how the folder was made; it is marked incomplete while it is changed. `rows.jsonl` has a line per
numbered row with the sample it holds and the file of its features. Both stay beside what the trainer reads, which looks
at neither. `journal.jsonl` exists only while files are written: an interrupted export goes on from it.
"""

import fcntl
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec

from eagletui.core.errors import LockedError, RunError
from eagletui.core.loaders import Route, Trainer
from eagletui.core.row_order import Part, PlacedRow
from eagletui.files.appending import whole_lines
from eagletui.files.decoding import decode
from eagletui.files.replacement import Replacement

FORMAT: Final = "eagletui-trainer-1"
MANIFEST: Final = "manifest.json"
ROWS: Final = "rows.jsonl"
JOURNAL: Final = "journal.jsonl"

STAGING: Final = ".staging-"
"""Begins the name of a folder in which a part of the export is made."""

_HALF_WRITTEN: Final = re.compile(r"\A\..+\.\d+\.tmp\Z")
"""What `Replacement` and the like call a file before it is whole."""

_MUST_AGREE: Final = ("trainer", "route", "run", "served_model", "tokenizer_hash", "validation_percent")
_MUST_AGREE_OF_TARGET: Final = ("num_layers", "hidden_size", "vocab_size", "layers_entering", "xxh3", "dtype", "stored")


@dataclass(frozen=True, slots=True)
class FeatureFile:
    """A file with the features of one row, and where they came from."""

    path: str
    """Relative to the exported folder."""
    bytes: int
    xxh3: str
    """xxh3_128 of the file, hex."""
    shard_xxh3: str
    """Of the shard that the features were taken from."""
    position: int
    """Of the sample in that shard."""


@dataclass(frozen=True, slots=True)
class ExportedRow:
    """One numbered row; its number is its place in the file."""

    sample: str
    """The sample's key in the ledger."""
    part: Part
    since: int
    """Which export of the folder brought it in, from 1."""
    tokens: int
    prompt_tokens: int
    ids_digest: str
    """BLAKE2b, 128 bits, over the ids as little-endian int32, hex."""
    feature: FeatureFile | None = None
    """None where the trainer runs the target itself."""

    @property
    def placed(self) -> PlacedRow:
        """The row's place alone."""
        return PlacedRow(self.sample, self.part, self.since)


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """The target that the features came from, or that the trainer runs."""

    path: str
    num_layers: int
    hidden_size: int
    vocab_size: int
    layers_entering: tuple[int, int, int]
    """Layers whose input is taken: speculators, vLLM, EAGLE."""
    layers_output: tuple[int, int, int]
    """The same streams as layer outputs: SpecForge, SGLang, TorchSpec."""
    xxh3: str | None = None
    """Of its files; None where nothing was computed with it."""
    dtype: str | None = None
    """The features were computed in it; None without features."""
    stored: str | None = None
    """How the run's shards hold them, `fp8` or like `dtype`; None without features."""


@dataclass(frozen=True, slots=True)
class VocabularyFacts:
    """The draft vocabulary of the folder: kept as it is when samples are added."""

    size: int
    target_size: int
    since: int
    """Which export chose it, from the rows there were then."""
    ids_changed: bool
    """Rows that it was chosen from have got other ids since, or are gone; it was kept all the same."""
    sha256: str
    """Of the target's size and the ids as decimal numbers, one a line."""


@dataclass(frozen=True, slots=True)
class TrainerManifest:
    """How a folder was made, and what it holds."""

    trainer: Trainer
    trainer_version: str
    """The release whose loader was read."""
    route: Route
    """`online`: the trainer runs the target over these ids. `offline`: the features are here."""
    run: str
    ledger: str
    """The ids' truth, where it was."""
    served_model: str
    output_format: str
    tokenizer_hash: str | None
    template_hash: str | None
    also_included: tuple[str, ...]
    validation_percent: float
    exports: int
    """How often samples were written into this folder."""
    target: TargetFacts
    last_hidden_norm: Literal["pre", "post"] | None
    """Of the last stream in the files; None without features."""
    vocabulary: VocabularyFacts
    created_at: float
    """Unix seconds, of this writing."""
    command: str
    """How to train on the folder."""
    max_length: int
    """The limit of tokens in that command."""
    samples: int
    tokens: int
    sampled_tokens: int
    by_evidence: dict[str, int]
    by_usability: dict[str, int]
    by_dataset: dict[str, int]
    left_out: dict[str, int]
    verdicts: tuple[str, ...]
    """Signed verdicts, one sentence each."""
    complete: bool
    """False while the folder is changed, and after a change that was interrupted."""
    format: str = FORMAT


def find_trainer_manifest(folder: Path) -> TrainerManifest | None:
    """Read a folder's manifest; None if there is none, or it is not one of a trainer's folder.

    Raises:
        RunError: it cannot be read.
    """
    path = folder / MANIFEST
    try:
        content = path.read_bytes()
        kind = msgspec.json.decode(content)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read as a manifest: {error}") from error
    if not isinstance(kind, dict) or kind.get("format") != FORMAT:
        return None
    return decode(path, content, TrainerManifest)


def write_trainer_manifest(folder: Path, manifest: TrainerManifest) -> None:
    """Put the manifest into the folder, whole or not at all."""
    with Replacement(folder / MANIFEST) as stream:
        stream.write(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")


def require_same(out: Path, old: TrainerManifest, new: TrainerManifest) -> None:
    """Refuse to add to a folder that was exported in another way.

    Raises:
        RunError: names each field that differs, with both values.
    """
    pairs = [(name, getattr(old, name), getattr(new, name)) for name in _MUST_AGREE]
    pairs += [
        (f"target.{name}", getattr(old.target, name), getattr(new.target, name)) for name in _MUST_AGREE_OF_TARGET
    ]
    differing = [f"{name} is {one!r} there and {other!r} now" for name, one, other in pairs if one != other]
    if differing:
        raise RunError(f"{out} was exported in another way: {'; '.join(differing)}. Name another folder with --out.")


def read_rows(folder: Path, name: str = ROWS) -> list[ExportedRow]:
    """Read the rows, or the journal; a last line without an end was cut by a crash and is left out.

    Raises:
        RunError: a whole line cannot be read.
    """
    path = folder / name
    return [decode(path, line, ExportedRow, number) for number, line in enumerate(whole_lines(path), 1)]


def write_rows(folder: Path, rows: Iterable[ExportedRow]) -> None:
    """Replace the rows, whole or not at all."""
    with Replacement(folder / ROWS) as stream:
        for row in rows:
            stream.write(msgspec.json.encode(row) + b"\n")


def remove_leftovers(folder: Path) -> None:
    """Remove what killed exports left half written, which may be as large as all ids of the run.

    Args:
        folder: of an export, to which the caller alone writes.
    """
    for root, folders, names in os.walk(folder):
        for name in names:
            if _HALF_WRITTEN.match(name):
                (Path(root) / name).unlink()
        for name in [name for name in folders if name.startswith(STAGING)]:
            folders.remove(name)
            shutil.rmtree(Path(root) / name)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep other exports out of a folder; the lock ends with the process.

    Args:
        folder: an existing folder.

    Raises:
        LockedError: another process writes into it.
        OSError: the file system knows no locks.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise LockedError(f"Another export writes into {folder}. Wait for it, or name another folder.") from error
        yield
    finally:
        os.close(descriptor)


class Journal:
    """Remembers which files are on the disk already, for the case that the export does not come to its end."""

    def __init__(self, folder: Path) -> None:
        """Open the journal of a folder, adding to what an interrupted export left."""
        self._path = folder / JOURNAL
        self._stream = os.fdopen(os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "wb")

    def add(self, row: ExportedRow) -> None:
        """Note a row whose file has its final name and is on the disk."""
        self._stream.write(msgspec.json.encode(row) + b"\n")
        self._stream.flush()

    def close(self) -> None:
        """Close the file; the next export may go on from it."""
        self._stream.close()
