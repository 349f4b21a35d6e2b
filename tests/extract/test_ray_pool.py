"""How the driver has the workers of a cluster overlap computing and publishing, on a real Ray of one worker."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eagletui.extract.engines import Order
from eagletui.extract.shard_job import ShardJob, ShardMade
from eagletui.extract.shards import IdsSample

pytestmark = [pytest.mark.ray, pytest.mark.timeout(120)]

PATIENCE_S = 30.0
JOBS = 5


class Meeting:
    """A worker that publishes a shard only once the next one is being computed, and notes what came when.

    Shard 2 fails while it is computed, by its own fault.
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
        if job.number == 2 and job.samples[0].key == "bad":
            raise ValueError("no such shard")

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
    assert (failure.job.number, failure.by_itself, "no such shard" in failure.why) == (2, True, True)
    assert [one.number for one in outcomes if isinstance(one, ShardMade)] == [1, 4]
