"""Workers on a Ray cluster: one actor a GPU, each with the model loaded, making whole shards.

Only ids and a few figures travel through Ray; states go from the actor to the storage. An actor publishes a shard and
reads it back while it computes the next one, and no further: a death costs two. The driver, which alone writes the
ledger, hands out jobs and takes what comes back. An actor that fails is not asked again: after a lost node Ray
says that it is unavailable, not that it is dead, so an old attempt may still be under way and publish later, under a
name that no row will point to.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import ray
import torch
from ray.exceptions import RayError, RayTaskError

from eagletui.core.errors import EagleError, InputError, RunError
from eagletui.core.features import FeatureLayers, folder_bytes
from eagletui.core.reports import Report
from eagletui.core.text import clean_line
from eagletui.extract.computing import Backend
from eagletui.extract.engines import Order, open_backend
from eagletui.extract.host_folders import HostFolders
from eagletui.extract.shard_job import GrownShard, ShardJob, ShardMade, compute_shard, publish_shard
from eagletui.extract.space import refused_for_room
from eagletui.extract.storage import growing_on_host, open_storage
from eagletui.models.facts import ModelFacts

MOST_STARTS: Final = 6
"""Workers that may be lost in a row while they start, before the run is given up."""

_GROW_EVERY: Final = 10
"""Rounds between two looks at how many workers the cluster could carry."""


ROOM_WAIT_S: Final = 10.0
"""Before a worker whose disk had no room is asked again."""

_AT_ONCE: Final = 2
"""Calls that an actor works on: one shard is computed and one is published."""


NextJob = Callable[[], "ShardJob | Literal['later'] | None"]
"""Asked for a job when a worker is free. `later`: there is one that cannot be begun yet. None: there is none now."""


class Failure(NamedTuple):
    """A job that did not become a shard."""

    job: ShardJob
    why: str
    fault: Literal["job", "worker", "room"]
    """`job`: the worker lived and said no. The other two are no fault of the job: it or its node was lost; a disk had
    no room, and the worker takes jobs again after a while."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What every worker needs to know."""

    order: Order
    """Of the local engine: the same capture code."""
    features: Path
    """The features folder; workers write there where `storage` is None, so it has to be shared."""
    storage: str | None
    gpus: float
    """Of a worker; 0 computes on CPUs."""
    cpus: float


class Ready(NamedTuple):
    """A worker's first answer."""

    where: str
    facts: ModelFacts
    layers: FeatureLayers


class ShardMaker:
    """What runs in an actor: the local engine with one model."""

    def __init__(self, asked: Asked) -> None:
        """Load the model."""
        self._asked = asked
        self._told: list[tuple[str, str, str]] = []
        self._backend: Backend = open_backend(asked.order, lambda *said: self._told.append(said))
        self._storage = open_storage(asked.features, asked.storage)
        self._host = HostFolders.of(asked.features, asked.storage)
        self._grown: dict[int, GrownShard] = {}
        self._threads = torch.get_num_threads()

    def ready(self) -> Ready:
        """Say what was loaded, and where; answered once it is."""
        where = f"{ray.util.get_node_ip_address()} on {self._backend.place}"
        return Ready(where, self._backend.facts, self._backend.layers)

    def compute(self, job: ShardJob) -> None:
        """Compute one shard; it may be called while another one is published, in another thread."""
        torch.set_num_threads(self._threads)  # holds for the calling thread alone, which is not the one that loaded
        stored = self._asked.order.stored(self._backend.facts)
        self._host.sweep()  # each time: a worker that was killed just before this one started may have died since
        if self._storage.seals_into is None:  # else the driver has looked
            self._host.require_room(folder_bytes(job.rows, self._backend.facts.hidden_size, stored))
        place = growing_on_host(self._storage, self._host)
        with _room_told():
            self._grown[job.number] = compute_shard(self._backend, job, stored, place)

    def publish(self, number: int) -> ShardMade:
        """Publish a computed shard and read it back."""
        with _room_told():
            return publish_shard(self._grown.pop(number), self._storage)


@contextmanager
def _room_told() -> Iterator[None]:
    """Raise what a disk without room said in place of what was made of it: a cause does not travel to the driver."""
    try:
        yield
    except RunError as error:
        if (full := refused_for_room(error)) is not None:
            raise full from None
        raise


class _Task(NamedTuple):
    job: ShardJob
    reference: Any


