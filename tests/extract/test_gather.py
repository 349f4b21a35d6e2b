import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from eagletui.extract.computing import Computed
from eagletui.extract.gather import Gatherer
from eagletui.extract.shard_writer import ShardWriter
from eagletui.extract.shards import IdsSample
from eagletui.extract.space import DiskSpace
from tests.extract.small_shards import KIND, record


class Watching:
    """Looks, whenever it is to compute, whether the states that it gave out before are held by anybody."""

    def __init__(self) -> None:
        self.held: list[bool] = []

    def compute(self, samples: Sequence[IdsSample], go_on: Callable[[], bool]) -> Iterator[Computed]:
        assert go_on()
        for number, sample in enumerate(samples):
            states = record(number, len(sample.token_ids))[1]
            given = weakref.ref(states)
            yield Computed(sample, states if number else None, "too wide")
            del states
            self.held.append(given() is not None)


def test_states_of_one_forward_are_not_held_during_the_next(tmp_path: Path) -> None:
    watching = Watching()
    gatherer = Gatherer(watching, lambda *_: None)  # type: ignore[arg-type]
    with ShardWriter(tmp_path, 0, KIND, DiskSpace(tmp_path, 0), lambda _: None, lambda *_: None) as writer:
        gatherer.add([record(number, 5)[0] for number in range(3)], writer, lambda: True)
    assert watching.held == [False, False, False]
    assert (gatherer.progress.samples, gatherer.progress.refused) == (2, 1)
