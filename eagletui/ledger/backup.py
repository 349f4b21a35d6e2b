"""Copy a ledger while it is written: one consistent moment, and no writer waits."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from eagletui.files.flushing import flush_file
from eagletui.ledger.connection import connect_reader, mapped_errors


def back_up(ledger: Path, copy: Path) -> None:
    """Write a copy of a ledger and wait until it is on the disk.

    Args:
        ledger: the file, in use or not.
        copy: where to; replaced whole, or left as it was.

    Raises:
        LedgerError: the ledger cannot be read, or the copy cannot be written.
    """
    temporary = copy.with_name(f".{copy.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    os.close(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with closing(connect_reader(ledger)) as source, mapped_errors(copy):
            with closing(sqlite3.connect(temporary)) as target:
                # All pages in one step: under WAL that is one moment, and a step at a time would begin again at
                # every commit of another connection.
                source.backup(target, pages=-1)
        flush_file(temporary)
        temporary.replace(copy)
    finally:
        temporary.unlink(missing_ok=True)
