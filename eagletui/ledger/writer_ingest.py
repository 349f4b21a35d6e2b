"""Add prompts and their samples."""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from eagletui.core.errors import LedgerError
from eagletui.ledger.codecs import pack_prompt
from eagletui.ledger.orders import NewPrompt
from eagletui.ledger.triggers import COUNTERS, count_statement
from eagletui.ledger.turns import WAITS
from eagletui.ledger.writer_base import Writer

_BULK_CACHE_KIB: Final = 65_536
"""Keys arrive in no order: with SQLite's 2 MiB their index is written and read again all the time."""

_OF_NEW: Final = tuple(counter for counter in COUNTERS if (counter.table, counter.kind) == ("samples", "state"))
"""Counters that a new sample adds to: it has a state and nothing else yet."""

_OWN_INDEXES: Final = (
    "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = 'samples' AND sql IS NOT NULL"
    " ORDER BY rowid"
)
"""Of samples, in the order of the schema; those of UNIQUE columns cannot be dropped."""


def sample_keys(prompt: NewPrompt) -> Iterator[tuple[str, int, int]]:
    """Yield key, answer index and turn of each sample; the suffixes appear only where there are several."""
    for answer in range(prompt.answers):
        for turn in prompt.turns:
            key = prompt.prompt_key
            if prompt.answers > 1:
                key += f".a{answer}"
            if len(prompt.turns) > 1:
                key += f".t{turn}"
            yield key, answer, turn


class IngestWriter(Writer):
    """Writes of ingestion. Put a whole one inside `with writer.transaction():`, so that nothing stays of a bad one."""

    _all_new = False
    """In bulk into a ledger that had no prompts: no key can be known."""

    def add_source(self, path: Path | str, sha256: str, samples: int) -> int:
        """Record a prompt file and return its id; a file with the same content is recorded once.

        Args:
            path: as the person gave it.
            sha256: of the file, hex.
            samples: how many samples it gives.
        """
        with self._transactions.begin() as connection:
            connection.execute(
                "INSERT INTO sources (path, sha256, samples, added_at) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (sha256) DO NOTHING",
                (str(path), sha256, samples, self._clock()),
            )
            (source_id,) = connection.execute("SELECT id FROM sources WHERE sha256 = ?", (sha256,)).fetchone()
        return int(source_id)

    def begin_source(self, path: Path) -> int:
        """Record a prompt file that is about to be read, and return its id; `end_source` must follow."""
        return self.add_source(path, f"being read: {path}", 0)

    def end_source(self, source_id: int, sha256: str, samples: int) -> None:
        """Record what a prompt file was, once it is read; one with the content of an earlier one joins that."""
        with self._transactions.begin() as connection:
            known = connection.execute("SELECT id FROM sources WHERE sha256 = ?", (sha256,)).fetchone()
            if known is None:
                named = (sha256, samples, source_id)
                connection.execute("UPDATE sources SET sha256 = ?, samples = ? WHERE id = ?", named)
                return
            connection.execute("UPDATE sources SET samples = samples + ? WHERE id = ?", (samples, known[0]))
            connection.execute("UPDATE prompts SET source_id = ? WHERE source_id = ?", (known[0], source_id))
            connection.execute("DELETE FROM sources WHERE id = ?", (source_id,))

    @contextmanager
    def in_bulk(self) -> Iterator[None]:
        """Add everything inside the block in one transaction, counted and indexed once at its end, not row by row.

        Into a ledger without prompts, keys are not looked up: each may be added once.
        """
        with self._transactions.begin() as connection:
            triggers = connection.execute(
                "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'samples'"
                " AND (sql LIKE '%AFTER INSERT ON samples%' OR sql LIKE '%BEFORE INSERT ON samples%')"
            ).fetchall()
            (last,) = connection.execute("SELECT coalesce(max(id), 0) FROM samples").fetchone()
            indexes = [] if last else connection.execute(_OWN_INDEXES).fetchall()
            for kind, dropped in (("TRIGGER", triggers), ("INDEX", indexes)):
                for name, _ in dropped:
                    connection.execute(f'DROP {kind} "{name}"')
            (usual,) = connection.execute("PRAGMA cache_size").fetchone()
            connection.execute(f"PRAGMA cache_size = -{_BULK_CACHE_KIB}")
            self._all_new = connection.execute("SELECT 1 FROM prompts LIMIT 1").fetchone() is None
            try:
                yield
            finally:
                self._all_new = False
            for _, sql in indexes:
                connection.execute(sql)
            connection.execute(f"PRAGMA cache_size = {usual}")
            for counter in _OF_NEW:
                connection.execute(count_statement(counter, "samples.id > ?"), (last,))
            for _, sql in triggers:
                connection.execute(sql)

    def add_prompts(self, batch: Sequence[NewPrompt], source_id: int | None = None) -> int:
        """Add prompts and queue their samples; prompts whose key is known already are left as they are.

        Args:
            batch: at most a few thousand at a time keeps memory flat.
            source_id: from `add_source`; None for the last one added.

        Returns:
            How many samples were added.

        Raises:
            LedgerError: two different prompts would give samples of the same key.
        """
        with self._transactions.begin() as connection:
            if source_id is None:
                (source_id,) = connection.execute("SELECT max(id) FROM sources").fetchone()
            fresh = batch if self._all_new else _fresh(connection, batch)
            (last,) = connection.execute("SELECT coalesce(max(id), 0) FROM prompts").fetchone()
            numbered = [
                (prompt, last + place if prompt.number is None else prompt.number)
                for place, prompt in enumerate(fresh, start=1)
            ]
            connection.executemany(
                "INSERT INTO prompts (id, prompt_key, source_id, dataset, body, preview) VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (number, prompt.prompt_key, source_id, prompt.dataset, _body(prompt), prompt.preview)
                    for prompt, number in numbered
                ],
            )
            try:
                return _queue(connection, numbered)
            except sqlite3.IntegrityError as error:
                raise LedgerError(
                    f"prompt {_clashing(connection, numbered)!r} gives a sample key that another prompt has: "
                    "rename its id"
                ) from error


