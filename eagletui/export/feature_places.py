"""Where the features of a run lie, sample by sample."""

from typing import NamedTuple

from eagletui.core.errors import RunError
from eagletui.extract.acknowledged import gone_shards
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.reader_features import FeaturesReader
from eagletui.runs.folder import RunFolder


class FeaturePlace(NamedTuple):
    """Where the features of a sample lie in the run."""

    shard: str
    """Relative to the features folder."""
    shard_xxh3: str
    position: int


def feature_places(folder: RunFolder, reader: LedgerReader) -> dict[str, FeaturePlace]:
    """Map each sample with current features to where they lie.

    Raises:
        RunError: a trainer has acknowledged some of them, so that they are gone.
    """
    places: dict[str, FeaturePlace] = {}
    if gone := gone_shards(folder.features_dir, (shard.path for shard in reader.shards())):
        raise RunError(
            f"A trainer has acknowledged {len(gone)} shards of run {folder.name} and they were deleted: a whole "
            "export cannot be made of the rest. Export the ids alone with --online, or move RUN/features away and "
            "extract again."
        )
    with FeaturesReader(folder.ledger_path) as features:
        for shard in reader.shards():
            for feature in features.features_of(shard.path):
                if feature.is_current:
                    places[feature.sample_key] = FeaturePlace(shard.path, shard.xxh3, feature.position)
    return places
