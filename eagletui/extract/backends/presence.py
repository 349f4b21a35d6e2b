"""Whether a server is there: one that is started again is waited for, and looked at before its answers count."""

import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from eagletui.core.reports import Report
from eagletui.extract.backends.refusals import Unusable
from eagletui.extract.backends.states_server import Unreachable


class Patience(NamedTuple):
    """How an absence is taken."""

    longest_s: float = 900.0
    """A server may be away for so long: loading the largest models takes minutes."""
    look_every_s: float = 2.0
    """Between two requests to a server that is away."""


PATIENCE: Final = Patience()


class Presence:
    """What all requests together know of it. Any thread may use it."""

    def __init__(
        self,
        check: Callable[[], str],
        on_back: Callable[[], None],
        report: Report,
        ended: threading.Event,
        patience: Patience,
    ) -> None:
        """Look at the server for the first time.

        Args:
            check: says how the server runs.
            on_back: called once it is back and runs as before.
            report: takes what people should know.
            ended: once set, nobody waits any more.
            patience: with a server that is away.

        Raises:
            Unusable: the server cannot be used.
        """
        self._check = check
        self._on_back = on_back
        self._report = report
        self._ended = ended
        self._patience = patience
        self._lock = threading.Lock()
        self._away_since: float | None = None
        try:
            self.stated = check()
            """How it runs."""
        except Unreachable as error:  # one that was never there is not waited for
            raise Unusable(str(error)) from error

    def wait(self, why: str) -> bool:
        """Take note that it cannot be reached, and wait for the next look; False where that has no sense any more.

        Args:
            why: what the request said, one sentence.
        """
        with self._lock:
            now = time.monotonic()
            if self._away_since is None:
                self._away_since = now
                self._report(
                    "warn", "server_away", f"{why} Extraction waits up to {self._patience.longest_s:g} s for it."
                )
            if now - self._away_since > self._patience.longest_s:
                return False
        return not self._ended.wait(self._patience.look_every_s)

    def answered(self) -> None:
        """Take note of an answer; after an absence it counts only if the server runs as before.

        Raises:
            Unreachable: it went away again before it was looked at: it still counts as away.
            Unusable: it does not.
        """
        if self._away_since is None:
            return
        with self._lock:
            if self._away_since is None:
                return
            stated = self._check()
            if stated != self.stated:
                raise Unusable(f"The server was away and runs otherwise now: {stated}. Before it was: {self.stated}.")
            self._on_back()
            self._away_since = None
            self._report("info", "server_back", "The server answers again and runs as before; extraction goes on.")
