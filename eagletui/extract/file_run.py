"""Extract features of a file of ids into a folder of its own."""

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from eagletui.core.errors import RunError
from eagletui.core.features import Stored, folder_bytes, rows_per_shard, shard_number
from eagletui.extract.computing import Backend
from eagletui.extract.describe import describe
from eagletui.extract.engines import Order, open_backend
from eagletui.extract.gather import WINDOW_SAMPLES, Gatherer, Progress
from eagletui.extract.ids_file import IdsFile, check_ids_file
from eagletui.extract.manifest import (
    ListedShard,
    Manifest,
    add_to_shard_list,
    find_manifest,
    read_manifest,
    read_shard_list,
    require_same,
    write_manifest,
    write_shard_list,
)
from eagletui.extract.sealer import Report, Sealer
from eagletui.extract.shards import SealedShard, ShardReader, remove_orphans
from eagletui.extract.space import DiskSpace, require_room
from eagletui.ledger.locks import RoleLock

SHARD_MIB: Final = 256


@dataclass(frozen=True, slots=True)
class Extracted:
    """What an extraction did, as `--json` prints it."""

    out: str
    samples: int
    """In the folder now."""
    rows: int
    """Their tokens."""
    bytes: int
    """Of all shards."""
    shards: int
    computed: int
    """Samples computed by this call; the others were there."""
    refused: int
    """Samples that got no features."""
    dtype: str
    stored: str
    layers_entering: tuple[int, ...]
    capture: str
    seconds: float
    """Of this call, loading included."""
    rows_per_s: float
    """Tokens per second of computation."""


@dataclass(frozen=True, slots=True)
class Watching:
    """Where a caller hears of the work."""

    report: Report
    start: Callable[[int, int], None]
    """Told once: samples and tokens to be computed."""
    step: Callable[[Progress], None]
    """Told after each sample."""


def extract_file(
    ids: Path,
    order: Order,
    out: Path,
    watching: Watching,
    *,
    shard_mib: int = SHARD_MIB,
    space: DiskSpace | None = None,
) -> Extracted:
    """Compute the features of every sample in a file; a second call goes on where the first one ended.

    Nothing is written before the whole file, the model and the free space are known to fit.

    Args:
        ids: the JSONL file, see `ids_file`.
        order: what computes.
        out: the features folder; made if needed.
        watching: takes progress and messages.
        shard_mib: size of a full shard.
        space: the disk; None looks at the real one.

    Raises:
        InputError: the file has faults, or its features do not fit on the disk.
        ModelError: the model does not load, the server cannot be used, or the ids are another model's.
        RunError: the folder holds features made in another way.
    """
    began = time.perf_counter()
    checked = check_ids_file(ids)
    if find_manifest(out) is None and out.exists() and any(out.iterdir()):
        raise RunError(f"{out} is not empty and holds no features. Name another folder with --out.")
    with closing(open_backend(order, watching.report)) as backend:
        done = _extract(checked, backend, order.stored(backend.facts), out, watching, shard_mib, space)
    return replace(done, seconds=round(time.perf_counter() - began, 3))


def _extract(
    checked: IdsFile,
    backend: Backend,
    stored: Stored,
    out: Path,
    watching: Watching,
    shard_mib: int,
    space: DiskSpace | None,
) -> Extracted:
    facts = backend.facts
    if checked.max_id >= facts.vocab_size:
        checked = check_ids_file(checked.path, facts.vocab_size)
    source = f"file {checked.path.name} sha256 {checked.sha256}"
    manifest = describe(facts, backend.layers, stored, source=source, capture="undecided", versions=backend.versions)
    parent = next(folder for folder in (out.absolute(), *out.absolute().parents) if folder.exists())
    disk = space or DiskSpace(parent)
    missing = _missing(out, checked, _listed(out, manifest))
    rows = sum(checked.lengths[index] for index in missing)
    require_room(disk, folder_bytes(rows, facts.hidden_size, stored))
    watching.start(len(missing), rows)
    capacity = rows_per_shard(shard_mib, facts.hidden_size, stored)

    def commit(shard: SealedShard) -> None:
        if read_manifest(out).capture != backend.choice:
            write_manifest(out, replace(manifest, capture=backend.choice))
        add_to_shard_list(out, ListedShard(shard.path, len(shard.samples), shard.rows, shard.bytes, shard.xxh3))

    with RoleLock(out, "extractor"):
        listed = _listed(out, manifest)
        missing = _missing(out, checked, listed)
        write_shard_list(out, listed)
        remove_orphans(out, (shard.path for shard in listed))
        if find_manifest(out) is None:
            write_manifest(out, manifest)
        first = 1 + max((shard_number(shard.path) or 0 for shard in listed), default=-1)
        with Sealer(out, first, disk, commit, watching.report) as sealer:
            gatherer = Gatherer(backend, watching.report, stored, capacity, watching.step)
            for start in range(0, len(missing), WINDOW_SAMPLES):
                gatherer.add(list(checked.samples(missing[start : start + WINDOW_SAMPLES])), sealer, lambda: True)
            gatherer.seal_open(sealer)
    shards = read_shard_list(out)
    return Extracted(
        out=str(out),
        samples=sum(shard.samples for shard in shards),
        rows=sum(shard.rows for shard in shards),
        bytes=sum(shard.bytes for shard in shards),
        shards=len(shards),
        computed=gatherer.progress.samples,
        refused=gatherer.progress.refused,
        dtype=facts.dtype,
        stored=stored,
        layers_entering=backend.layers.entering,
        capture=read_manifest(out).capture,
        seconds=0.0,
        rows_per_s=round(gatherer.progress.rows_per_s, 1),
    )


def _listed(out: Path, manifest: Manifest) -> tuple[ListedShard, ...]:
    """List the committed shards, if what is there belongs to this job."""
    old = find_manifest(out)
    if old is None:
        return ()
    require_same(out, old, manifest)
    return read_shard_list(out)


def _missing(out: Path, checked: IdsFile, listed: tuple[ListedShard, ...]) -> list[int]:
    """List the places in the file whose samples no committed shard holds."""
    present: set[str] = set()
    for shard in listed:
        with ShardReader(out / shard.path) as reader:
            present.update(reader.keys)
    if not present:
        return list(range(len(checked.starts)))
    everything = range(len(checked.starts))
    samples = checked.samples(everything)
    return [index for index, sample in zip(everything, samples, strict=True) if sample.key not in present]
