"""Take samples that wait for features out of a ledger."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
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
    """Hands out each waiting sample once, while the engine goes on adding more.

    One thread takes; another may give back what it has committed. What it gives back is looked up again only in pages
    that are read afterwards: a page that was read before the commit still lists the sample as waiting.
    """

    reader: LedgerReader
    without_prompt: set[int] = field(default_factory=set)
    """Samples whose prompt ids are unknown, so that their states cannot be computed."""
    only: frozenset[int] | None = None
    """Samples that may be handed out; None: all."""
    _taken: set[int] = field(default_factory=set)
    """Changed by the thread that takes alone."""
    _given_back: deque[int] = field(default_factory=deque)
    """Committed, and not removed from the set yet."""
    _after: int = 0
    """The sample that the pass through the ledger has come to; 0: the next one begins."""
    _seen_version: int | None = None
    """Of the ledger when the last pass began."""

    def take(self, limit: int) -> list[IdsSample]:
        """Return up to `limit` samples that were not handed out before, or were handed out and given back.

        Goes through the ledger by id, and begins anew at the end: what is left out of `only` or cannot be computed is
        looked at once a pass. Returns nothing without a look into the tables where nothing was committed since a pass
        began that has ended.
        """
        while True:
            self._take_back()
            began = self._after
            if not began:
                version = self.reader.data_version()
                if version == self._seen_version:
                    return []
                self._seen_version = version
            found = list(islice(self._waiting(began), limit))
            self._taken.update(sample.sample_id for sample in found if sample.sample_id is not None)
            is_at_end = len(found) < limit
            self._after = 0 if is_at_end else found[-1].sample_id or 0
            if found or not began:
                return found

    def give_back(self, sample_ids: Iterable[int]) -> None:
        """Let samples be handed out again where the ledger still lists them, as after a rebuild.

        Any thread may call this, once the features of these samples are committed.
        """
        self._given_back.extend(sample_ids)

    def has_waiting(self) -> bool:
        """Tell whether any sample could be handed out now."""
        self._take_back()
        return next(self._waiting(0), None) is not None

    def is_finished(self) -> bool:
        """Tell whether the run is over, so that no sample comes any more."""
        return self.reader.run().state in FINISHED_RUNS

    def _take_back(self) -> None:
        """Forget that samples were handed out which came back, and let another pass look for them. No page is read."""
        while self._given_back:
            self._taken.discard(self._given_back.popleft())
            self._seen_version = None

    def _waiting(self, after: int) -> Iterator[IdsSample]:
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
