"""End the provider of a run with its engine: once the shell that started both is gone, nobody else would."""

import os
import signal
import threading
import time
from pathlib import Path
from typing import Final

from eagletui.files.locked import is_locked

_LOOK_S: Final = 0.25


def end_without_engine(lock: Path, grace_s: float) -> None:
    """Watch the engine's lock from a thread, and drain this process once nobody has held it for so long.

    Args:
        lock: the engine's lock file; absent counts as not held.
        grace_s: an engine that is restarted meanwhile keeps its provider.
    """
    threading.Thread(target=_watch, args=(lock, grace_s), name="engine-watch", daemon=True).start()


def _watch(lock: Path, grace_s: float) -> None:
    seen = time.monotonic()
    while time.monotonic() - seen < grace_s:
        if is_locked(lock):
            seen = time.monotonic()
        time.sleep(min(_LOOK_S, grace_s / 4))
    os.kill(os.getpid(), signal.SIGTERM)
