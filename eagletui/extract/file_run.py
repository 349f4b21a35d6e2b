"""Extract features of a file of ids into a folder of its own."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from eagletui.core.errors import InputError, ModelError, RunError
from eagletui.core.features import Stored, rows_per_shard, shard_number
from eagletui.core.reports import Report
from eagletui.core.subset import Candidate, choose, nothing_fits
from eagletui.extract.acknowledged import (
    AcknowledgedShard,
    Stream,
    forget_acknowledged,
    is_removed,
    list_removed,
    read_acknowledged,
)
from eagletui.extract.computing import Backend
from eagletui.extract.describe import describe
from eagletui.extract.engines import Order, open_backend
from eagletui.extract.gather import Gatherer, Progress
from eagletui.extract.ids_file import IdsFile, check_ids_file
from eagletui.extract.manifest import (
    MANIFEST,
    SHARD_LIST,
    ListedShard,
    Manifest,
    add_to_shard_list,
    find_manifest,
    first_difference,
    read_manifest,
    read_shard_list,
    require_same,
    write_manifest,
    write_shard_list,
)
from eagletui.extract.open_shard import ShardKind
from eagletui.extract.preflight import Need, foresee, require_room
from eagletui.extract.shard_writer import ShardWriter
from eagletui.extract.shards import SealedShard, ShardReader, orphan_bytes, remove_orphans
from eagletui.extract.source_file import describe_source
from eagletui.extract.space import DiskSpace
from eagletui.ledger.locks import RoleLock, lock_file

SHARD_MIB: Final = 256

_ELSEWHERE: Final = "or name a larger disk with --out"


@dataclass(frozen=True, slots=True)
class Extracted:
    """What an extraction did, as `--json` prints it."""

    out: str
    samples: int
    """With features, those that a trainer acknowledged included."""
    rows: int
    """Their tokens."""
    bytes: int
    """Of the shards that are there."""
    shards: int
    """Sealed, those that a trainer acknowledged included."""
    computed: int
    """Samples computed by this call; the others were there."""
    refused: int
    """Samples that got no features."""
    left_out: int
    """Samples beyond the token budget."""
    acknowledged: int
    """Shards that a trainer acknowledged; they are deleted."""
    to_acknowledge: int | None
    """Sealed shards that the trainer has not acknowledged; None where features are kept."""
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
    token_budget: int | None = None,
    stream_ahead: int | None = None,
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
        token_budget: tokens that the folder may hold in the end; None: no limit.
        stream_ahead: sealed shards that may wait for a trainer to acknowledge them; None: features are kept.
        space: the disk; None looks at the real one.

    Raises:
        InputError: the file has faults, or its features do not fit on the disk.
        ModelError: the model does not load, the server cannot be used, or the ids are another model's.
        RunError: the folder holds features made in another way.
    """
    began = time.perf_counter()
    checked = check_ids_file(ids)
    if find_manifest(out) is None and out.exists() and not _is_unbegun(out):
        raise RunError(f"{out} is not empty and holds no features. Name another folder with --out.")
    job = _Job(checked, out, watching, shard_mib, token_budget, stream_ahead, space or DiskSpace.below(out))
    there = sum(shard.rows for shard in _listed_or_acknowledged(out))
    tokens = min(checked.rows, token_budget or checked.rows) - there
    foreseen = foresee(order, len(checked.lengths), max(0, tokens), there)
    if foreseen is not None and stream_ahead is None:
        require_room(_room(job), foreseen, _ELSEWHERE)
    with closing(open_backend(order, watching.report, max(checked.lengths))) as backend:
        done = _extract(job, backend, order.stored(backend.facts))
    return replace(done, seconds=round(time.perf_counter() - began, 3))


@dataclass(frozen=True, slots=True)
class _Job:
    checked: IdsFile
    out: Path
    watching: Watching
    shard_mib: int
    token_budget: int | None
    stream_ahead: int | None
    space: DiskSpace


