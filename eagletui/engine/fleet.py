"""The receivers of an engine: start them, spread orders over them, and lose nothing when one dies."""

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from eagletui.core.errors import LockedError
from eagletui.engine import pipe
from eagletui.engine.rounds import ReceiverBeat
from eagletui.engine.spool import Kept, read_segment, segments
from eagletui.engine.taking import Order, Received, Taken, Taker
from eagletui.files.locked import is_locked
from eagletui.ledger.locks import lock_file, read_holder
from eagletui.providers.base import OnHeaders, ProviderFailure
from eagletui.runs.folder import RunFolder

log = logging.getLogger("eagletui.engine")

START_S: Final = 60.0
SILENT_S: Final = 60.0
"""A receiver that says nothing for so long hangs and is killed; its spool tells which of its replies had arrived."""
HEARD_S: Final = 2.0
"""The heartbeat of a receiver that is silent for longer grows old, and orders go to others."""
CLOSE_S: Final = 10.0
RESTARTS: Final = 5
"""A slot whose receivers died so often gets no other; the engine does its share itself."""
OLD_ONES_S: Final = 20.0
"""Receivers of a dead engine end within milliseconds; one that is still there after this is named."""


@dataclass(slots=True)
class _Out:
    """An order that a receiver works on."""

    order: Order
    on_headers: OnHeaders
    received: Received
    taken: "asyncio.Future[Taken]"


@dataclass(slots=True, eq=False)
class Remote:
    """One receiver process, seen from the engine."""

    slot: int
    process: "subprocess.Popen[bytes]"
    started_at: float
    """Unix seconds."""
    writer: asyncio.StreamWriter | None = None
    ready: bool = False
    out: dict[int, _Out] = field(default_factory=dict)
    """By attempt id."""
    unfiled: set[int] = field(default_factory=set)
    """Attempts that it reported and the ledger does not have yet."""
    last: pipe.Beat = field(default_factory=lambda: pipe.Beat(0.0, 0.0, 0, 0))
    heard_at: float = field(default_factory=time.monotonic)
    cores: float = 0.0
    """CPU seconds a second, between its last two beats."""
    notes: set[asyncio.Task[None]] = field(default_factory=set)
    hung_s: float | None = None
    """How long it had said nothing when it was killed for that."""

    @property
    def silent_s(self) -> float:
        """How long it has said nothing."""
        return time.monotonic() - self.heard_at

    def beat(self, beat: pipe.Beat) -> None:
        """Take a sign of life."""
        now = time.monotonic()
        if self.last.cpu_s and now > self.heard_at:
            self.cores = (beat.cpu_s - self.last.cpu_s) / (now - self.heard_at)
        self.last, self.heard_at = beat, now

    def send(self, message: pipe.Message) -> None:
        """Say something; a receiver that is gone does not hear it."""
        if self.writer is not None:
            pipe.send(self.writer, message)


