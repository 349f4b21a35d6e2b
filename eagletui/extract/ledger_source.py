"""Take samples that wait for features out of a ledger."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from eagletui.core.features import sampled_mask
from eagletui.core.lifecycle import FINISHED_RUNS
from eagletui.extract.acknowledged import AcknowledgedShard
from eagletui.extract.shards import IdsSample
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.reader_features import FeaturesReader

_PAGE: Final = 64


def describe_shard(ledger: Path, path: str) -> AcknowledgedShard:
    """Tell what a committed shard holds whose file may be gone.

    Args:
        ledger: the run's.
        path: of the shard, relative to the features folder.
    """
    with FeaturesReader(ledger) as reader:
        held = reader.features_of(path)
    return AcknowledgedShard(path, sum(feature.rows for feature in held), tuple(feature.sample_key for feature in held))


@dataclass(slots=True)
class LedgerSource:
    """Hands out each waiting sample once, while the engine goes on adding more."""

    reader: LedgerReader
    without_prompt: set[int] = field(default_factory=set)
    """Samples whose prompt ids are unknown, so that their states cannot be computed."""
    only: frozenset[int] | None = None
    """Samples that may be handed out; None: all."""
    _taken: set[int] = field(default_factory=set)
    _seen_version: int | None = None

    def take(self, limit: int) -> list[IdsSample]:
        """Return up to `limit` samples that were not handed out before, or were handed out and given back.

        Returns nothing without a look into the tables where nothing was committed since the last empty answer.
        """
        version = self.reader.data_version()
        if version == self._seen_version:
            return []
        self._seen_version = version  # before the look: what is given back meanwhile asks for another one
        found: list[IdsSample] = []
        for sample in self._waiting():
            if len(found) == limit:
                self._seen_version = None
                break
            found.append(sample)
        self._taken.update(sample.sample_id for sample in found if sample.sample_id is not None)
        return found

    def give_back(self, sample_ids: Iterator[int]) -> None:
        """Let samples be handed out again where the ledger still lists them, as after a rebuild."""
        self._taken.difference_update(sample_ids)
        self._seen_version = None

    def has_waiting(self) -> bool:
        """Tell whether any sample could be handed out now."""
        return next(self._waiting(), None) is not None

    def is_finished(self) -> bool:
        """Tell whether the run is over, so that no sample comes any more."""
        return self.reader.run().state in FINISHED_RUNS

    def _waiting(self) -> Iterator[IdsSample]:
        after = 0
        while page := self.reader.to_extract(_PAGE, after):
            for row in page:
                after = row.sample_id
                if after in self._taken or (self.only is not None and after not in self.only):
                    continue
                if not row.prompt_ids or not row.output_ids:
                    self.without_prompt.add(after)
                    continue
                yield IdsSample(
                    key=row.sample_key,
                    token_ids=(*row.prompt_ids, *row.output_ids),
                    loss_mask=sampled_mask(len(row.prompt_ids), len(row.output_ids)),
                    sample_id=row.sample_id,
                    revision=row.tokens_revision,
                )
