"""The list that a sample was opened from, so that `[` and `]` go to its neighbours."""

from collections.abc import Sequence
from dataclasses import dataclass

from eagletui.ledger.async_reader import AsyncReader


@dataclass(frozen=True)
class SampleOrder:
    """Samples in the order of a list, by key or by row id."""

    keys: Sequence[str] = ()
    ids: Sequence[int] = ()
    """Used instead of keys for lists too long to name."""

    def __len__(self) -> int:
        """How many there are."""
        return len(self.ids) or len(self.keys)

    async def key_at(self, reader: AsyncReader, index: int) -> str | None:
        """Name a sample of the list."""
        if not 0 <= index < len(self):
            return None
        if not self.ids:
            return self.keys[index]
        rows = await reader.rows([self.ids[index]])
        return rows[0].sample_key if rows else None