class Fleet:
    """Takes replies in receivers where there are any, else in this process."""

    def __init__(self, folder: RunFolder, own: Taker, key: str) -> None:
        """Prepare; no process is started yet.

        Args:
            folder: of the run.
            own: takes what no receiver takes, and judges what a dead one left.
            key: the API key, handed to receivers through their pipe.
        """
        self._folder = folder
        self._own = own
        self.key = key
        self.remotes: dict[int, Remote] = {}
        """By slot, from 1."""
        self.deaths: dict[int, int] = {}
        """By slot: receivers that died unasked."""
        self._left: dict[Path, set[int]] = {}
        """Segments of dead receivers, and what of them the ledger does not have yet."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False
        self._changed = asyncio.Event()
        """A receiver became ready or died."""

    def use_key(self, key: str) -> None:
        """Hand another key to receivers, also to those that start later."""
        self.key = key
        for remote in self.remotes.values():
            remote.send(pipe.Hello(key))

    def start(self, slot: int) -> None:
        """Start a receiver in the background, unless all are ending; orders go to it once it is ready."""
        if self._closing:
            return  # nobody would tell it to end
        here, there = socket.socketpair()
        log_path = self._folder.path / "logs" / f"receiver-{slot}.log"
        descriptor = os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        command = [sys.executable, "-m", "eagletui.engine.receiver", str(self._folder.path.resolve())]
        try:
            process = subprocess.Popen(
                [*command, "--slot", str(slot), "--pipe", str(there.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=descriptor,
                stderr=descriptor,
                pass_fds=(there.fileno(),),
                start_new_session=True,
            )
        finally:
            os.close(descriptor)
            there.close()
        remote = Remote(slot, process, time.time())
        self.remotes[slot] = remote
        self._spawn(self._listen(remote, here))

    async def until_ready(self) -> None:
        """Wait until every receiver that was started can take orders, or has died."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_S):
                while any(not remote.ready for remote in self.remotes.values()):
                    self._changed.clear()
                    await self._changed.wait()

    async def take(self, order: Order, on_headers: OnHeaders, received: Received) -> Taken:
        """Take a reply in the receiver with the fewest orders, or in this process."""
        remote = min((remote for remote in self.remotes.values() if remote.ready), key=_load, default=None)
        if remote is None:
            return await self._own.take(order, on_headers, received)
        out = _Out(order, on_headers, received, asyncio.get_running_loop().create_future())
        remote.out[order.attempt_id] = out
        remote.send(order)
        try:
            return await asyncio.shield(out.taken)
        except asyncio.CancelledError:
            # Only the receiver knows whether the reply is all there; it says so at once, or its death does.
            remote.send(pipe.Abort(order.attempt_id))
            return await out.taken

    async def take_kept(self, kept: Kept, order: Order) -> Taken:
        """Judge a reply of an engine that died."""
        return await self._own.take_kept(kept, order)

    def filed(self, attempt_ids: Iterable[int]) -> None:
        """Hear what the ledger has, and let spools forget it."""
        ids = set(attempt_ids)
        self._own.filed(ids)
        for remote in self.remotes.values():
            if theirs := remote.unfiled & ids:
                remote.unfiled -= theirs
                remote.send(pipe.Filed(sorted(theirs)))
        for path, waiting in list(self._left.items()):
            waiting -= ids
            if not waiting:
                path.unlink(missing_ok=True)
                del self._left[path]

    def beats(self) -> list[ReceiverBeat]:
        """Signs of life of the receivers that spoke lately."""
        return [
            ReceiverBeat(
                remote.slot,
                remote.process.pid,
                remote.ready,
                {"in_flight": len(remote.out), "unjudged": remote.last.unjudged, "cores": round(remote.cores, 2)},
            )
            for remote in self.remotes.values()
            if remote.silent_s < HEARD_S
        ]

    @property
    def ready(self) -> int:
        """Receivers that take orders."""
        return sum(remote.ready for remote in self.remotes.values())

    @property
    def unjudged(self) -> int:
        """Replies received and not judged yet."""
        return self._own.desk.waiting + sum(remote.last.unjudged for remote in self.remotes.values())

    def require_life(self) -> None:
        """Kill receivers that hang; `_bury` deals with what they had."""
        for remote in self.remotes.values():
            if remote.ready and remote.silent_s > SILENT_S and remote.hung_s is None:
                remote.hung_s = remote.silent_s
                log.error("receiver %d said nothing for %.0f s and is killed", remote.slot, remote.hung_s)
                remote.process.kill()

    async def close(self) -> None:
        """End every receiver once nothing is under way in it."""
        self._closing = True
        for remote in list(self.remotes.values()):
            remote.send(pipe.Close())
        for remote in list(self.remotes.values()):
            try:
                await asyncio.to_thread(remote.process.wait, CLOSE_S)
            except subprocess.TimeoutExpired:
                remote.process.kill()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._own.spool.close()

    async def _listen(self, remote: Remote, connection: socket.socket) -> None:
        reader, remote.writer = await asyncio.open_connection(sock=connection, limit=pipe.LIMIT_BYTES)
        remote.send(pipe.Hello(self.key))
        while (message := await pipe.receive(reader)) is not None:
            match message:
                case pipe.Ready():
                    remote.ready, remote.heard_at = True, time.monotonic()
                    self._changed.set()
                case pipe.Beat():
                    remote.beat(message)
                case pipe.Headers():
                    self._note(remote, message)
                case pipe.Ended(attempt_id, taken):
                    self._end(remote, attempt_id, taken)
                case _:
                    break
        remote.ready = False
        remote.writer.close()
        await asyncio.to_thread(remote.process.wait)
        await self._bury(remote)

    def _note(self, remote: Remote, headers: pipe.Headers) -> None:
        out = remote.out.get(headers.attempt_id)
        if out is None:
            return

        async def note() -> None:
            await out.on_headers(headers.generation_id, headers.http_status)
            remote.send(pipe.Go(headers.attempt_id))

        task = asyncio.create_task(note())
        remote.notes.add(task)
        task.add_done_callback(remote.notes.discard)

    def _end(self, remote: Remote, attempt_id: int, taken: Taken) -> None:
        out = remote.out.pop(attempt_id, None)
        if out is None or out.taken.done():
            return
        if taken.kept is not None:
            remote.unfiled.add(attempt_id)
        out.received()
        out.taken.set_result(taken)

    async def _bury(self, remote: Remote) -> None:
        """Take what a dead receiver had received, call the rest of its orders lost, and start another."""
        await asyncio.gather(*remote.notes, return_exceptions=True)
        if self.remotes.get(remote.slot) is remote:
            del self.remotes[remote.slot]
        self._changed.set()
        left = await asyncio.to_thread(_left_by, self._folder.spool_dir, remote.slot)
        entries = {kept.attempt_id: kept for kept_by_path in left.values() for kept in kept_by_path}
        for path, kept_by_path in left.items():
            waiting = {kept.attempt_id for kept in kept_by_path} & (remote.unfiled | remote.out.keys())
            waiting |= self._left.get(path, set())  # of one that died in this slot before
            if waiting:
                self._left[path] = waiting
            else:
                path.unlink(missing_ok=True)
        if not self._closing:
            self.deaths[remote.slot] = self.deaths.get(remote.slot, 0) + 1
            log.warning(
                "receiver %d (pid %d) died with exit code %s; of %d replies under way, %d are in its spool",
                remote.slot,
                remote.process.pid,
                remote.process.returncode,
                len(remote.out),
                len(entries.keys() & remote.out.keys()),
            )
            if self.deaths[remote.slot] <= RESTARTS:
                self.start(remote.slot)
        for attempt_id, out in list(remote.out.items()):
            kept = entries.get(attempt_id)
            taken = Taken(None, None, _lost(remote)) if kept is None else await self._own.take_kept(kept, out.order)
            out.received()
            if not out.taken.done():
                out.taken.set_result(taken)
        remote.out.clear()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _load(remote: Remote) -> tuple[bool, int]:
    """Order receivers by how little they have to do; one that may hang comes last."""
    return remote.silent_s >= HEARD_S, len(remote.out)


