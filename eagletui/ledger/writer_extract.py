"""The extractor's side of the ledger."""

from collections.abc import Iterable, Sequence

from eagletui.ledger.orders import Feature
from eagletui.ledger.writer_base import Writer


class ExtractorWriter(Writer):
    """Writes of the extractor. Hold the extractor's `RoleLock` while using it."""

    def commit_shard(
        self, path: str, features: Sequence[Feature], *, size_bytes: int, xxh3: str, verified_at: float | None = None
    ) -> int:
        """Record a shard that is sealed on disk, with where each sample lies in it; recording it twice is once.

        Rows of the same samples in older shards are replaced, as after a rebuild.

        Args:
            path: relative to RUN/features.
            features: one per sample, by position.
            size_bytes: of the file.
            xxh3: xxh3_128 of the file, hex.
            verified_at: when the file was read back and found good.

        Returns:
            The shard's id.
        """
        with self._transactions.begin(durable=True) as connection:
            cursor = connection.execute(
                "INSERT INTO shards (path, samples, rows, bytes, xxh3, sealed_at, verified_at)"
                " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (path) DO NOTHING",
                (
                    path,
                    len(features),
                    sum(feature.rows for feature in features),
                    size_bytes,
                    xxh3,
                    self._clock(),
                    verified_at,
                ),
            )
            (shard_id,) = connection.execute("SELECT id FROM shards WHERE path = ?", (path,)).fetchone()
            if cursor.rowcount == 1:
                connection.executemany(
                    "INSERT INTO features (sample_id, shard_id, position, rows, tokens_revision)"
                    " VALUES (?, ?, ?, ?, ?) ON CONFLICT (sample_id) DO UPDATE SET shard_id = excluded.shard_id,"
                    " position = excluded.position, rows = excluded.rows, tokens_revision = excluded.tokens_revision",
                    [
                        (feature.sample_id, shard_id, feature.position, feature.rows, feature.tokens_revision)
                        for feature in features
                    ],
                )
        return int(shard_id)

    def mark_verified(self, paths: Iterable[str], *, is_good: bool) -> None:
        """Record whether the shards that were read back were found good; of others nothing is said."""
        now = self._clock() if is_good else None
        with self._transactions.begin() as connection:
            connection.executemany("UPDATE shards SET verified_at = ? WHERE path = ?", [(now, path) for path in paths])

    def drop_shard(self, path: str) -> int:
        """Forget a shard whose file is lost or damaged, and return how many samples wait for features again."""
        with self._transactions.begin(durable=True) as connection:
            dropped = connection.execute(
                "DELETE FROM features WHERE shard_id = (SELECT id FROM shards WHERE path = ?)", (path,)
            ).rowcount
            connection.execute("DELETE FROM shards WHERE path = ?", (path,))
        return dropped
