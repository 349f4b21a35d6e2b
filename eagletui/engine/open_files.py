"""The limit of open files: every request in flight is a socket, in the engine or in one of its receivers."""

import resource
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

BESIDE: Final = 200
"""Files of a process that are not sockets of requests: the ledger, the spool, logs, pipes, questions about costs."""


def raise_limit() -> int:
    """Raise this process's limit as far as it may, and return it; receivers get theirs from the engine."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return sys.maxsize if most == resource.RLIM_INFINITY else most


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """What the limit means for requests in flight."""

    limit: int
    """Of open files, in each process."""
    receivers: Callable[[], int]
    """How many processes take requests; while there is none, the engine does."""

    def room(self) -> int:
        """Return how many requests may be in flight."""
        return max(1, self.limit - BESIDE) * max(1, self.receivers())

    def doubt(self, wanted: int) -> str | None:
        """Say what is wrong and the way out where more requests are wanted than fit; else None."""
        room = self.room()
        if wanted <= room:
            return None
        needed = wanted + BESIDE
        return (
            f"Only {room:,} of {wanted:,} requests can be in flight: a process may open {self.limit:,} files here, and "
            f"{BESIDE} are kept for others than requests. For more, start the run again after `ulimit -n {needed}` "
            f"(where that is refused, `ulimit -Hn {needed}` as root before it)."
        )
