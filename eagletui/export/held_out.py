"""Put the rows to validate on behind the others, so that a file's tail is the same set after every export."""

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from eagletui.core.row_order import VALIDATION_PERCENT, joins_validation
from eagletui.export.rows import TrainingRow


def validation_last(rows: Iterable[TrainingRow], scratch: Path) -> Iterator[tuple[TrainingRow, bool]]:
    """Yield rows to train on in their order, then those to validate on in theirs, and which it is.

    The side depends on the prompt's key alone: answers to one prompt lie together, and nothing that comes later moves
    a row across. Only where all rows would be to validate on are they to train on.

    Args:
        rows: of a training set.
        scratch: an existing folder on a disk with room for the rows to validate on.
    """
    with tempfile.TemporaryFile(dir=scratch) as spool:
        trains = False
        for row in rows:
            if joins_validation(row.id, VALIDATION_PERCENT):
                content = msgspec.msgpack.encode(row)
                spool.write(len(content).to_bytes(8, "little") + content)
            else:
                trains = True
                yield row, False
        spool.seek(0)
        while size := spool.read(8):
            yield msgspec.msgpack.decode(spool.read(int.from_bytes(size, "little")), type=TrainingRow), trains
