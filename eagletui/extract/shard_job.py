"""One shard as a job for a worker on any machine: ids in, a published and read-back shard out.

In two parts, so that a worker can publish one shard while it computes the next.
"""

import secrets
import socket
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from eagletui.core.features import Stored
from eagletui.extract.computing import Backend
from eagletui.extract.open_shard import Encoded, LostInFp8, OpenShard, ShardKind, as_bytes
from eagletui.extract.shard_file import ShardFile
from eagletui.extract.shard_writer import QUEUE_BYTES
from eagletui.extract.shards import IdsSample, SealedShard
from eagletui.extract.storage import Storage, publish_sealed


@dataclass(frozen=True, slots=True)
class ShardJob:
    """Samples that make one shard."""

    number: int
    samples: tuple[IdsSample, ...]

    @property
    def rows(self) -> int:
        """Tokens to compute."""
        return sum(len(sample.token_ids) for sample in self.samples)


@dataclass(frozen=True, slots=True)
class RefusedSample:
    """A sample that got no features."""

    sample: IdsSample
    why: str


@dataclass(frozen=True, slots=True)
class ShardMade:
    """What came of a job."""

    number: int
    shard: SealedShard | None
    """None where every sample was refused."""
    read_back_xxh3: str | None
    """Hash of what the storage gave back after publishing, hex."""
    refused: tuple[RefusedSample, ...]
    capture: str
    """How the samples were run, one sentence."""
    compute_s: float
    host: str


@dataclass(frozen=True, slots=True)
class GrownShard:
    """What was computed of a job, in a file of this machine that nobody else knows of."""

    number: int
    shard: OpenShard
    file: ShardFile
    folder: Path
    """Where the file grew."""
    refused: tuple[RefusedSample, ...]
    capture: str
    compute_s: float
    _place: ExitStack
    """Ends the file, if it is not sealed, and a folder of its own."""

    def close(self) -> None:
        """Leave nothing of it; what was published stays."""
        self._place.close()


def compute_shard(backend: Backend, job: ShardJob, stored: Stored, place: AbstractContextManager[Path]) -> GrownShard:
    """Compute a job's samples into a file; it is written while the next samples are computed.

    Args:
        backend: the model.
        job: what to compute.
        stored: how states lie on disk.
        place: gives the folder for the file, see `growing_in`.

    Raises:
        ModelError: the model cannot compute these ids.
        RunError: what was written could not be flushed.
        OSError: this machine's disk is full or broken.
    """
    facts = backend.facts
    kind = ShardKind(facts.hidden_size, facts.dtype, stored, job.rows)
    shard = OpenShard(kind, [sample.key for sample in job.samples])
    refused: list[RefusedSample] = []
    compute_s, began = 0.0, time.perf_counter()
    with ExitStack() as stack:
        folder = stack.enter_context(place)
        file = stack.enter_context(ShardFile(folder, job.number, shard.header_bytes, secrets.token_hex(6)))
        with _Behind(file) as behind:
            for computed in backend.compute(job.samples, lambda: True):
                compute_s += time.perf_counter() - began
                if computed.hidden_states is None:
                    refused.append(RefusedSample(computed.sample, str(computed.refusal)))
                else:
                    try:
                        encoded = kind.encode(computed.sample, computed.hidden_states)
                    except LostInFp8 as error:
                        refused.append(RefusedSample(computed.sample, str(error)))
                    else:
                        behind.append(encoded)
                        shard.add(computed.sample, encoded.scales)
                began = time.perf_counter()
        return GrownShard(job.number, shard, file, folder, tuple(refused), backend.choice, compute_s, stack.pop_all())


def publish_shard(grown: GrownShard, storage: Storage) -> ShardMade:
    """Seal a shard, publish it under a name that no other attempt has, and read it back.

    Args:
        grown: what was computed; nothing is left of it on this machine.
        storage: takes the shard.

    Raises:
        RunError: the shard could not be written or read back.
        OSError: this machine's disk is full or broken.
    """
    sealed: SealedShard | None = None
    with closing(grown):
        if grown.shard.samples:
            grown.file.complete(grown.shard)
            sealed = grown.file.seal(grown.shard)
            publish_sealed(storage, grown.folder, sealed.path)
    read_back = None if sealed is None else storage.digest(sealed.path)
    return ShardMade(
        grown.number, sealed, read_back, grown.refused, grown.capture, grown.compute_s, socket.gethostname()
    )


class _Behind:
    """Writes states in a thread while the next ones are computed; a slow disk makes the caller wait."""

    def __init__(self, file: ShardFile) -> None:
        self._file = file
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="shard-file")
        self._waiting: deque[tuple[Future[None], int]] = deque()
        self._waiting_bytes = 0

    def append(self, encoded: Encoded) -> None:
        while self._waiting and self._waiting_bytes + encoded.bytes > QUEUE_BYTES:
            self._take()
        self._waiting.append((self._thread.submit(self._file.append, as_bytes(encoded.states)), encoded.bytes))
        self._waiting_bytes += encoded.bytes

    def _take(self) -> None:
        written, size = self._waiting.popleft()
        written.result()
        self._waiting_bytes -= size

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            while self._waiting and error is None:
                self._take()
        finally:
            self._thread.shutdown(wait=True, cancel_futures=True)


def plan_jobs(samples: Sequence[IdsSample], first_number: int, capacity_rows: int) -> list[ShardJob]:
    """Cut samples into shards of at most `capacity_rows` tokens; a longer sample has one of its own."""
    jobs: list[ShardJob] = []
    waiting: list[IdsSample] = []
    rows = 0
    for sample in samples:
        if waiting and rows + len(sample.token_ids) > capacity_rows:
            jobs.append(ShardJob(first_number + len(jobs), tuple(waiting)))
            waiting, rows = [], 0
        waiting.append(sample)
        rows += len(sample.token_ids)
    if waiting:
        jobs.append(ShardJob(first_number + len(jobs), tuple(waiting)))
    return jobs
