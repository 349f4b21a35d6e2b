"""What a features folder says about itself: how it was made, and which shards it holds.

`manifest.json` says how, `shards.jsonl` lists the committed shards with size and hash. In a run the ledger is the truth
and the list is its copy, so that a folder can be checked where the ledger is not; for a standalone folder the list is
the truth.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from eagletui.core.errors import Problem, RunError
from eagletui.core.features import SHARD_PATTERN, DType, FeatureLayers, Stored, are_layers
from eagletui.core.text import clean_line
from eagletui.files.appending import append_line, whole_lines
from eagletui.files.decoding import decode
from eagletui.files.replacement import replace_text

FORMAT: Final = "eagletui-features-1"

MANIFEST: Final = "manifest.json"
SHARD_LIST: Final = "shards.jsonl"

_MUST_AGREE: Final = (
    "model_xxh3",
    "dtype",
    "stored",
    "num_layers",
    "hidden_size",
    "vocab_size",
    "layers_entering",
    "made_of",
    "tokenizer_hash",
    "storage",
)
"""Fields that cannot differ within one folder: records would not belong together."""

Count = Annotated[int, msgspec.Meta(ge=1)]
ShardPath = Annotated[str, msgspec.Meta(pattern=SHARD_PATTERN)]
"""Relative to the features folder."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """How the features of a folder were made."""

    model_path: str
    model_architecture: str
    model_xxh3: str
    """Hash of the model's files."""
    model_hash_covers: str
    extraction_quantization: str | None
    """How the weights used here are stored; None: plain floating point."""
    served_model: str | None
    """The model's name at the API; None for features of a file."""
    served_quantizations: dict[str, str | None]
    """What each endpoint says it runs; null where it says nothing."""
    tokenizer_hash: str | None
    """Of the tokenizer the ids were made with; None for features of a file."""
    source: str
    """`run NAME`, or `file NAME sha256 HEX`."""
    dtype: DType
    """Of the computation, and of the states that a reader gives."""
    stored: Stored
    """Of `hidden_states` on disk; `fp8` has a float32 scale per token beside it."""
    num_layers: Count
    hidden_size: Count
    vocab_size: Count
    layers_entering: tuple[int, int, int]
    """Slots 0 to 2: layers whose input is kept (speculators, vLLM, EAGLE; the index into HF hidden_states)."""
    layers_output: tuple[int, ...]
    """The same slots as layer outputs (SpecForge, SGLang, Model-Optimizer, AngelSlim)."""
    last_hidden_norm: str
    """`pre`: slot 3 is the last layer's output before the final norm."""
    capture: str
    """`one_by_one` or `packed`, with the self-test's figures."""
    created_at: float
    """Unix seconds."""
    versions: dict[str, str]
    """Of the libraries that computed."""
    verdicts: tuple[str, ...] = ()
    """Signed verdicts, one sentence each."""
    source_path: str | None = None
    """Where that file was; None for features of a run."""
    storage: str | None = None
    """URL below which the shards lie; None: in this folder."""
    format: str = FORMAT

    @property
    def is_of_run(self) -> bool:
        """Tell whether the ids are a run's."""
        return self.source.startswith("run ")

    @property
    def made_of(self) -> str:
        """What the ids come from, as far as it stays: a run may be renamed, a file may not be another."""
        return "a run" if self.is_of_run else self.source

    @property
    def layers(self) -> FeatureLayers:
        """The streams of a record."""
        return FeatureLayers(self.num_layers, self.layers_entering)


@dataclass(frozen=True, slots=True)
class _Stated:
    """Read first: fields of another format may be others."""

    format: Any = None


@dataclass(frozen=True, slots=True)
class ListedShard:
    """One line of the shard list."""

    path: ShardPath
    samples: int
    rows: int
    bytes: int
    xxh3: str
    sample_ids: tuple[str, ...] = ()
    """Where no ledger knows them: in a folder made of a file of ids."""


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Put the manifest into the folder, whole or not at all."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_text(folder / MANIFEST, json.dumps(asdict(manifest), indent=2) + "\n")


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest.

    Raises:
        RunError: there is none, or it is not one of ours.
    """
    found = find_manifest(folder)
    if found is None:
        raise RunError(f"{folder} has no {MANIFEST}: it is not a features folder, or nothing was extracted yet.")
    return found


def find_manifest(folder: Path) -> Manifest | None:
    """Read the manifest; None if there is none.

    Raises:
        RunError: it cannot be read or is of another format.
    """
    path = folder / MANIFEST
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}.") from error
    stated = decode(path, content, _Stated)
    if stated.format != FORMAT:
        raise RunError(f"{path} has format {stated.format!r}, expected {FORMAT!r}.")
    manifest = decode(path, content, Manifest)
    if not are_layers(manifest.num_layers, manifest.layers_entering):
        expected = f"three growing numbers from 1 to {manifest.num_layers - 1}, the layers below num_layers"
        raise RunError(f"{Problem(str(path), None, 'layers_entering', str(list(manifest.layers_entering)), expected)}.")
    return manifest


def require_same(folder: Path, old: Manifest, new: Manifest) -> None:
    """Refuse to add to a folder that was made in another way.

    Raises:
        RunError: names each field that differs, with both values.
    """
    differing = [
        f"{name} is {getattr(old, name)!r} there and {getattr(new, name)!r} now"
        for name in _MUST_AGREE
        if getattr(old, name) != getattr(new, name)
    ]
    if differing:
        raise RunError(
            f"{folder} holds features made in another way: {'; '.join(differing)}. "
            "Use what was used before, or move that folder away."
        )


def add_to_shard_list(folder: Path, shard: ListedShard) -> None:
    """Append a shard and wait until the line is on the disk."""
    append_line(folder / SHARD_LIST, _line(shard))


def write_shard_list(folder: Path, shards: Iterable[ListedShard]) -> None:
    """Replace the list, whole or not at all."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_text(folder / SHARD_LIST, "".join(f"{_line(shard)}\n" for shard in shards))


def read_shard_list(folder: Path) -> tuple[ListedShard, ...]:
    """Read the list. A last line without an end was cut by a crash before its shard counted, and is left out.

    Raises:
        RunError: a whole line cannot be read.
    """
    path = folder / SHARD_LIST
    return tuple(decode(path, line, ListedShard, number) for number, line in enumerate(whole_lines(path), 1))


def first_difference(listed: Sequence[str], held: Sequence[str]) -> str:
    """Say where a list of samples and those of a shard differ first, a phrase."""
    for number, (said, found) in enumerate(zip_longest(listed, held)):
        if said != found:
            return (
                f"sample {number} is {clean_line(repr(said), 80)} there and {clean_line(repr(found), 80)} in the shard"
            )
    return "they are the same"


def _line(shard: ListedShard) -> str:
    told = asdict(shard)
    if not shard.sample_ids:
        del told["sample_ids"]
    return json.dumps(told)
