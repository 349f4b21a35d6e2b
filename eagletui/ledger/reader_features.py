"""Read where features lie and which ids they were computed over."""

from array import array
from dataclasses import dataclass

from eagletui.ledger.codecs import unpack_ids
from eagletui.ledger.reader_base import Reader


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


class FeaturesReader(Reader):
    """Reads features by shard."""

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
