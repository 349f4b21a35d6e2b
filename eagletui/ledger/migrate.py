"""Ledger versions: what this program writes, and how an older file becomes a current one. Forward only."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final

from eagletui.core.errors import LedgerError
from eagletui.ledger.triggers import move_rows, trigger_statements

APPLICATION_ID: Final = 0x4541474C
"""'EAGL' in the file's header, so that another SQLite file is not taken for a ledger."""

_OPINIONS: Final = """
CREATE TABLE opinions (
    sample_id INTEGER PRIMARY KEY REFERENCES samples(id),
    question TEXT NOT NULL,
    model TEXT NOT NULL,
    posterior REAL NOT NULL,
    margin REAL NOT NULL,
    changed INTEGER NOT NULL CHECK (changed IN (0, 1)),
    inferred INTEGER NOT NULL CHECK (inferred IN (0, 1)),
    tokens INTEGER NOT NULL,
    own REAL NOT NULL,
    expected REAL NOT NULL,
    variance REAL NOT NULL,
    structure_json TEXT NOT NULL,
    asked_at REAL NOT NULL
) STRICT
"""

_BOUGHT_AGAIN: Final = "INSERT OR IGNORE INTO moves VALUES ('sample', 'quarantined', 'queued')"

_TURNS: Final = """
CREATE TABLE turns (
    sample_id INTEGER PRIMARY KEY REFERENCES samples(id),
    message BLOB NOT NULL
) STRICT
"""

_EXCUSED: Final = """
ALTER TABLE samples ADD COLUMN attempts_excused INTEGER NOT NULL DEFAULT 0;
UPDATE samples SET attempts_excused = attempts WHERE state IN ('queued', 'in_flight') AND attempts > 0
"""

_PROGRESS: Final = "ALTER TABLE commands ADD COLUMN progress_json TEXT"

_PARKED: Final = """
ALTER TABLE samples ADD COLUMN parked_for TEXT;
UPDATE samples SET not_before = CASE attempts WHEN 0 THEN 0 ELSE 1 END WHERE state = 'queued' AND not_before = 8e15;
CREATE INDEX samples_parked ON samples(parked_for, id) WHERE parked_for IS NOT NULL"""
"""What waited for an endpoint, marked by a time that no clock reaches, is looked at again by the next engine."""

_DUE: Final = """
CREATE INDEX samples_due ON samples(not_before, id) WHERE state = 'queued' AND parked_for IS NULL;
ALTER TABLE samples ADD COLUMN attempts_before INTEGER NOT NULL DEFAULT 0;
UPDATE samples SET attempts_before = attempts_excused WHERE state IN ('queued', 'in_flight') AND attempts_excused > 0"""
"""Nothing tells a retry from a throttle that was not held against a sample: what is older than the step is let go."""

MIGRATIONS: Final[tuple[str, ...]] = (_OPINIONS, _BOUGHT_AGAIN, _TURNS, _EXCUSED, _PROGRESS, _PARKED, _DUE)
"""The script that leads from version N to N + 1, at index N - 1.

Any writer makes these steps, also while an engine of an earlier build works: they leave alone what its queries name.
"""

_ONCE_ENGINES_ENDED: Final = (
    "DROP INDEX IF EXISTS samples_queue",
    "UPDATE samples SET not_before = CASE attempts WHEN 0 THEN 0 ELSE 1 END"
    " WHERE state = 'queued' AND parked_for IS NULL AND not_before = 8e15",
)
"""The index by which earlier builds claim, and the samples that one of them let wait after the upgrade."""

OLDEST_READ: Final = 1
"""Oldest version that a viewer reads as it is; what later ones added is missing there."""

VERSION: Final = 1 + len(MIGRATIONS)
"""The version that `schema.sql` describes; kept in `user_version`."""


def create_schema(connection: sqlite3.Connection) -> None:
    """Make the tables, triggers and views of the current version in an empty file."""
    package = resources.files(__package__)
    tables, views = (package.joinpath(name).read_text(encoding="utf-8") for name in ("schema.sql", "views.sql"))
    connection.executescript(f"BEGIN; {tables}; {views}")
    connection.executemany("INSERT INTO moves (machine, old_state, new_state) VALUES (?, ?, ?)", move_rows())
    for statement in trigger_statements():
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("COMMIT")


