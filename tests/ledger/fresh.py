"""New ledgers for tests: copies of one that was made, because making one waits for the disk a dozen times."""

import sqlite3
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

from eagletui.ledger.create import create_ledger


@cache
def _made() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.sqlite"
        fields: dict[str, Any] = dict.fromkeys(("name", "config_json", "model_id", "format"), "")
        create_ledger(path, **fields, stop_at_pico=0, cap_pico=0, max_in_flight=1)
        return path.read_bytes()


def fresh_ledger(path: Path, *, clock: Callable[[], float] = time.time, **fields: object) -> None:
    """Make a ledger that equals what `create_ledger` makes of the same arguments.

    Args:
        path: where.
        clock: Unix seconds.
        fields: `name`, `config_json` and so on, as `create_ledger` takes them.
    """
    path.touch(0o600)
    path.write_bytes(_made())
    columns = {**fields, "created_at": clock()}
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(f"UPDATE run SET {', '.join(f'{name} = ?' for name in columns)}", tuple(columns.values()))
