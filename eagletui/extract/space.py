"""How much room is left where features go."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from eagletui.core.errors import InputError

LOW_WATER_BYTES: Final = 512 * 1024 * 1024
"""Left free for the ledger on the same disk: paid answers go before features, which can be computed again."""

_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """The disk that holds a features folder."""

    folder: Path
    """An existing folder on that disk."""
    low_water_bytes: int = LOW_WATER_BYTES
    """Never used for features."""
    statvfs: Callable[[Path], os.statvfs_result] = os.statvfs

    def free_bytes(self) -> int:
        """Return what features may still take; negative below the low-water mark."""
        status = self.statvfs(self.folder)
        return status.f_bavail * status.f_frsize - self.low_water_bytes


def require_room(space: DiskSpace, needed_bytes: int) -> None:
    """Check before the first forward that everything will fit.

    Raises:
        InputError: it will not; both figures are named.
    """
    free = space.free_bytes()
    if needed_bytes > free:
        raise InputError(
            f"The features need {size_text(needed_bytes)}, but {space.folder} has {size_text(max(0, free))} to give "
            f"({size_text(space.low_water_bytes)} stay free). Name a larger disk with --out, take --dtype bfloat16, "
            "or extract fewer samples. Nothing was written."
        )


def size_text(size_bytes: int) -> str:
    """Write a size for people, in binary units."""
    size, unit = float(size_bytes), 0
    while abs(size) >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size_bytes} bytes" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"