def _extract(job: _Job, backend: Backend, stored: Stored) -> Extracted:
    checked, out, watching = job.checked, job.out, job.watching
    facts = backend.facts
    if checked.max_id >= facts.vocab_size:
        checked = check_ids_file(checked.path, facts.vocab_size)
    manifest = describe(
        facts,
        backend.layers,
        stored,
        source=describe_source(checked),
        source_path=checked.path,
        capture="undecided",
        versions=backend.versions,
    )
    missing = _missing(out, checked, _listed(out, manifest), job.token_budget)
    rows = sum(checked.lengths[index] for index in missing)
    capacity = rows_per_shard(job.shard_mib, facts.hidden_size, stored)
    at_once = rows if job.stream_ahead is None else min(rows, (job.stream_ahead + 1) * capacity)
    there = sum(shard.rows for shard in _listed_or_acknowledged(out))
    require_room(_room(job), Need(len(missing), at_once, facts.hidden_size, stored, there), _ELSEWHERE)
    _prepare(backend, checked, missing)
    watching.start(len(missing), rows)
    stream: Stream | None = None
    known: dict[str, ListedShard] = {}

    def described(path: str) -> AcknowledgedShard:
        return AcknowledgedShard(path, known[path].rows, _keys(out, known[path]))

    def commit(shard: SealedShard) -> None:
        if read_manifest(out).capture != backend.choice:
            write_manifest(out, replace(manifest, capture=backend.choice))
        keys = tuple(placed.sample.key for placed in shard.samples)
        known[shard.path] = ListedShard(shard.path, len(keys), shard.rows, shard.bytes, shard.xxh3, keys)
        add_to_shard_list(out, known[shard.path])
        if stream is not None:
            stream.add(shard.path)

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{out} cannot be made: {error.strerror}.") from error
    with RoleLock(out, "extractor"):
        known.update((shard.path, shard) for shard in read_shard_list(out))
        list_removed(out, known, described)
        listed = _listed(out, manifest)
        if find_manifest(out) is None:
            write_manifest(out, manifest)
        missing = _missing(out, checked, listed, job.token_budget)
        kept = {*(shard.path for shard in listed), *read_acknowledged(out)}
        for shard in (shard for shard in known.values() if shard.path not in kept):
            why = f"{shard.path} {_fault(out, shard)}; its {shard.samples} samples are computed again."
            watching.report("error", "shard_lost", why)
        write_shard_list(out, listed)
        forget_acknowledged(out, read_acknowledged(out))
        remove_orphans(out, (shard.path for shard in listed))
        first = 1 + max((shard_number(path) or 0 for path in kept), default=-1)
        hold: Callable[[], str | None] = lambda: None  # noqa: E731 - nothing to wait for
        if job.stream_ahead is not None:
            stream = Stream(out, job.stream_ahead, described)
            stream.begin(shard.path for shard in listed)
            hold = stream.hold
        kind = ShardKind(facts.hidden_size, facts.dtype, stored, capacity, expected_rows=rows)
        gatherer = Gatherer(backend, watching.report, watching.step)
        with ShardWriter(out, first, kind, job.space, commit, watching.report, hold=hold) as writer:
            for start in range(0, len(missing), backend.window_samples):
                window = missing[start : start + backend.window_samples]
                gatherer.add(list(checked.samples(window)), writer, lambda: True)
        if stream is not None:
            stream.delete_acknowledged()
    shards = _listed_or_acknowledged(out)
    return Extracted(
        out=str(out),
        samples=sum(shard.samples for shard in shards),
        rows=sum(shard.rows for shard in shards),
        bytes=sum(shard.bytes for shard in shards if (out / shard.path).exists()),
        shards=len(shards),
        computed=gatherer.progress.samples,
        refused=gatherer.progress.refused,
        left_out=len(checked.lengths) - sum(shard.samples for shard in shards) - gatherer.progress.refused,
        acknowledged=len(read_acknowledged(out)),
        to_acknowledge=None if stream is None else stream.left,
        dtype=facts.dtype,
        stored=stored,
        layers_entering=backend.layers.entering,
        capture=read_manifest(out).capture,
        seconds=0.0,
        rows_per_s=round(gatherer.progress.rows_per_s, 1),
    )


