"""Look for garbage while nobody waits for a key's effect.

A look over every object of the screens takes 50 ms, and the interpreter takes it every few seconds. Here it is taken
when no key was pressed for a while, and what it leaves is set aside, so that the looks in between are short.
"""

import gc
from collections.abc import Callable
from typing import Final

_IDLE_S: Final = 2.0
_EVERY_S: Final = 60.0
_OLDEST: Final = 2
"""The generation whose collection looks at everything that was not set aside."""


class Tidying:
    """Decides when to look, and looks."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Prepare.

        Args:
            clock: seconds that only grow.
        """
        self._clock = clock
        self._touched_at = clock()
        self._looked_at: float | None = None
        self._full_looks = 0

    def touched(self) -> None:
        """Note that a person did something."""
        self._touched_at = self._clock()

    def is_due(self) -> bool:
        """Tell whether it is a good moment: nobody is at the keys, and the interpreter looked since the last time."""
        now = self._clock()
        if now - self._touched_at < _IDLE_S:
            return False
        if self._looked_at is None:
            return True
        return now - self._looked_at >= _EVERY_S and _full_looks() > self._full_looks

    def tidy(self) -> None:
        """Free what nothing holds, and set the rest aside until the next time."""
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._looked_at = self._clock()
        self._full_looks = _full_looks()


def _full_looks() -> int:
    return int(gc.get_stats()[_OLDEST]["collections"])
