"""One thing `eagletui doctor` looked at."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "note", "warn", "error"]


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at, what was found, and what to do about it."""

    name: str
    level: Level
    """`note`: something is absent that not every job needs; `warn`: it will hurt; `error`: runs cannot work so."""
    detail: str
    """What was found."""
    advice: str = ""
    """What to do; empty where there is nothing to do."""

    @property
    def ok(self) -> bool:
        """Tell whether runs can work."""
        return self.level != "error"