def _lost(remote: Remote) -> ProviderFailure:
    how = "died" if remote.hung_s is None else f"said nothing for {remote.hung_s:.0f} s and was killed"
    detail = f"Receiver {remote.slot} {how} while the reply was on its way."
    return ProviderFailure("disconnect", detail)


def _left_by(folder: Path, slot: int) -> dict[Path, list[Kept]]:
    return {path: read_segment(path) for path in segments(folder, f"receiver-{slot}")}


async def await_old_receivers(folder: RunFolder) -> None:
    """Wait until the receivers of an engine that died are gone, so that their spools are whole.

    Raises:
        LockedError: one of them does not end.
    """
    deadline = time.monotonic() + OLD_ONES_S
    for path in sorted(lock_file(folder.path, "receiver").parent.glob("receiver-*.lock")):
        while is_locked(path):
            if time.monotonic() >= deadline:
                holder = read_holder(path)
                who = "a process" if holder is None else f"pid {holder.pid} on {holder.host}"
                raise LockedError(
                    f"{who} still receives replies for a dead engine of {folder.name} ({path.name}). Stop it, then "
                    "start the run again."
                )
            await asyncio.sleep(0.02)  # a lock tells nobody when it is let go, so it is looked at again
    with contextlib.suppress(OSError):
        folder.spool_dir.rmdir()  # an empty one says nothing
