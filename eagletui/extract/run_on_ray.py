"""Make the shards of a run on a Ray cluster: plan them here, have them made there, and write the ledger here alone."""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal, Protocol

import ray

from eagletui.core.features import FeatureLayers, Stored, folder_bytes
from eagletui.core.reports import Report
from eagletui.core.text import clean_line
from eagletui.extract.engines import Order
from eagletui.extract.gather import Progress
from eagletui.extract.ray_pool import Asked, Failure, RayPool, connect, disconnect, worker_share
from eagletui.extract.shard_job import ShardJob, ShardMade, plan_jobs
from eagletui.extract.shards import IdsSample, SealedShard
from eagletui.extract.space import DiskGate
from eagletui.extract.storage import Storage
from eagletui.models.facts import ModelFacts

MOST_FAILURES: Final = 3
"""Workers that may say no to a job before its samples are given up."""

MOST_LOSSES: Final = 8
"""Workers that may be lost with a job before its samples are given up: one is a node's fault, eight are the job's."""

_PAGE: Final = 256


class Work(Protocol):
    """The run whose shards are wanted."""

    progress: Progress
    storage: Storage
    gate: DiskGate
    """Of the disk of the features folder."""

    def report(self, level: Literal["info", "warn", "error"], kind: str, message: str) -> None:
        """Tell what people should know."""

    def take(self, limit: int) -> Sequence[IdsSample]:
        """Hand out samples that wait."""

    def is_over(self) -> bool:
        """Tell whether no sample comes any more."""

    def is_stopping(self) -> bool:
        """Tell whether nothing more is to be begun."""

    def next_number(self) -> int:
        """Number of the next shard."""

    def commit(self, shard: SealedShard) -> None:
        """Record a shard: from then on it counts."""

    def refuse(self, sample: IdsSample, why: str) -> None:
        """Record that a sample gets no features."""

    def listed(self) -> Sequence[str]:
        """Paths of the shards that count."""

    def step(self) -> None:
        """Tell that something was done."""