def _is_unbegun(out: Path) -> bool:
    """Tell whether a folder without a manifest holds nothing but what a killed call leaves before it writes one."""
    return all(
        path == lock_file(out, "extractor").parent
        or path.name == f".{MANIFEST}.new"
        or (path.name in (SHARD_LIST, f".{SHARD_LIST}.new") and path.stat().st_size == 0)
        for path in out.iterdir()
    )


def _prepare(backend: Backend, checked: IdsFile, missing: Sequence[int]) -> None:
    """Look for samples that can be computed, window by window, before anything is written.

    Raises:
        ModelError: there are none.
    """
    why: str | None = None
    for start in range(0, len(missing), backend.window_samples):
        why = backend.prepare(list(checked.samples(missing[start : start + backend.window_samples])))
        if why is None:
            return
    if why is not None:
        raise ModelError(f"None of {len(missing)} samples can be computed. {why}")


def _room(job: _Job) -> DiskSpace:
    """Count what an interrupted call left as free: it goes before the first shard grows."""
    return replace(job.space, removable_bytes=orphan_bytes(job.out, (shard.path for shard in read_shard_list(job.out))))


def _listed(out: Path, manifest: Manifest) -> tuple[ListedShard, ...]:
    """List the committed shards that are there whole, if what is there belongs to this job."""
    old = find_manifest(out)
    if old is None:
        return ()
    require_same(out, old, manifest)
    acknowledged = read_acknowledged(out)
    return tuple(shard for shard in _whole(out) if shard.path not in acknowledged)


def _listed_or_acknowledged(out: Path) -> list[ListedShard]:
    """List the shards that were sealed, whether or not a trainer has acknowledged them."""
    gone = read_acknowledged(out)
    there = [shard for shard in _whole(out) if shard.path not in gone]
    return there + [ListedShard(shard.path, len(shard.sample_ids), shard.rows, 0, "") for shard in gone.values()]


def _whole(out: Path) -> Iterator[ListedShard]:
    """Yield the listed shards without those that are lost."""
    return (shard for shard in read_shard_list(out) if is_removed(out, shard.path) or _fault(out, shard) is None)


def _fault(out: Path, shard: ListedShard) -> str | None:
    """Say how the file of a shard is lost, a phrase; None where it has its size."""
    try:
        found = (out / shard.path).stat().st_size
    except FileNotFoundError:
        return "is gone"
    return None if found == shard.bytes else f"has {found} bytes instead of {shard.bytes}"


def _missing(out: Path, checked: IdsFile, listed: tuple[ListedShard, ...], token_budget: int | None) -> list[int]:
    """List the places in the file whose samples no committed shard holds, up to the budget."""
    present = {key for shard in read_acknowledged(out).values() for key in shard.sample_ids}
    for shard in listed:
        present.update(_keys(out, shard))
    everything = range(len(checked.starts))
    if not present and token_budget is None:
        return list(everything)
    candidates = [
        Candidate(sample.key, sample.dataset, len(sample.token_ids), is_there=sample.key in present)
        for sample in checked.samples(everything)
    ]
    if token_budget is not None:
        if why := nothing_fits(candidates, token_budget):
            raise InputError(why)
        return choose(candidates, token_budget)
    return [index for index in everything if not candidates[index].is_there]


def _keys(out: Path, shard: ListedShard) -> tuple[str, ...]:
    """Return the samples of a committed shard, as its own header tells them.

    Raises:
        RunError: the list tells others: what would be computed again is not known.
    """
    try:
        with ShardReader(out / shard.path) as reader:
            held = tuple(reader.keys)
    except RunError:
        if is_removed(out, shard.path):
            return shard.sample_ids
        raise
    if shard.sample_ids and shard.sample_ids != held:  # lists of earlier builds name none
        raise RunError(
            f"{out / SHARD_LIST}: the sample_ids of {shard.path} are not those that the shard holds: "
            f"{first_difference(shard.sample_ids, held)}. Restore the list, or move that folder away."
        )
    return held
