"""Build a ledger of a million samples by SQL in bulk: triggers and indexes off while loading, then put back."""

import sqlite3
from pathlib import Path

from eagletui.core.chat import Message, Prompt
from eagletui.ledger.codecs import pack_ids, pack_prompt, pack_spans, pack_text
from tests.ledger.build import make_ledger
from tests.ledger.truth import recount

SAMPLES = 1_000_000
ANSWERED = 900_000
EXTRACTED = 440_000

_NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"


def make_million(path: Path) -> Path:
    """Make the ledger: nine tenths answered, one in a thousand failed, the rest queued."""
    make_ledger(path, stop_at=10**18, cap=10**18)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("BEGIN")
    extras = connection.execute(
        "SELECT type, name, sql FROM sqlite_master WHERE type IN ('trigger', 'index') AND sql IS NOT NULL"
    ).fetchall()
    for kind, name, _ in extras:
        connection.execute(f"DROP {kind} {name}")
    _load(connection)
    for kind in ("index", "trigger"):
        for found, _, statement in extras:
            if found == kind:
                connection.execute(statement)
    connection.execute("COMMIT")
    counted = [(kind, name, scope, value) for (kind, name, scope), value in recount(path).items()]
    connection.executemany("INSERT INTO counters (kind, name, scope, value) VALUES (?, ?, ?, ?)", counted)
    connection.execute("UPDATE run SET state = 'running'")
    connection.close()
    return path


def _load(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO sources VALUES (1, 'prompts.jsonl', '00', ?, 0)", (SAMPLES,))
    body = pack_prompt(Prompt((Message("user", "Tell me about k"),)))
    connection.execute(
        f"{_NUMBERS} INSERT INTO prompts SELECT i, 'k' || i, 1, 'set' || (i % 5), ?, 'Tell me about k' || i FROM n",
        (SAMPLES, body),
    )
    connection.execute(
        f"""{_NUMBERS} INSERT INTO samples (id, sample_key, prompt_id, dataset, state, failure_kind, attempts)
        SELECT i, 'k' || i, i, 'set' || (i % 5), CASE WHEN i % 1000 = 7 THEN 'failed' ELSE 'queued' END,
               CASE WHEN i % 1000 = 7 THEN 'http_400' END, i % 1000 = 7 FROM n WHERE i > ? OR i % 1000 = 7""",
        (SAMPLES, ANSWERED),
    )
    connection.execute(
        f"""{_NUMBERS} INSERT INTO samples (id, sample_key, prompt_id, dataset, state, attempts, answered_attempt_id,
            endpoint, finish_reason, evidence, usability, prompt_tokens, output_tokens, billed_prompt_tokens,
            billed_output_tokens, drift_tokens, spans, cost_pico, latency_s, answered_at)
        SELECT i, 'k' || i, i, 'set' || (i % 5), 'tokenized', 1, i, 'endpoint-' || (i % 7), 'stop',
            CASE WHEN i % 9 = 0 THEN 'counted' WHEN i % 5000 = 3 THEN 'conflict' ELSE 'streamed' END,
            CASE WHEN i % 50 = 0 THEN 'resegmented' ELSE 'usable' END,
            100 + i % 900, 300 + i % 700, 100 + i % 900, 300 + i % 700,
            CASE WHEN i % 333 = 0 THEN i % 17 ELSE 0 END, i % 50 = 0, 1000000 + i % 77777, (i % 3000) / 100.0,
            1000000 + i / 500.0
        FROM n WHERE i % 1000 <> 7""",
        (ANSWERED,),
    )
    connection.execute(
        """INSERT INTO attempts (id, sample_id, number, endpoint, state, hold_pico, cost_pico, has_answer, streamed,
            held_at) SELECT id, id, 1, endpoint, 'settled', 5000000, cost_pico, 1, 1, answered_at FROM samples
        WHERE state = 'tokenized'"""
    )
    ids = pack_ids(range(40))
    connection.execute(
        "INSERT INTO tokens SELECT id, id, 1, ?, ?, ?, ?, evidence, '', 0, 0 FROM samples WHERE state = 'tokenized'",
        (ids, ids, pack_text("raw text"), pack_spans(())),
    )
    connection.execute(
        f"{_NUMBERS} INSERT INTO shards SELECT i, i, 1000, 1000, 1, '0', 0, 0 FROM n", (EXTRACTED // 1000,)
    )
    connection.execute(
        "INSERT INTO features SELECT id, 1 + (id - 1) / 1000, id % 1000, 80, 1 FROM samples"
        " WHERE state = 'tokenized' AND id <= ?",
        (EXTRACTED,),
    )
    connection.execute(
        "INSERT INTO to_extract SELECT id FROM samples WHERE state = 'tokenized' AND id > ?", (EXTRACTED,)
    )
    connection.execute(
        f"{_NUMBERS} INSERT INTO ticks SELECT 1000000 + i, i * 3, i * 900, i, i, 64, i FROM n", (200_000,)
    )
    connection.execute(
        f"{_NUMBERS} INSERT INTO events SELECT i, i, 'info', 'engine', 'answered', NULL, 'message' FROM n", (300_000,)
    )