@dataclass(slots=True)
class _Worker:
    """An actor, as the driver sees it."""

    actor: Any
    starting: Any
    """Reference to its first answer; None once it came."""
    computing: _Task | None = None
    grown: ShardJob | None = None
    """Computed while the one before is published; nothing more is computed until that is done."""
    publishing: _Task | None = None
    is_retired: bool = False
    """Nothing more is asked of it; what is under way may end."""
    asked_again_at: float | None = None
    """On the monotonic clock, while its disk had no room the last time; None: it had."""

    @property
    def is_free(self) -> bool:
        """It takes a job."""
        if self.asked_again_at is not None and time.monotonic() < self.asked_again_at:
            return False
        return not (self.is_retired or self.starting is not None or self.computing or self.grown)

    @property
    def tasks(self) -> tuple[_Task, ...]:
        """What is under way."""
        return tuple(task for task in (self.computing, self.publishing) if task is not None)

    @property
    def jobs(self) -> tuple[ShardJob, ...]:
        """All that would be lost with it."""
        return (*(task.job for task in self.tasks), *(() if self.grown is None else (self.grown,)))


@dataclass(slots=True)
class RayPool:
    """Hands jobs to actors, replaces those that are lost, and grows when nodes join."""

    asked: Asked
    report: Report
    ready: Ready | None = None
    """Of the first worker."""
    room_wait_s: float = ROOM_WAIT_S
    """See there."""
    _workers: list[_Worker] = field(default_factory=list)
    _round: int = 0
    _failed_starts: int = 0

    def start(self) -> Ready:
        """Wait until the first worker has loaded the model.

        Raises:
            RunError: it could not, or workers are lost again and again.
        """
        while self.ready is None:
            self._grow()
            starting = {worker.starting: worker for worker in self._workers if worker.starting is not None}
            done, _ = ray.wait([*starting], num_returns=1, timeout=1.0)
            for reference in done:
                self._started(starting[reference])
        return self.ready

    def work(
        self, next_job: NextJob, go_on: Callable[[], bool], poll_s: float = 0.5
    ) -> Iterator[ShardMade | Failure | None]:
        """Make shards until there are no jobs and none is under way.

        Args:
            next_job: see there.
            go_on: False hands out nothing more; what is under way is waited for.
            poll_s: longest time between two yields.

        Yields:
            a shard, a failure, or None where nothing came for a while.

        Raises:
            RunError: no worker could be started.
        """
        while True:
            self._grow()
            is_out = self._hand_out(next_job, go_on)
            busy = {task.reference: worker for worker in self._workers for task in worker.tasks}
            if not busy and is_out:
                return
            starting = {worker.starting: worker for worker in self._workers if worker.starting is not None}
            done: list[Any] = []
            if busy or starting:
                done, _ = ray.wait([*busy, *starting], num_returns=1, timeout=poll_s)
            else:
                time.sleep(poll_s)  # nothing tells when a disk has room
            if not done:
                yield None
            for reference in done:
                if reference in starting:
                    self._started(starting[reference])
                    continue
                outcomes = self._ended(busy[reference], reference)
                self._hand_out(next_job, go_on)  # before the caller takes its time with what came of the last job
                yield from outcomes

    def close(self) -> None:
        """Let every worker go."""
        for worker in self._workers:
            self._drop(worker)
        self._workers.clear()

    def _hand_out(self, next_job: NextJob, go_on: Callable[[], bool]) -> bool:
        """Give every worker that is free a job; True where there is none left, or none is to be begun."""
        for worker in self._workers:
            if not go_on():
                return True
            if worker.is_free:
                job = next_job()
                if job is None:
                    return True
                if job == "later":
                    return False
                worker.computing = _Task(job, worker.actor.compute.remote(job))
        return not go_on()

    def _grow(self) -> None:
        self._round += 1
        if self._workers and self._round % _GROW_EVERY:
            return
        for _ in range(self._slots() - len(self._workers)):
            share = {"num_gpus": self.asked.gpus, "num_cpus": self.asked.cpus}
            actor_class = ray.remote(**share, max_restarts=0, max_concurrency=_AT_ONCE)(ShardMaker)
            actor = actor_class.remote(self.asked)
            self._workers.append(_Worker(actor, actor.ready.remote()))

    def _slots(self) -> int:
        """How many workers the cluster can carry now, at least one: it may have none yet and grow."""
        there: Mapping[str, float] = ray.cluster_resources()
        if self.asked.gpus:
            return max(1, int(there.get("GPU", 0) / self.asked.gpus))
        return max(1, int(there.get("CPU", 0) / self.asked.cpus))

    def _started(self, worker: _Worker) -> None:
        try:
            ready: Ready = ray.get(worker.starting)
        except RayTaskError as error:
            self._retire(worker)
            raise RunError(f"A worker could not load the model: {_short(error)}") from error
        except RayError as error:
            self._retire(worker)
            self._failed_starts += 1
            self.report("warn", "worker_lost", f"A worker was lost while it started: {_short(error)}")
            if self._failed_starts >= MOST_STARTS:
                raise RunError(
                    f"{MOST_STARTS} workers in a row were lost while they started: {_short(error)}"
                ) from error
            return
        worker.starting = None
        self._failed_starts = 0
        self.ready = self.ready or ready
        self.report("info", "worker_started", f"A worker is ready at {clean_line(ready.where, 80)}.")

    def _ended(self, worker: _Worker, reference: Any) -> list[ShardMade | Failure]:
        """Take what a task of an actor gave, and let the actor go on with what waits for that."""
        task = next(task for task in worker.tasks if task.reference == reference)
        outcomes: list[ShardMade | Failure] = []
        try:
            made: ShardMade | None = ray.get(reference)
        except RayTaskError as error:
            why = _short(error)
            if isinstance(error.cause, Exception) and refused_for_room(error.cause) is not None:
                self._wait_for_room(worker, why)
                outcomes.append(Failure(task.job, why, "room"))
            else:
                # Its own fault or the job's: a fresh one tells which. What else it has under way may succeed.
                worker.is_retired = True
                outcomes.append(Failure(task.job, why, "job"))
        except RayError as error:
            lost = worker.jobs
            self._retire(worker)
            numbers = " and ".join(str(job.number) for job in lost)
            self.report("warn", "worker_lost", f"A worker was lost with shard {numbers}: {_short(error)}")
            return [Failure(job, _short(error), "worker") for job in lost]
        else:
            if worker.asked_again_at is not None:
                worker.asked_again_at = None
                self.report("info", "worker_has_room", "The disk of the worker has room again; it goes on.")
            if made is not None:
                outcomes.append(made)
            else:
                worker.grown = task.job
        if task is worker.computing:
            worker.computing = None
        else:
            worker.publishing = None
        if worker.publishing is None and worker.grown is not None:
            worker.publishing = _Task(worker.grown, worker.actor.publish.remote(worker.grown.number))
            worker.grown = None
        if worker.is_retired and not worker.tasks:
            self._retire(worker)
        return outcomes

    def _wait_for_room(self, worker: _Worker, why: str) -> None:
        """Ask nothing of an actor for a while; its model stays loaded. Another one may have room."""
        if worker.asked_again_at is None:
            self.report(
                "warn",
                "worker_without_room",
                f"A worker waits: {why}. It is asked again every {self.room_wait_s:g} s; free space on that disk. "
                "Nothing is lost.",
            )
        worker.asked_again_at = time.monotonic() + self.room_wait_s

    def _retire(self, worker: _Worker) -> None:
        """Quarantine an actor: nothing more is asked of it, and the next look at the cluster starts another."""
        self._drop(worker)
        self._workers.remove(worker)
        self._round = -1

    def _drop(self, worker: _Worker) -> None:
        with suppress(RayError):
            ray.kill(worker.actor, no_restart=True)