@dataclass(slots=True)
class Cluster:
    """Workers with one model, as the driver knows them."""

    pool: RayPool
    place: str
    facts: ModelFacts
    layers: FeatureLayers
    choice: str = "undecided"
    _again: deque[ShardJob] = field(default_factory=deque)
    _planned: deque[ShardJob] = field(default_factory=deque)
    _buffer: list[IdsSample] = field(default_factory=list)
    _strikes: Counter[int] = field(default_factory=Counter)
    _losses: Counter[int] = field(default_factory=Counter)
    _under_way: dict[int, int] = field(default_factory=dict)
    """Bytes of the shards that workers make on this disk, by number."""
    _number: int = 0

    @property
    def versions(self) -> Mapping[str, str]:
        """Of what computes, besides this program's libraries."""
        return {"ray": ray.__version__}

    def close(self) -> None:
        """Let the workers go and leave the cluster."""
        self.pool.close()
        disconnect()

    def make_shards(self, work: Work, stored: Stored, capacity_rows: int) -> Progress:
        """Make shards until nothing is left; where they go to this disk, none is begun that it has no room for.

        Args:
            work: the run.
            stored: how states lie on disk.
            capacity_rows: tokens of a full shard.

        Raises:
            RunError: no worker starts.
        """
        self._number = work.next_number()
        self._under_way.clear()

        def next_job() -> ShardJob | Literal["later"] | None:
            job = self._next(work, capacity_rows)
            if job is None or work.storage.seals_into is None:
                return job
            needed = folder_bytes(job.rows, self.facts.hidden_size, stored)
            if not work.gate.lets_through(needed + sum(self._under_way.values())):
                self._again.appendleft(job)
                return "later"
            self._under_way[job.number] = needed
            return job

        for outcome in self.pool.work(next_job, lambda: not work.is_stopping()):
            if isinstance(outcome, ShardMade):
                self._take(outcome, work)
            elif isinstance(outcome, Failure):
                self._fail(outcome, work)
        return work.progress

    def remove_losers(self, work: Work) -> None:
        """Remove what attempts published that were overtaken, or whose driver died."""
        losers = work.storage.remove_orphans(work.listed())
        if losers:
            work.report("info", "orphans_removed", f"Removed {len(losers)} shards of attempts that were overtaken.")

    def _next(self, work: Work, capacity_rows: int) -> ShardJob | None:
        if self._again:
            return self._again.popleft()
        while not self._planned:
            over = work.is_over()
            samples = work.take(_PAGE)
            self._buffer += samples
            rows = sum(len(sample.token_ids) for sample in self._buffer)
            if rows < capacity_rows and samples:
                continue
            if not self._buffer or (rows < capacity_rows and not over):
                return None
            jobs = plan_jobs(self._buffer, self._number, capacity_rows)
            rest = [] if over and not samples else jobs.pop().samples
            if not jobs:
                return None
            self._planned.extend(jobs)
            self._number += len(jobs)
            self._buffer = list(rest)
        return self._planned.popleft()

    def _take(self, made: ShardMade, work: Work) -> None:
        """Check what a worker published, and let it count."""
        self._under_way.pop(made.number, None)
        for refused in made.refused:
            work.refuse(refused.sample, refused.why)
        self.choice = made.capture
        if made.shard is not None:
            fault = _fault(made, work.storage)
            if fault is not None:
                self._fail(Failure(ShardJob(made.number, _samples(made.shard)), fault, "job"), work)
                return
            work.commit(made.shard)
            work.progress.samples += len(made.shard.samples)
            work.progress.rows += made.shard.rows
            work.progress.compute_s += made.compute_s
        work.step()

    def _fail(self, failure: Failure, work: Work) -> None:
        """Give a job to another worker, or give it up; for want of room it is never given up."""
        number = failure.job.number
        self._under_way.pop(number, None)
        if failure.fault == "room":
            self._again.append(failure.job)
            return
        tally, most = (self._strikes, MOST_FAILURES) if failure.fault == "job" else (self._losses, MOST_LOSSES)
        tally[number] += 1
        if tally[number] < most:
            self._again.append(failure.job)
            work.report("warn", "shard_again", f"Shard {number} is made again: {clean_line(failure.why, 300)}")
            return
        for sample in failure.job.samples:
            work.refuse(sample, f"{tally[number]} workers failed with its shard; the last said: {failure.why}")
        work.step()


def open_cluster(
    order: Order, address: str | None, storage: str | None, features: Path, gpus: float, report: Report
) -> Cluster:
    """Join a cluster and wait until its first worker has loaded the model.

    Args:
        order: what is to compute.
        address: of the head, or `auto`; None starts a cluster on this machine.
        storage: URL below which shards go; None: the features folder, which every node has to share.
        features: the features folder.
        gpus: of a worker, where the cluster has any.
        report: takes what people should know.

    Raises:
        InputError: there is no cluster.
        RunError: no worker can load the model.
    """
    place = connect(address)
    try:
        share, cpus = worker_share(order.device, gpus)
        pool = RayPool(Asked(replace(order, engine="local"), features.resolve(), storage, share, cpus), report)
        ready = pool.start()
    except BaseException:  # an interrupt too must not leave this process in the cluster
        disconnect()
        raise
    return Cluster(pool, place, ready.facts, ready.layers)


def _fault(made: ShardMade, storage: Storage) -> str | None:
    """Compare what the storage holds with what the worker says it sealed."""
    shard = made.shard
    assert shard is not None
    size = storage.size(shard.path)
    if size is None:
        return (
            f"{made.host} published {shard.path}, and it is not to be seen from here: without --storage URL the run "
            "folder has to be on a disk that all nodes share."
        )
    if size != shard.bytes:
        return f"{shard.path} has {size:,} bytes where {made.host} sealed {shard.bytes:,}."
    if made.read_back_xxh3 != shard.xxh3:
        return f"{shard.path} came back from the storage with hash {made.read_back_xxh3}, sealed with {shard.xxh3}."
    return None


def _samples(shard: SealedShard) -> tuple[IdsSample, ...]:
    return tuple(placed.sample for placed in shard.samples)
