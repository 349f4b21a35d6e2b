"""Make a new ledger file."""

import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from eagletui.core.errors import LedgerError
from eagletui.files.flushing import flush_folder
from eagletui.ledger.connection import mapped_errors, prepare_writer
from eagletui.ledger.disk import refuse_network_disk
from eagletui.ledger.migrate import create_schema


def create_ledger(
    path: Path,
    *,
    name: str,
    config_json: str,
    model_id: str,
    format: str,  # noqa: A002 - the config's own word for the output format
    stop_at_pico: int,
    cap_pico: int,
    max_in_flight: int,
    tokenizer_hash: str | None = None,
    template_hash: str | None = None,
    clock: Callable[[], float] = time.time,
) -> None:
    """Make the ledger of a new run, readable by its owner only.

    The file appears under its name only when it is complete: a crash in between leaves no half-made ledger.

    Args:
        path: where; must not exist.
        name: the run's name.
        config_json: the effective config without secrets.
        model_id: the model's name at the provider.
        format: output format.
        stop_at_pico: admission ends once this much is spent.
        cap_pico: never committed beyond.
        max_in_flight: upper limit of simultaneous requests.
        tokenizer_hash: hash of the tokenizer files, hex.
        template_hash: hash of the chat template, hex.
        clock: Unix seconds.

    Raises:
        LedgerError: the file exists, or the disk is a network disk.
    """
    if path.exists():
        raise LedgerError(f"{path} exists already.")
    refuse_network_disk(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    os.close(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with mapped_errors(path):
            connection = sqlite3.connect(temporary, isolation_level=None)
            try:
                prepare_writer(connection, path)
                create_schema(connection)
                connection.execute(
                    "INSERT INTO run (id, name, created_at, config_json, stop_at_pico, cap_pico, max_in_flight,"
                    " model_id, format, tokenizer_hash, template_hash) VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        name,
                        clock(),
                        config_json,
                        stop_at_pico,
                        cap_pico,
                        max_in_flight,
                        model_id,
                        format,
                        tokenizer_hash,
                        template_hash,
                    ),
                )
            finally:
                # The last connection to close folds the WAL into the file, so one rename publishes everything.
                connection.close()
        temporary.rename(path)
        flush_folder(path.parent)  # money must not be reserved in a file that a power cut can make nameless
    finally:
        temporary.unlink(missing_ok=True)
