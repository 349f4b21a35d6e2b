"""When the disk below the features fills, against what is still to be written."""

from dataclasses import dataclass
from typing import Final

LOW_WATER_BYTES: Final = 512 * 1024 * 1024
"""Left free for the ledger on the same disk: paid answers go before features, which can be computed again."""

TELLING_SAMPLES: Final = 20
"""So many answers tell how long the others will be, and how many of them can be trained on."""


@dataclass(frozen=True, slots=True)
class ToWrite:
    """What extraction still has before it."""

    waiting: int
    """Samples whose features could be computed now."""
    to_come: int
    """Samples without an answer that extraction will follow; 0 where it does not wait for them."""
    answered: int
    """Samples with an answer, of which some cannot be trained on."""
    trainable: int
    """Of those: with features or waiting for them."""
    tokens_each: float | None
    """Of a sample, prompt included; None before the first answers."""
    row_bytes: float | None
    """Of one token on the disk; None until a shard or a model tells."""

    @property
    def samples(self) -> int:
        """How many samples' features are still to be written, as far as can be told."""
        share = self.trainable / self.answered if self.answered >= TELLING_SAMPLES else 1.0
        return self.waiting + round(self.to_come * share)

    @property
    def bytes(self) -> int | None:
        """What they take; None where too little is known."""
        if not self.samples:
            return 0
        if self.tokens_each is None or self.row_bytes is None:
            return None
        return round(self.samples * self.tokens_each * self.row_bytes)


@dataclass(frozen=True, slots=True)
class DiskOutlook:
    """Whether the rest fits, and if not, when the disk is full."""

    free_bytes: int
    """On the disk, the part that stays free included."""
    to_write_bytes: int | None
    """None: unknown."""
    bytes_per_s: float | None
    """Written to shards; None: unknown."""

    @property
    def room_bytes(self) -> int:
        """What features may still take."""
        return max(0, self.free_bytes - LOW_WATER_BYTES)

    @property
    def spare_bytes(self) -> int | None:
        """Room left at the end; negative where it does not fit; None where what is needed is unknown."""
        return None if self.to_write_bytes is None else self.room_bytes - self.to_write_bytes

    @property
    def full_in_s(self) -> float | None:
        """Seconds until the disk is full at the present pace; None where it fits or the pace is unknown."""
        if self.spare_bytes is None or self.spare_bytes >= 0 or not self.bytes_per_s:
            return None
        return self.room_bytes / self.bytes_per_s
