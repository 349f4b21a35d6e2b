"""Find the next sample of a list with a mismatch, drift or failure."""

from collections.abc import Sequence
from typing import Final

from eagletui.ledger.async_reader import AsyncReader
from eagletui.tui.filter_line import PRESETS

_PROBLEMS: Final = tuple(PRESETS[name] for name in ("mismatched", "drifting", "failed"))


class SampleProblems:
    """The samples of a run that have a problem, read when first asked for."""

    def __init__(self) -> None:
        self._ids: set[int] | None = None

    def forget(self) -> None:
        """Read anew when asked the next time."""
        self._ids = None

    async def step(self, reader: AsyncReader, listed: Sequence[int], at: int, by: int) -> int | None:
        """Return the index of the next sample with a problem; None where there is none further on.

        Args:
            reader: of the run.
            listed: row ids in the order of the list.
            at: index to begin at, itself left out.
            by: 1 for forwards, -1 for backwards.
        """
        if self._ids is None:
            found: set[int] = set()
            for problem in _PROBLEMS:
                found |= set(await reader.sample_ids(problem))
            self._ids = found
        at += by
        while 0 <= at < len(listed):
            if listed[at] in self._ids:
                return at
            at += by
        return None

    @property
    def are_there(self) -> bool:
        """Tell whether any sample was found to have one."""
        return bool(self._ids)
