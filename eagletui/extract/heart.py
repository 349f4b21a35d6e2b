"""Give signs of life beside the extraction, with its figures: loading and forwards take long."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from eagletui.core.errors import LedgerError
from eagletui.core.gauges import ExtractorDetail, Machine
from eagletui.extract.gauges import MachineReader
from eagletui.ledger.writer_extract import ExtractorWriter

_BEAT_S: Final = 1.0


@contextmanager
def beating(writer: ExtractorWriter, figures: Callable[[Machine], ExtractorDetail]) -> Iterator[None]:
    """Beat once a second from a thread of its own, and a last time at the end.

    Args:
        writer: of the run's ledger.
        figures: of the extraction, given what this process takes of its machine; called from the thread.
    """
    ended = threading.Event()
    with MachineReader() as machine:

        def beat(*, ready: bool = False) -> None:
            writer.beat("extractor", ready=ready, detail=figures(machine.read()).detail())

        def keep_beating() -> None:
            while not ended.wait(_BEAT_S):
                with suppress(LedgerError):  # a full disk; the next beat may pass
                    beat()
                    writer.tick()

        beat(ready=True)
        thread = threading.Thread(target=keep_beating, name="heart", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            with suppress(LedgerError):  # the last figures are worth less than the reason for the end
                beat()
            writer.stop_beat("extractor")