def connect(address: str | None) -> str:
    """Join a cluster, and say where.

    Args:
        address: of the head, or `auto` for the one this machine belongs to; None starts one on this machine alone.

    Raises:
        InputError: there is none at that address.
    """
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        context = ray.init(address=address, log_to_driver=False, include_dashboard=False, configure_logging=False)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        raise InputError(
            f"--address {clean_line(address or 'local', 80)}: no Ray cluster answers there ({_short(error)}). "
            "Start one with: ray start --head"
        ) from error
    nodes = sum(node["Alive"] for node in ray.nodes())
    return f"a Ray cluster of {nodes} {'node' if nodes == 1 else 'nodes'} at {context.address_info['gcs_address']}"


def disconnect() -> None:
    """Leave the cluster; actors of this driver end with it."""
    ray.shutdown()


def worker_share(device: str, gpus: float) -> tuple[float, float]:
    """Return GPUs and CPUs of one worker: so many GPUs where the cluster has any, else a CPU."""
    if device != "cpu" and ray.cluster_resources().get("GPU", 0):
        return gpus, 1.0
    return 0.0, 1.0


def _short(error: BaseException) -> str:
    cause = getattr(error, "cause", None)
    told = str(cause if isinstance(cause, EagleError) else error).strip().splitlines()
    return clean_line(told[-1] if told else type(error).__name__, 300)