def migrate(connection: sqlite3.Connection, path: Path, scripts: Sequence[str] = MIGRATIONS) -> int:
    """Bring a ledger to the current version, each step in its own transaction.

    Args:
        connection: a writing connection in autocommit mode.
        path: named in messages.
        scripts: `scripts[N - 1]` leads from version N to N + 1.

    Returns:
        How many steps were made.

    Raises:
        LedgerError: not a ledger, made by a newer program, or a step failed and was undone.
    """
    current = 1 + len(scripts)
    found = _version(connection, path)
    if found > current:
        raise LedgerError(_newer(path, found, current))
    made = 0
    while found < current:
        try:
            connection.execute("BEGIN IMMEDIATE")
            # Another process may have made this step, or more, since the version was read.
            if (now := _version(connection, path)) == found:
                for statement in _statements(scripts[found - 1]):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {found + 1}")
                now, made = found + 1, made + 1
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise LedgerError(f"{path} cannot be upgraded to ledger version {found + 1}: {error}.") from error
        found = now
    if found > current:
        raise LedgerError(_newer(path, found, current))
    if scripts is MIGRATIONS:
        _require_columns(connection, path)
    return made


def finish_upgrade(connection: sqlite3.Connection) -> None:
    """Put away what was left for an engine of an earlier build: call in a transaction, holding the engine's lock."""
    for statement in _ONCE_ENGINES_ENDED:
        connection.execute(statement)


def _statements(script: str) -> Iterator[str]:
    """Split a script where SQLite itself sees a statement end: executescript would commit the transaction first."""
    statement = ""
    for piece in script.split(";"):
        statement += f"{piece};"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _require_columns(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file of the current version that lacks tables or columns of it: a build between releases made it.

    Raises:
        LedgerError: a table or column is missing.
    """
    shape = _shape(connection, path)
    if shape in _complete:
        return
    found = {(table, column) for table, column in connection.execute(_COLUMNS)}
    missing = sorted(_current_columns() - found)
    if missing:
        table, column = missing[0]
        raise LedgerError(
            f"{path} has no {table}.{column}, which ledger version {VERSION} has: a build between releases made it, "
            "and no step leads from there. Export it with that build, or start a new run."
        )
    if shape is not None:
        _complete.add(shape)


_complete: Final[set[tuple[int, int, int]]] = set()
"""Shapes of files that were found complete: the look takes 2 ms, and a viewer opens one file again and again."""


def _shape(connection: sqlite3.Connection, path: Path) -> tuple[int, int, int] | None:
    """Return device, inode and the number of the last change of its schema; None where the file was moved since."""
    try:
        file = path.stat()
    except OSError:
        return None
    return file.st_dev, file.st_ino, int(connection.execute("PRAGMA schema_version").fetchone()[0])


_COLUMNS: Final = (
    "SELECT made.name, shape.name FROM sqlite_master AS made JOIN pragma_table_info(made.name) AS shape"
    " WHERE made.type = 'table'"
)


@cache
def _current_columns() -> frozenset[tuple[str, str]]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        create_schema(connection)
        return frozenset((table, column) for table, column in connection.execute(_COLUMNS))


def check_readable(connection: sqlite3.Connection, path: Path) -> None:
    """Check that a viewer of this version can read the file, which it may not change.

    Raises:
        LedgerError: not a ledger, made by a newer program, or by one too old and not yet upgraded.
    """
    found = _version(connection, path)
    if found > VERSION:
        raise LedgerError(_newer(path, found, VERSION))
    if found < OLDEST_READ:
        raise LedgerError(
            f"{path} has ledger version {found}, this program reads {OLDEST_READ} and later. "
            "Resume the run once to upgrade it."
        )
    if found == VERSION:
        _require_columns(connection, path)


def _version(connection: sqlite3.Connection, path: Path) -> int:
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application_id != APPLICATION_ID or version < 1:
        raise LedgerError(f"{path} is not a ledger of EagleTUI.")
    return int(version)


def _newer(path: Path, found: int, current: int) -> str:
    return (
        f"{path} was written by a newer EagleTUI (ledger version {found}, this program knows {current}). "
        "Update EagleTUI to open it."
    )
