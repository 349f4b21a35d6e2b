"""Questions that a verification asks, and their answers."""

from dataclasses import dataclass, field
from typing import Final, Literal

from eagletui.core.text import clean_line

_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Check:
    """One question and its answer."""

    name: str
    ok: bool
    level: Literal["error", "warn"]
    """An `error` that is not ok makes the folder bad; a `warn` only asks for a look."""
    detail: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Everything that was checked."""

    checks: tuple[Check, ...]
    samples: int
    rows: int
    shards: int
    """Files that were read."""
    compared: int
    """Samples that a fresh forward was run over."""
    looked_at: tuple[str, ...] = ()
    """Paths of a features folder's shards that were looked at: not those that a trainer acknowledged."""

    @property
    def ok(self) -> bool:
        """No check of level error failed."""
        return all(check.ok or check.level == "warn" for check in self.checks)

    @property
    def to_look_at(self) -> tuple[str, ...]:
        """Names of the checks that only ask for a look."""
        return tuple(check.name for check in self.checks if not check.ok and check.level == "warn")


@dataclass(slots=True)
class Faults:
    """Faults of one kind, the first few in words."""

    name: str
    fine: str
    """What to say where there are none."""
    level: Literal["error", "warn"] = "error"
    shown: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, text: str) -> None:
        """Count one."""
        self.count += 1
        if len(self.shown) < _SHOWN:
            self.shown.append(clean_line(text, 300))

    def check(self) -> Check:
        """Return the answer."""
        rest = f" and {self.count - len(self.shown)} more" if self.count > len(self.shown) else ""
        return Check(self.name, not self.count, self.level, "; ".join(self.shown) + rest if self.count else self.fine)
