"""Add prompts and their samples."""

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from eagletui.core.errors import LedgerError
from eagletui.ledger.codecs import pack_prompt
from eagletui.ledger.orders import NewPrompt
from eagletui.ledger.turns import WAITS
from eagletui.ledger.writer_base import Writer


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
        added = 0
        with self._transactions.begin() as connection:
            if source_id is None:
                (source_id,) = connection.execute("SELECT max(id) FROM sources").fetchone()
            for prompt in batch:
                cursor = connection.execute(
                    "INSERT INTO prompts (id, prompt_key, source_id, dataset, body, preview) VALUES (?, ?, ?, ?, ?, ?)"
                    " ON CONFLICT (prompt_key) DO NOTHING",
                    (
                        prompt.number,
                        prompt.prompt_key,
                        source_id,
                        prompt.dataset,
                        pack_prompt(prompt.prompt),
                        prompt.preview,
                    ),
                )
                if cursor.rowcount == 0:
                    continue
                prompt_id = cursor.lastrowid
                first = prompt.first_sample_number
                rows = [
                    (
                        None if first is None else first + index,
                        key,
                        prompt_id,
                        answer,
                        turn,
                        prompt.dataset,
                        0.0 if turn == prompt.turns[0] else WAITS,
                    )
                    for index, (key, answer, turn) in enumerate(sample_keys(prompt))
                ]
                try:
                    connection.executemany(
                        "INSERT INTO samples (id, sample_key, prompt_id, answer_index, turn, dataset, not_before)"
                        " VALUES (?, ?, ?, ?, ?, ?, ?)",
                        rows,
                    )
                except sqlite3.IntegrityError as error:
                    raise LedgerError(
                        f"prompt {prompt.prompt_key!r} gives a sample key that another prompt has: rename its id"
                    ) from error
                added += len(rows)
        return added
