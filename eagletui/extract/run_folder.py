"""A run's features folder: what its manifest says, and that it holds what the ledger lists."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from eagletui.core.features import Stored
from eagletui.core.reports import Report
from eagletui.extract.acknowledged import forget_acknowledged, gone_shards, list_removed
from eagletui.extract.computing import Described
from eagletui.extract.describe import describe
from eagletui.extract.ledger_source import describe_shard
from eagletui.extract.manifest import (
    ListedShard,
    Manifest,
    find_manifest,
    require_same,
    write_manifest,
    write_shard_list,
)
from eagletui.extract.storage import Storage
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.reader_features import FeaturesReader
from eagletui.ledger.writer_extract import ExtractorWriter


class There(NamedTuple):
    """What a run's features folder holds in the end."""

    samples: int
    """With features of the ids that they have now, those that a trainer acknowledged included."""
    rows: int
    """Their tokens."""
    shards: int
    """Sealed, those that a trainer acknowledged included."""
    acknowledged: int
    """Shards that a trainer acknowledged; they are deleted."""
    bytes: int
    """Of the shards that are there."""


def count_there(features: Path, reader: LedgerReader) -> There:
    """Count what is in a run's features folder, or in its storage.

    Raises:
        RunError: the list of acknowledged shards cannot be read.
    """
    shards = reader.shards()
    gone = gone_shards(features, (shard.path for shard in shards))
    with FeaturesReader(reader.path) as features_reader:
        current = features_reader.current()
    kept = [shard for shard in shards if shard.path not in gone]
    return There(*current, len(shards), len(shards) - len(kept), sum(shard.bytes for shard in kept))


def describe_run(reader: LedgerReader, backend: Described, stored: Stored, storage: Storage) -> Manifest:
    """Describe the features of a run."""
    run = reader.run()
    return describe(
        backend.facts,
        backend.layers,
        stored,
        versions=backend.versions,
        source=f"run {run.name}",
        storage=storage.url,
        capture="undecided",
        served_model=run.model_id,
        served_quantizations={endpoint.tag: endpoint.quantization for endpoint in reader.endpoints()},
        tokenizer_hash=run.tokenizer_hash,
        verdicts=tuple(verdict.sentence for verdict in reader.verdicts()),
    )


def agree_with_ledger(
    features: Path,
    manifest: Manifest,
    storage: Storage,
    reader: LedgerReader,
    writer: ExtractorWriter,
    report: Report,
) -> Manifest:
    """Bring a run's features folder and its ledger to the same state before the first new shard.

    Args:
        features: the folder; made if needed.
        manifest: how the new shards will be made.
        storage: where shards lie.
        reader: of the ledger.
        writer: of the ledger.
        report: hears what was lost or left over.

    Returns:
        the manifest that is in force.

    Raises:
        RunError: the folder holds features made in another way.
    """
    features.mkdir(mode=0o700, parents=True, exist_ok=True)
    old = find_manifest(features)
    if old is not None and reader.shards():
        require_same(features, old, manifest)
        manifest = replace(manifest, capture=old.capture)
    write_manifest(features, manifest)
    describe_it = partial(describe_shard, reader.path)
    acknowledged = list_removed(features, (shard.path for shard in reader.shards()), describe_it)
    forget_acknowledged(features, acknowledged)
    for shard in reader.shards():
        if shard.path in acknowledged:
            continue
        found = storage.size(shard.path)
        if found is None:
            acknowledged = list_removed(features, [shard.path], describe_it)  # a trainer at work may have deleted it
        elif found == shard.bytes:
            continue
        if shard.path not in acknowledged:
            lost = writer.drop_shard(shard.path)
            what = "is gone" if found is None else f"has {found} bytes instead of {shard.bytes}"
            report("error", "shard_lost", f"{shard.path} {what}; its {lost} samples are computed again.")
    kept = [shard for shard in reader.shards() if shard.path not in acknowledged]
    orphans = storage.remove_orphans(shard.path for shard in kept)
    if orphans:
        report("info", "orphans_removed", f"Removed {', '.join(orphans)}, left by an interrupted extractor.")
    write_shard_list(features, (ListedShard(s.path, s.samples, s.rows, s.bytes, s.xxh3) for s in kept))
    return manifest
