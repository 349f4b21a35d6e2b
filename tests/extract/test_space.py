"""How much room a disk gives, and who hears of it."""

from pathlib import Path

from eagletui.extract.space import DiskGate
from tests.extract.small_shards import Disk


def test_a_gate_says_once_that_the_disk_is_full_and_once_that_it_is_not(tmp_path: Path) -> None:
    disk, said = Disk(100), []
    gate = DiskGate(disk.space(tmp_path), lambda _level, kind, message: said.append((kind, message)))
    assert [gate.lets_through(needed) for needed in (100, 101, 101)] == [True, False, False]
    assert gate.is_closed
    disk.free_bytes = 200
    assert [gate.lets_through(needed) for needed in (101, 101)] == [True, True]
    assert [kind for kind, _ in said] == ["disk_low", "disk_freed"]
    assert f"need 101 bytes, and {tmp_path} has 100 bytes to give" in said[0][1]
