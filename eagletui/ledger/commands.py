"""Give an order to the worker: the only write a viewer makes."""

import getpass
import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from eagletui.ledger.connection import Transactions, connect_reader, connect_writer, mapped_errors
from eagletui.ledger.rows import CommandRow, Verb, columns

_POLL_S: Final = 0.01


def issue(
    path: Path, verb: Verb, args: Mapping[str, object] | None = None, clock: Callable[[], float] = time.time
) -> int:
    """Add an order to the ledger and return its id; a worker applies it within 250 ms.

    Args:
        path: the ledger file.
        verb: what to do.
        args: pause {now}, cap {usd}, stop-at {usd}, in-flight {n}, retry {samples, suspect},
            quarantine {endpoint, since}, release {endpoint}. Money is a decimal string.
        clock: Unix seconds.
    """
    transactions = Transactions(connect_writer(path), path)
    try:
        with transactions.begin(durable=True) as connection:
            cursor = connection.execute(
                "INSERT INTO commands (at, verb, args_json, issued_by) VALUES (?, ?, ?, ?)",
                (clock(), verb, json.dumps(dict(args or {})), f"{_user()}@{socket.gethostname()}:{os.getpid()}"),
            )
    finally:
        transactions.close()
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def wait_applied(path: Path, command_id: int, timeout_s: float) -> CommandRow | None:
    """Wait until a worker has applied an order.

    Args:
        path: the ledger file.
        command_id: from `issue`.
        timeout_s: how long to wait while the order comes no further.

    Returns:
        The applied row, or None when no worker did in time.
    """
    connection = connect_reader(path)
    deadline = time.monotonic() + timeout_s
    seen: str | None = None
    try:
        with mapped_errors(path):
            while True:
                row = connection.execute(
                    f"SELECT {columns(CommandRow)} FROM commands WHERE id = ? AND applied_at IS NOT NULL", (command_id,)
                ).fetchone()
                if row is not None:
                    return CommandRow(*row)
                (progress,) = connection.execute(
                    "SELECT progress_json FROM commands WHERE id = ?", (command_id,)
                ).fetchone()
                if progress != seen:
                    seen, deadline = progress, time.monotonic() + timeout_s
                if time.monotonic() >= deadline:
                    return None
                time.sleep(_POLL_S)
    finally:
        connection.close()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A container may run under a uid that has no name.
        return str(os.getuid())
