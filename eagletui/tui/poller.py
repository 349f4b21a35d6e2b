"""Look at the ledger again and again, and read it where it changed."""

import asyncio
import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

from textual.message import Message

from eagletui.core.errors import LedgerError
from eagletui.core.lifecycle import FINISHED_RUNS
from eagletui.ledger.async_reader import AsyncReader
from eagletui.ledger.disk import network_kind
from eagletui.ledger.rows import EventRow
from eagletui.runs.folder import RunFolder
from eagletui.tui.messages import RunRead, RunUnreadable
from eagletui.tui.panels import spend_attention
from eagletui.tui.run_view import EVENTS_KEPT, RunView, own_attention, own_events, own_snapshot
from eagletui.tui.standing import is_dead

_ATTENTION = 200
_TICKS_S = 300
_LOG_TAIL_BYTES = 4_096
_RELOOK_S = 2.0
"""A run that should be moving is read this often even if nothing was written: its workers may have died."""


class Poller:
    """Reads one run and posts what it found."""

    def __init__(
        self, folder: RunFolder, reader: AsyncReader, clock: Callable[[], float], post: Callable[[Message], object]
    ) -> None:
        """Prepare.

        Args:
            folder: the run.
            reader: open on its ledger.
            clock: Unix seconds.
            post: takes the messages.
        """
        self._folder = folder
        self._reader = reader
        self._clock = clock
        self._post = post
        self._wake = asyncio.Event()
        self._version: int | None = None
        self._view: RunView | None = None

    async def run(self, interval_s: float) -> None:
        """Look until cancelled."""
        while True:
            await self.look()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), interval_s)
            self._wake.clear()

    def look_now(self) -> None:
        """Do not wait for the next turn."""
        self._version = None
        self._wake.set()

    async def look(self) -> None:
        """Look once, and read if there is something new."""
        try:
            version = await self._reader.data_version()
            now = self._clock()
            if self._view is not None and version == self._version and not self._is_due(self._view, now):
                self._view = self._view.looked_at(now)
            else:
                self._view = await self._read(now)
                self._version = version
        except LedgerError as error:
            self._post(RunUnreadable(error))
        else:
            self._post(RunRead(self._view))

    def _is_due(self, view: RunView, now: float) -> bool:
        return view.snapshot.run.state not in FINISHED_RUNS and now - view.snapshot.at >= _RELOOK_S

    async def _read(self, now: float) -> RunView:
        argument = self._folder.argument
        snapshot = own_snapshot(await self._reader.snapshot(), argument)
        old = self._view
        events: tuple[EventRow, ...] = () if old is None else old.events
        if old is None:
            events = own_events(await self._reader.last_events(EVENTS_KEPT), argument)
        elif snapshot.last_event_id > old.snapshot.last_event_id:
            last_id = events[-1].id if events else 0
            if snapshot.last_event_id - last_id > EVENTS_KEPT:
                events = own_events(await self._reader.last_events(EVENTS_KEPT), argument)
            else:
                new = own_events(await self._reader.events(last_id, EVENTS_KEPT), argument)
                events = (*events, *new)[-EVENTS_KEPT:]
        works = any(worker.alive for worker in snapshot.workers)
        end = now if works else snapshot.run.finished_at or now
        return RunView(
            folder=self._folder,
            snapshot=snapshot,
            attention=own_attention((*spend_attention(snapshot), *await self._reader.attention(_ATTENTION)), argument),
            events=events,
            ticks=tuple(await self._reader.ticks(end - _TICKS_S)),
            free_bytes=_free_bytes(self._folder),
            network_disk=network_kind(self._folder.ledger_path) if old is None else old.network_disk,
            last_words=_last_line(self._folder.log_path("engine")) if is_dead(snapshot) else "",
            read_at=now,
        )


def _last_line(path: Path) -> str:
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - _LOG_TAIL_BYTES))
            text = log.read().decode("utf-8", "replace").strip()
    except OSError:
        # Without a log there are no last words.
        return ""
    return text.splitlines()[-1] if "Traceback (most recent call last)" in text else ""


def _free_bytes(folder: RunFolder) -> int | None:
    # The folder of the features may be a link to a larger disk, and is not there before the first of them.
    features = folder.features_dir
    try:
        return shutil.disk_usage(features if features.is_dir() else folder.path).free
    except OSError:
        # A disk that went away is reported by whoever writes to it.
        return None
