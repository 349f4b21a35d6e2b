"""Read where features lie and which ids they were computed over."""

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from eagletui.ledger.codecs import unpack_ids
from eagletui.ledger.reader_base import Reader

ROWS_AT_ONCE: Final = 500
"""Below SQLite's smallest limit of parameters in a statement."""


@dataclass(frozen=True, slots=True)
class StoredFeature:
    """One sample in a shard, with the ids that the ledger holds for it now."""

    sample_key: str
    position: int
    """Index into the shard's offsets."""
    rows: int
    is_current: bool
    """The features were computed over these very ids."""
    prompt_ids: "array[int] | None"
    output_ids: "array[int] | None"


class CensusRow(NamedTuple):
    """One sample, as a choice of samples sees it."""

    sample_id: int
    sample_key: str
    dataset: str
    tokens: int
    """Prompt and output."""
    has_features: bool


class CurrentFeatures(NamedTuple):
    """Features of the very ids that the ledger holds now; those that were replaced or are stale do not count."""

    samples: int
    rows: int
    """Their tokens."""


class ShardShare(NamedTuple):
    """Some of the samples of a shard."""

    path: str
    """Relative to RUN/features."""
    samples: int
    """How many of them are meant."""
    of: int
    """How many the shard holds."""


class FeaturesReader(Reader):
    """Reads features by shard."""

    def shards_holding(self, sample_ids: Sequence[int]) -> list[ShardShare]:
        """List the shards with current features of these samples, by path."""
        found: Counter[str] = Counter()
        sizes: dict[str, int] = {}
        with self._transactions.reading() as connection:
            for start in range(0, len(sample_ids), ROWS_AT_ONCE):
                part = list(sample_ids[start : start + ROWS_AT_ONCE])
                for path, samples in connection.execute(
                    f"""SELECT path, shards.samples FROM features JOIN shards ON shards.id = features.shard_id
                    JOIN tokens ON tokens.sample_id = features.sample_id
                    WHERE features.tokens_revision = tokens.revision
                      AND features.sample_id IN ({", ".join("?" * len(part))})""",
                    part,
                ):
                    found[path] += 1
                    sizes[path] = samples
        return [ShardShare(path, samples, sizes[path]) for path, samples in sorted(found.items())]

    def current(self) -> CurrentFeatures:
        """Count what features are there."""
        with self._transactions.reading() as connection:
            (found,) = connection.execute(
                """SELECT count(*), coalesce(sum(features.rows), 0) FROM features
                JOIN tokens ON tokens.sample_id = features.sample_id
                WHERE features.tokens_revision = tokens.revision"""
            )
            return CurrentFeatures(*found)

    def waiting(self) -> int:
        """Count the samples that wait for features."""
        with self._transactions.reading() as connection:
            ((found,),) = connection.execute("SELECT count(*) FROM to_extract")
            return int(found)

    def census(self) -> list[CensusRow]:
        """List every trainable sample whose features are there or could be computed, by id; without its ids."""
        with self._transactions.reading() as connection:
            rows = connection.execute(
                """SELECT samples.id, sample_key, dataset, prompt_tokens + output_tokens, 0 FROM to_extract
                JOIN samples ON samples.id = to_extract.sample_id JOIN tokens ON tokens.sample_id = samples.id
                WHERE prompt_tokens > 0 AND output_tokens > 0 AND prompt_ids IS NOT NULL
                UNION ALL
                SELECT samples.id, sample_key, dataset, features.rows, 1 FROM features
                JOIN samples ON samples.id = features.sample_id JOIN tokens ON tokens.sample_id = samples.id
                WHERE features.tokens_revision = tokens.revision
                ORDER BY 1"""
            )
            return [
                CensusRow(number, key, dataset, tokens, bool(there)) for number, key, dataset, tokens, there in rows
            ]

    def features_of(self, path: str) -> list[StoredFeature]:
        """List the samples whose features lie in a shard, by position; replaced ones are not among them.

        Args:
            path: the shard's, relative to RUN/features.
        """
        with self._transactions.reading() as connection:
            rows = connection.execute(
                """SELECT sample_key, position, features.rows, features.tokens_revision = tokens.revision,
                    prompt_ids, output_ids
                FROM shards JOIN features ON features.shard_id = shards.id
                JOIN samples ON samples.id = features.sample_id JOIN tokens ON tokens.sample_id = features.sample_id
                WHERE shards.path = ? ORDER BY position""",
                (path,),
            )
            return [
                StoredFeature(
                    key,
                    position,
                    count,
                    bool(is_current),
                    None if prompt_ids is None else unpack_ids(prompt_ids),
                    None if output_ids is None else unpack_ids(output_ids),
                )
                for key, position, count, is_current, prompt_ids, output_ids in rows
            ]
