"""Remember where each prompt key was first seen, in sixteen to forty-eight bytes a key whatever its length."""

from array import array
from typing import Final, NamedTuple

_LINE_BITS: Final = 40
_SMALLEST: Final = 1 << 10
_ALL_BITS: Final = (1 << 64) - 1


class Place(NamedTuple):
    """Where a key stands."""

    file: int
    """Index of the file."""
    line: int
    """1-based."""
    given: bool
    """A given id, not a hash of the content."""


class SeenKeys:
    """A table from key to first place: open addressing over two flat arrays, keys as Python's 64-bit hashes."""

    def __init__(self) -> None:
        """Start empty."""
        self._hashes = array("Q", bytes(8 * _SMALLEST))
        self._places = array("Q", bytes(8 * _SMALLEST))
        self._count = 0

    def first(self, key: str, place: Place) -> Place | None:
        """Return where the key was first seen, or remember `place` and return None."""
        digest = hash(key) & _ALL_BITS or 1
        slot = self._slot(digest)
        if self._hashes[slot]:
            found = self._places[slot]
            return Place(found >> (_LINE_BITS + 1), (found >> 1) & ((1 << _LINE_BITS) - 1), bool(found & 1))
        self._hashes[slot] = digest
        self._places[slot] = (place.file << (_LINE_BITS + 1)) | (place.line << 1) | place.given
        self._count += 1
        if 2 * self._count > len(self._hashes):
            self._grow()
        return None

    def _slot(self, digest: int) -> int:
        hashes = self._hashes
        mask = len(hashes) - 1
        slot = digest & mask
        while (there := hashes[slot]) and there != digest:
            slot = (slot + 1) & mask
        return slot

    def _grow(self) -> None:
        hashes, places = self._hashes, self._places
        self._hashes = array("Q", bytes(16 * len(hashes)))
        self._places = array("Q", bytes(16 * len(hashes)))
        for digest, place in zip(hashes, places, strict=True):
            if digest:
                slot = self._slot(digest)
                self._hashes[slot] = digest
                self._places[slot] = place
