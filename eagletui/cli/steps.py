"""Progress of a long command: a bar on a terminal, plain lines elsewhere, always on stderr."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from eagletui.cli.output import say

_EVERY_S = 5.0


@contextmanager
def steps(what: str, total: int | None) -> Iterator[Callable[[int, int], None]]:
    """Show how far a job is.

    Args:
        what: the verb, such as "rebuilding".
        total: steps in all; None where only the job finds out.

    Yields:
        A function that takes the steps done and the steps in all.
    """
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what, total=total)
            yield lambda done, of: bar.update(task, completed=done, total=of)
        return
    told = time.monotonic()

    def line(done: int, of: int) -> None:
        nonlocal told
        now = time.monotonic()
        if now - told >= _EVERY_S:
            told = now
            say(f"{what}: {done:,} of {of:,}")

    yield line
