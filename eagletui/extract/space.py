"""How much room is left where features go."""

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from eagletui.core.disk_outlook import LOW_WATER_BYTES
from eagletui.core.reports import Report

FULL: Final = (errno.ENOSPC, errno.EDQUOT)
"""What the system says where a disk, or somebody's share of it, has no room."""

_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """The disk that holds a features folder."""

    folder: Path
    """An existing folder on that disk."""
    low_water_bytes: int = LOW_WATER_BYTES
    """Never used for features."""
    statvfs: Callable[[Path], os.statvfs_result] = os.statvfs
    removable_bytes: int = 0
    """Of files on that disk that go before anything is written."""

    @classmethod
    def below(cls, folder: Path) -> Self:
        """Take the disk that holds a folder, or will hold it once it is made."""
        place = folder.absolute()
        return cls(next(known for known in (place, *place.parents) if known.exists()))

    def free_bytes(self) -> int:
        """Return what features may still take; negative below the low-water mark."""
        status = self.statvfs(self.folder)
        return status.f_bavail * status.f_frsize + self.removable_bytes - self.low_water_bytes


class DiskGate:
    """Tells whether a disk takes what comes next; says so once where it does not, and once when it does again."""

    def __init__(self, space: DiskSpace, report: Report) -> None:
        """Take the disk; it counts as having room until somebody asks."""
        self._space = space
        self._report = report
        self.is_closed = False

    def lets_through(self, needed_bytes: int) -> bool:
        """Tell whether so much more fits above the low-water mark."""
        free = self._space.free_bytes()
        if free >= needed_bytes:
            if self.is_closed:
                self._report("info", "disk_freed", "The disk has room again; extraction goes on.")
            self.is_closed = False
        elif not self.is_closed:
            self.is_closed = True
            self._report(
                "warn",
                "disk_low",
                f"Extraction waits: the next shards need {size_text(needed_bytes)}, and {self._space.folder} has "
                f"{size_text(max(0, free))} to give. Free space on that disk; nothing is lost.",
            )
        return not self.is_closed


def refused_for_room(error: BaseException) -> OSError | None:
    """Return what a disk without room said, where that is what an error comes from; None for other errors."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in FULL:
            return cause
        cause = cause.__cause__
    return None


def size_text(size_bytes: int) -> str:
    """Write a size for people, in binary units."""
    size, unit = float(size_bytes), 0
    while abs(size) >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size_bytes} bytes" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"
