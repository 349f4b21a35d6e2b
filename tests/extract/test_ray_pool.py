"""How the driver has the workers of a cluster overlap computing and publishing, on a real Ray of one worker."""

import errno
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eagletui.core.errors import RunError
from eagletui.core.features import FeatureLayers, folder_bytes
from eagletui.extract.engines import Order
from eagletui.extract.shard_job import ShardJob, ShardMade
from eagletui.extract.shards import IdsSample
from eagletui.extract.space import DiskGate
from eagletui.extract.storage import FolderStorage
from tests.extract.small_shards import Disk

pytestmark = [pytest.mark.ray, pytest.mark.timeout(120)]

PATIENCE_S = 30.0
JOBS = 5
SHARDS = 3


class Meeting:
    """A worker that publishes a shard only once the next one is being computed, and notes what came when.

    A shard of a sample `bad` fails while it is computed, by its own fault; one of `full` finds no room on the disk
    the first time.
    """

    def __init__(self, _asked: Any) -> None:
        self.computing = [threading.Event() for _ in range(JOBS + 1)]
        self.computing[JOBS].set()
        self.log: list[str] = []

    def ready(self) -> Any:
        from eagletui.extract.ray_pool import Ready

        return Ready("here", None, None)  # type: ignore[arg-type]

    def compute(self, job: ShardJob) -> None:
        self.log.append(f"compute {job.number}")
        self.computing[job.number].set()
        if job.samples[0].key == "bad":
            raise ValueError("no such shard")
        if job.samples[0].key == "full" and self.log.count(f"compute {job.number}") == 1:
            raise OSError(errno.ENOSPC, "No space left on device")

    def publish(self, number: int) -> ShardMade:
        overlapped = self.computing[number + 1].wait(PATIENCE_S)
        self.log.append(f"publish {number}")
        return ShardMade(number, None, None, (), f"{overlapped}; {', '.join(self.log)}", 0.0, "here")


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    ray = pytest.importorskip("ray")
    from eagletui.extract import ray_pool

    monkeypatch.setattr(ray_pool, "ShardMaker", Meeting)
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        made = ray_pool.RayPool(
            ray_pool.Asked(Order(Path("model")), Path("features"), None, 0.0, 1.0), lambda *_said: None
        )
        made.start()
        yield made
        made.close()
    finally:
        ray.shutdown()


def _job(number: int, key: str = "good") -> ShardJob:
    return ShardJob(number, (IdsSample(key, (1, 2), (0, 1)),))


def test_a_shard_is_published_while_the_next_one_is_computed_and_the_one_after_waits(pool: Any) -> None:
    jobs = [_job(number) for number in range(JOBS)]
    made = [one for one in pool.work(lambda: jobs.pop(0) if jobs else None, lambda: True) if one is not None]
    assert [one.number for one in made] == list(range(JOBS))
    assert all(one.capture.startswith("True; ") for one in made), "each was published during the next one's forwards"
    log = made[-1].capture.partition("; ")[2].split(", ")
    for number in range(JOBS - 2):
        assert log.index(f"publish {number}") < log.index(f"compute {number + 2}"), "at most one beside the open one"


def test_a_shard_that_cannot_be_computed_does_not_cost_the_one_that_is_being_published(pool: Any) -> None:
    from eagletui.extract.ray_pool import Failure

    jobs = [_job(1), _job(2, "bad"), _job(4)]
    outcomes = [one for one in pool.work(lambda: jobs.pop(0) if jobs else None, lambda: True) if one is not None]
    (failure,) = [one for one in outcomes if isinstance(one, Failure)]
    assert (failure.job.number, failure.fault, "no such shard" in failure.why) == (2, "job", True)
    assert [one.number for one in outcomes if isinstance(one, ShardMade)] == [1, 4]


def test_a_worker_whose_disk_has_no_room_is_asked_again_after_a_while_and_keeps_its_model(pool: Any) -> None:
    from eagletui.extract.ray_pool import Failure

    said: list[str] = []
    pool.report, pool.room_wait_s = (lambda _level, kind, _message: said.append(kind)), 0.1
    jobs = [_job(JOBS - 1, "full")]
    outcomes: list[Any] = []
    for one in pool.work(lambda: jobs.pop(0) if jobs else None, lambda: True, poll_s=0.01):
        if one is not None:
            outcomes.append(one)
        if isinstance(one, Failure):
            jobs.append(one.job)
    failure, made = outcomes
    assert (failure.job.number, failure.fault, "No space left" in failure.why) == (JOBS - 1, "room", True)
    assert made.capture.startswith("True; compute 4, compute 4, publish 4"), "the same worker did both"
    assert said == ["worker_without_room", "worker_has_room"]