def _queue(connection: sqlite3.Connection, numbered: Sequence[tuple[NewPrompt, int]]) -> int:
    """Queue the samples of prompts that were just added, and return how many."""
    if not numbered:
        return 0
    turns = {prompt.turns for prompt, _ in numbered}
    if len(turns) == 1 and len(numbered[0][0].turns) == 1 and all(_is_plain(prompt) for prompt, _ in numbered):
        # One sample each, all alike but for the key: SQLite takes them from the prompts, at half the time.
        last = connection.execute("SELECT coalesce(max(id), 0) FROM samples").fetchone()[0]
        connection.execute(
            """INSERT INTO samples (id, sample_key, prompt_id, answer_index, turn, dataset, not_before)
            SELECT ? + id, prompt_key, id, 0, ?, dataset, 0 FROM prompts WHERE id BETWEEN ? AND ? ORDER BY id""",
            (last + 1 - numbered[0][1], turns.pop()[0], numbered[0][1], numbered[-1][1]),
        )
        return len(numbered)
    rows = [row for prompt, number in numbered for row in _sample_rows(prompt, number)]
    connection.executemany(
        "INSERT INTO samples (id, sample_key, prompt_id, answer_index, turn, dataset, not_before)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        rows,
    )
    return len(rows)


def _body(prompt: NewPrompt) -> bytes:
    return prompt.prompt if isinstance(prompt.prompt, bytes) else pack_prompt(prompt.prompt)


def _is_plain(prompt: NewPrompt) -> bool:
    """One answer, and neither prompt nor sample bring a number of their own."""
    return prompt.answers == 1 and prompt.number is None and prompt.first_sample_number is None


_SampleValues = tuple[int | None, str, int, int, int, str, float]


def _fresh(connection: sqlite3.Connection, batch: Sequence[NewPrompt]) -> list[NewPrompt]:
    """Leave out prompts whose key is known, also from earlier in the batch."""
    by_key: dict[str, NewPrompt] = {}
    for prompt in batch:
        by_key.setdefault(prompt.prompt_key, prompt)
    known = connection.execute(
        "SELECT prompt_key FROM prompts WHERE prompt_key IN (SELECT value FROM json_each(?))",
        (json.dumps(list(by_key)),),
    )
    for (key,) in known.fetchall():
        del by_key[key]
    return list(by_key.values())


def _sample_rows(prompt: NewPrompt, prompt_id: int) -> Iterator[_SampleValues]:
    first = prompt.first_sample_number
    for index, (key, answer, turn) in enumerate(sample_keys(prompt)):
        number = None if first is None else first + index
        yield number, key, prompt_id, answer, turn, prompt.dataset, 0.0 if turn == prompt.turns[0] else WAITS


def _clashing(connection: sqlite3.Connection, numbered: Sequence[tuple[NewPrompt, int]]) -> str:
    """Name the prompt one of whose sample keys belongs to another."""
    owners: dict[str, int] = {}
    for prompt, number in numbered:
        for key, _, _ in sample_keys(prompt):
            taken = connection.execute(
                "SELECT 1 FROM samples WHERE sample_key = ? AND prompt_id <> ?", (key, number)
            ).fetchone()
            if taken or owners.setdefault(key, number) != number:
                return prompt.prompt_key
    return numbered[0][0].prompt_key
