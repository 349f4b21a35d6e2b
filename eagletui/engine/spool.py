"""Replies on disk from the moment they are whole until the ledger has them, so that no kill loses one.

A process that receives has segments of its own, `RUN/spool/NAME-NUMBER.spool`. A frame is its length and CRC-32, four
bytes each, little-endian, and the entry as msgpack; a frame torn by a kill ends the reading. An entry is reported only
after its flush; a segment goes away once the ledger has all of its entries.
"""

import asyncio
import logging
import os
import struct
import time
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from eagletui.files.appending import append_whole
from eagletui.files.flushing import flush_folder
from eagletui.ledger.codecs import Packed, pack_bytes, unpack_bytes
from eagletui.providers.base import Encoding, FailureKind, ProviderFailure, RawReply

log = logging.getLogger("eagletui.engine")

SEGMENT_BYTES: Final = 8 * 2**20
SUFFIX: Final = ".spool"
_HEAD: Final = struct.Struct("<II")


class Kept(msgspec.Struct, frozen=True, array_like=True):
    """A reply as received, compressed. Times are Unix seconds, because a restart has other monotonic ones."""

    attempt_id: int
    encoding: Encoding
    blob: bytes
    """zstd."""
    body_bytes: int
    http_status: int
    generation_id: str | None
    started_at: float
    headers_at: float
    first_event_at: float | None
    ended_at: float
    cut_kind: FailureKind | None = None
    """Why the body ended early; None when it came whole."""
    cut_detail: str = ""

    @property
    def body(self) -> Packed:
        """The body as the ledger takes it."""
        return Packed(self.blob, self.body_bytes)


def keep(attempt_id: int, raw: RawReply) -> Kept:
    """Compress a reply for the spool, the pipe and the ledger at once."""
    ahead_s = time.time() - time.monotonic()
    return Kept(
        attempt_id=attempt_id,
        encoding=raw.encoding,
        blob=pack_bytes(raw.body),
        body_bytes=len(raw.body),
        http_status=raw.http_status,
        generation_id=raw.generation_id,
        started_at=raw.started_at + ahead_s,
        headers_at=raw.headers_at + ahead_s,
        first_event_at=None if raw.first_event_at is None else raw.first_event_at + ahead_s,
        ended_at=raw.ended_at + ahead_s,
        cut_kind=None if raw.cut is None else raw.cut.kind,
        cut_detail="" if raw.cut is None else raw.cut.detail,
    )


def unkeep(kept: Kept) -> RawReply:
    """Undo `keep`."""
    ahead_s = time.time() - time.monotonic()
    cut = None
    if kept.cut_kind is not None:
        cut = ProviderFailure(kept.cut_kind, kept.cut_detail, http_status=kept.http_status)
    return RawReply(
        encoding=kept.encoding,
        body=unpack_bytes(kept.blob),
        http_status=kept.http_status,
        generation_id=kept.generation_id,
        started_at=kept.started_at - ahead_s,
        headers_at=kept.headers_at - ahead_s,
        first_event_at=None if kept.first_event_at is None else kept.first_event_at - ahead_s,
        ended_at=kept.ended_at - ahead_s,
        cut=cut,
    )


@dataclass(slots=True)
class _Segment:
    path: Path
    descriptor: int
    size_bytes: int = 0
    awaited: set[int] = field(default_factory=set)
    """Attempts whose entries the ledger does not have yet."""


class Spool:
    """The segments of one receiving process."""

    def __init__(self, folder: Path, name: str) -> None:
        """Name the spool; nothing is made before the first entry.

        Args:
            folder: `RUN/spool`.
            name: of the process, such as `receiver-1`.
        """
        self._folder = folder
        self._name = name
        self._segments: list[_Segment] = []
        """The last one is written."""
        self._waiting: list[tuple[Kept, asyncio.Future[None]]] = []
        self._flushing: asyncio.Task[None] | None = None

    async def put(self, kept: Kept) -> None:
        """Append an entry; returns when it is flushed. Entries that wait together share one flush.

        A disk that takes nothing is logged and waited out by the ledger, not here: the entry then has no second place.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((kept, done))
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush())
        await asyncio.shield(done)

    def forget(self, attempt_ids: Iterable[int]) -> None:
        """Give up entries that the ledger has."""
        forgotten = set(attempt_ids)
        for segment in self._segments:
            segment.awaited -= forgotten
        for segment in self._segments[:-1]:
            if not segment.awaited:
                self._drop(segment)

    async def close(self) -> None:
        """Flush what waits; segments with entries that the ledger lacks stay for the next start."""
        while self._flushing is not None:
            await self._flushing
        for segment in list(self._segments):
            if segment.awaited:
                os.close(segment.descriptor)
            else:
                self._drop(segment)
        self._segments.clear()

    def _drop(self, segment: _Segment) -> None:
        self._segments.remove(segment)
        os.close(segment.descriptor)
        segment.path.unlink(missing_ok=True)

    async def _flush(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                try:
                    segment = self._open_segment()
                    segment.awaited.update(kept.attempt_id for kept, _ in batch)
                    segment.size_bytes += await asyncio.to_thread(_append, segment, [kept for kept, _ in batch])
                except OSError as error:
                    log.error("the spool of %s cannot be written: %s", self._name, error)
                for _, done in batch:
                    if not done.done():
                        done.set_result(None)
        finally:
            self._flushing = None

    def _open_segment(self) -> _Segment:
        if self._segments:
            current = self._segments[-1]
            if current.size_bytes < SEGMENT_BYTES:
                return current
            if not current.awaited:
                os.ftruncate(current.descriptor, 0)
                current.size_bytes = 0
                return current
        self._folder.mkdir(mode=0o700, exist_ok=True)
        path = self._folder / f"{self._name}-{time.time_ns()}{SUFFIX}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        segment = _Segment(path, os.open(path, flags, 0o600))
        flush_folder(self._folder)
        self._segments.append(segment)
        return segment


def _append(segment: _Segment, batch: list[Kept]) -> int:
    """Write and flush frames and return their size."""
    data = b"".join(map(_frame, batch))
    append_whole(segment.descriptor, data, segment.size_bytes)
    return len(data)


def _frame(kept: Kept) -> bytes:
    data = msgspec.msgpack.encode(kept)
    return _HEAD.pack(len(data), zlib.crc32(data)) + data


def segments(folder: Path, name: str = "") -> list[Path]:
    """List the segments in a spool folder, oldest first, of one process or of all."""
    paths = folder.glob(f"{name}-*{SUFFIX}" if name else f"*{SUFFIX}")
    return sorted(paths, key=lambda path: int(path.stem.rpartition("-")[2]))


def read_segment(path: Path) -> list[Kept]:
    """Read the entries of a segment up to the first torn frame."""
    data = path.read_bytes()
    at = 0
    entries = []
    while at + _HEAD.size <= len(data):
        length, checksum = _HEAD.unpack_from(data, at)
        body = data[at + _HEAD.size : at + _HEAD.size + length]
        if len(body) < length or zlib.crc32(body) != checksum:
            break
        entries.append(msgspec.msgpack.decode(body, type=Kept))
        at += _HEAD.size + length
    return entries