def test_a_worker_tells_of_a_full_disk_before_it_computes_and_where_a_flush_failed_of_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("ray")
    from eagletui.extract import ray_pool

    computed: list[int] = []

    def flush_fails(_backend: Any, job: ShardJob, *_rest: Any) -> Any:
        computed.append(job.number)
        raise RunError("The file could not be flushed.") from OSError(errno.ENOSPC, "No space left on device")

    facts = SimpleNamespace(hidden_size=8, dtype="bfloat16")
    monkeypatch.setattr(ray_pool, "open_backend", lambda *_args: SimpleNamespace(facts=facts, place="here"))
    monkeypatch.setattr(ray_pool, "compute_shard", flush_fails)
    maker = ray_pool.ShardMaker(
        ray_pool.Asked(Order(Path("model")), tmp_path, f"file://{tmp_path}/elsewhere", 0.0, 1.0)
    )
    with pytest.raises(OSError, match="No space left") as flushing:
        maker.compute(_job(1))
    assert (flushing.value.errno, computed) == (errno.ENOSPC, [1])
    monkeypatch.setattr("eagletui.extract.host_folders.DiskSpace", lambda path, **_kept: Disk(10).space(path))
    with pytest.raises(OSError, match="10 bytes are free") as looking:
        maker.compute(_job(2))
    assert (looking.value.errno, computed) == (errno.ENOSPC, [1]), "nothing was computed for it"


def test_samples_are_not_given_up_however_often_no_worker_has_room_for_their_shard(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    from eagletui.extract.gather import Progress
    from eagletui.extract.ray_pool import Failure
    from eagletui.extract.run_on_ray import MOST_LOSSES, Cluster

    refused: list[str] = []
    asked = [0]

    class Full:
        """A pool whose workers have no room for a long time."""

        def work(self, next_job: Any, _go_on: Any) -> Iterator[Any]:
            while (job := next_job() or next_job()) is not None:  # a shard is planned once the samples end
                asked[0] += 1
                yield (
                    Failure(job, "No space left on device", "room")
                    if asked[0] <= 2 * MOST_LOSSES
                    else ShardMade(job.number, None, None, (), "", 0.0, "here")
                )

    samples = [IdsSample("s", (1, 2), (0, 1))]
    work = SimpleNamespace(
        progress=Progress(),
        storage=FolderStorage(tmp_path),
        gate=DiskGate(Disk().space(tmp_path), lambda *_said: None),
        take=lambda limit: [samples.pop() for _ in range(min(limit, len(samples)))],
        is_over=lambda: True,
        is_stopping=lambda: False,
        next_number=lambda: 0,
        refuse=lambda sample, _why: refused.append(sample.key),
        report=lambda *_said: None,
        step=lambda: None,
    )
    cluster = Cluster(Full(), "", SimpleNamespace(hidden_size=8), FeatureLayers(8, (2, 4, 5)))  # type: ignore[arg-type]
    cluster.make_shards(work, "bfloat16", capacity_rows=2)
    assert (refused, asked[0]) == ([], 2 * MOST_LOSSES + 1)


def test_a_job_that_cannot_be_begun_yet_is_waited_for_although_no_worker_is_busy(pool: Any) -> None:
    answers: list[Any] = ["later", "later", "later", _job(4)]
    made = [one for one in pool.work(lambda: answers.pop(0) if answers else None, lambda: True, poll_s=0.01)]
    assert [one.number for one in made if one is not None] == [4]
    assert made.count(None) >= 3


def test_no_shard_is_begun_that_the_disk_has_no_room_for_beside_those_under_way(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    from eagletui.extract.gather import Progress
    from eagletui.extract.run_on_ray import Cluster

    each = folder_bytes(2, 8, "bfloat16")
    disk, said = Disk(2 * each - 1), []
    gate = DiskGate(disk.space(tmp_path), lambda _level, kind, _message: said.append(kind))
    samples = [IdsSample(f"s{number}", (1, 2), (0, 1)) for number in range(SHARDS)]
    begun: list[int] = []

    class OneByOne:
        """A pool whose workers make shard after shard; a person frees the disk when nothing is under way."""

        def work(self, next_job: Any, _go_on: Any) -> Iterator[ShardMade]:
            while (job := next_job() or next_job()) is not None:  # a shard is planned once the samples end
                begun.append(job.number)
                is_last = len(begun) == SHARDS
                assert next_job() == (None if is_last else "later"), "a second one beside it does not fit"
                yield ShardMade(job.number, None, None, (), "", 0.0, "here")
                disk.free_bytes = 0
                assert next_job() == (None if is_last else "later"), "nothing is under way, and the disk is full"
                disk.free_bytes = 2 * each - 1

    work = SimpleNamespace(
        progress=Progress(),
        storage=FolderStorage(tmp_path),
        gate=gate,
        take=lambda limit: [samples.pop() for _ in range(min(limit, len(samples)))],
        is_over=lambda: True,
        is_stopping=lambda: False,
        next_number=lambda: 0,
        step=lambda: None,
    )
    cluster = Cluster(OneByOne(), "", SimpleNamespace(hidden_size=8), FeatureLayers(8, (2, 4, 5)))  # type: ignore[arg-type]
    cluster.make_shards(work, "bfloat16", capacity_rows=2)
    assert begun == [0, 1, 2]
    assert said[:2] == ["disk_low", "disk_freed"]
