"""The forecast of the disk, against figures worked out by hand."""

from dataclasses import replace

from eagletui.core.disk_outlook import LOW_WATER_BYTES, DiskOutlook, ToWrite

REST = ToWrite(waiting=100, to_come=900, answered=200, trainable=150, tokens_each=1_000.0, row_bytes=20_000.0)


def test_what_comes_counts_with_the_share_that_was_trainable_so_far() -> None:
    assert REST.samples == 100 + 675
    assert REST.bytes == 775 * 1_000 * 20_000
    assert replace(REST, answered=19, trainable=1).samples == 1_000, "too few answers tell nothing"
    assert replace(REST, waiting=0, to_come=0, row_bytes=None).bytes == 0
    assert replace(REST, row_bytes=None).bytes is None
    assert replace(REST, tokens_each=None).bytes is None


def test_a_disk_that_is_too_small_is_full_when_the_room_is_written() -> None:
    outlook = DiskOutlook(LOW_WATER_BYTES + 6_000, 10_000, 2.0)
    assert (outlook.room_bytes, outlook.spare_bytes, outlook.full_in_s) == (6_000, -4_000, 3_000.0)
    assert replace(outlook, bytes_per_s=None).full_in_s is None
    assert replace(outlook, bytes_per_s=0.0).full_in_s is None
    assert replace(outlook, to_write_bytes=6_000).full_in_s is None
    assert replace(outlook, to_write_bytes=None).spare_bytes is None
    assert replace(outlook, free_bytes=1).room_bytes == 0
