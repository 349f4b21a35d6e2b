"""One shard as a job for a worker on any machine: ids in, a published and read-back shard out."""

import secrets
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass

from eagletui.core.features import Stored
from eagletui.extract.computing import Backend
from eagletui.extract.open_shard import LostInFp8, OpenShard, ShardKind, as_bytes
from eagletui.extract.shard_file import ShardFile
from eagletui.extract.shards import IdsSample, SealedShard
from eagletui.extract.storage import Storage, growing_in, publish_sealed


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


def make_shard(backend: Backend, job: ShardJob, stored: Stored, storage: Storage) -> ShardMade:
    """Compute a job's samples and publish them as one shard under a name that no other attempt has.

    Args:
        backend: the model.
        job: what to compute.
        stored: how states lie on disk.
        storage: takes the shard.

    Raises:
        ModelError: the model cannot compute these ids.
        RunError: the shard could not be written or read back.
        OSError: this machine's disk is full or broken.
    """
    facts = backend.facts
    kind = ShardKind(facts.hidden_size, facts.dtype, stored, job.rows)
    shard = OpenShard(kind, [sample.key for sample in job.samples])
    refused: list[RefusedSample] = []
    sealed: SealedShard | None = None
    compute_s, began = 0.0, time.perf_counter()
    with (
        growing_in(storage, None) as folder,
        ShardFile(folder, job.number, shard.header_bytes, secrets.token_hex(6)) as file,
    ):
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
                    file.append(as_bytes(encoded.states))
                    shard.add(computed.sample, encoded.scales)
            began = time.perf_counter()
        if shard.samples:
            file.complete(shard)
            sealed = file.seal(shard)
            publish_sealed(storage, folder, sealed.path)
    read_back = None if sealed is None else storage.digest(sealed.path)
    return ShardMade(job.number, sealed, read_back, tuple(refused), backend.choice, compute_s, socket.gethostname())


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
