"""How a worker of a run is asked to end."""

import signal
import threading
from types import FrameType


def stop_when_asked() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set; SIGHUP is ignored: the terminal's end is not the run's."""
    stop = threading.Event()

    def ask(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, ask)
    signal.signal(signal.SIGINT, ask)
    return stop
