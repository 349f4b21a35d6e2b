"""Recount a ledger row by row, by SQL that shares nothing with the triggers."""

import sqlite3
from pathlib import Path

_COUNTS = {
    ("state", None): "SELECT state, dataset, count(*) FROM samples GROUP BY 1, 2",
    ("evidence", None): "SELECT evidence, dataset, count(*) FROM samples WHERE evidence IS NOT NULL GROUP BY 1, 2",
    ("usability", None): "SELECT usability, dataset, count(*) FROM samples WHERE usability IS NOT NULL GROUP BY 1, 2",
    ("finish_reason", None): (
        "SELECT finish_reason, dataset, count(*) FROM samples WHERE finish_reason IS NOT NULL GROUP BY 1, 2"
    ),
    ("samples", "resegmented"): "SELECT dataset, count(*) FROM samples WHERE spans > 0 GROUP BY 1",
    ("samples", "drifting"): "SELECT dataset, count(*) FROM samples WHERE drift_tokens != 0 GROUP BY 1",
    ("tokens", "prompt"): "SELECT dataset, sum(prompt_tokens) FROM samples GROUP BY 1",
    ("tokens", "output"): "SELECT dataset, sum(output_tokens) FROM samples GROUP BY 1",
    ("tokens", "billed_prompt"): "SELECT dataset, sum(billed_prompt_tokens) FROM samples GROUP BY 1",
    ("tokens", "billed_output"): "SELECT dataset, sum(billed_output_tokens) FROM samples GROUP BY 1",
    ("tokens", "drift"): "SELECT dataset, sum(drift_tokens) FROM samples GROUP BY 1",
    ("tokens", "drift_billed"): (
        "SELECT dataset, sum(billed_output_tokens) FROM samples WHERE drift_tokens IS NOT NULL GROUP BY 1"
    ),
    ("tokens", "trainable"): (
        "SELECT dataset, sum(output_tokens) FROM samples"
        " WHERE state = 'tokenized' AND (usability = 'usable' OR usability = 'resegmented') GROUP BY 1"
    ),
    ("cost", "answers"): "SELECT dataset, sum(cost_pico) FROM samples GROUP BY 1",
    ("features", "samples"): (
        "SELECT dataset, count(*) FROM features JOIN samples ON samples.id = sample_id GROUP BY 1"
    ),
    ("features", "rows"): "SELECT dataset, sum(rows) FROM features JOIN samples ON samples.id = sample_id GROUP BY 1",
    ("extract", "pending"): (
        "SELECT dataset, count(*) FROM samples JOIN tokens ON tokens.sample_id = samples.id"
        " LEFT JOIN features ON features.sample_id = samples.id AND features.tokens_revision = tokens.revision"
        " WHERE state = 'tokenized' AND usability IN ('usable', 'resegmented') AND output_ids IS NOT NULL"
        " AND features.sample_id IS NULL GROUP BY 1"
    ),
    ("attempts", None): "SELECT state, '', count(*) FROM attempts GROUP BY 1",
    ("attempts", "retries"): "SELECT '', count(*) FROM attempts WHERE number >= 2",
    ("attempts", "failures"): "SELECT '', count(*) FROM attempts WHERE error_kind IS NOT NULL",
    ("money", "settled"): "SELECT '', sum(cost_pico) FROM attempts WHERE state = 'settled'",
    ("money", "held"): "SELECT '', sum(hold_pico) FROM attempts WHERE state = 'held' OR state = 'sent'",
    ("money", "unsettled"): "SELECT '', sum(hold_pico) FROM attempts WHERE state = 'unsettled' AND NOT released",
    ("money", "unattributed"): "SELECT '', sum(amount_pico) FROM adjustments",
    ("money", "wasted"): (
        "SELECT '', sum(cost_pico) FROM attempts WHERE id NOT IN"
        " (SELECT answered_attempt_id FROM samples WHERE answered_attempt_id IS NOT NULL)"
    ),
    ("shards", "shards"): "SELECT '', count(*) FROM shards",
    ("shards", "rows"): "SELECT '', sum(rows) FROM shards",
    ("shards", "bytes"): "SELECT '', sum(bytes) FROM shards",
    ("endpoint", "samples"): "SELECT endpoint, count(*) FROM samples WHERE endpoint IS NOT NULL GROUP BY 1",
    ("endpoint", "billed_output"): (
        "SELECT endpoint, sum(billed_output_tokens) FROM samples WHERE endpoint IS NOT NULL GROUP BY 1"
    ),
    ("endpoint", "output"): "SELECT endpoint, sum(output_tokens) FROM samples WHERE endpoint IS NOT NULL GROUP BY 1",
    ("endpoint", "drift"): "SELECT endpoint, sum(drift_tokens) FROM samples WHERE endpoint IS NOT NULL GROUP BY 1",
    ("endpoint", "drift_billed"): (
        "SELECT endpoint, sum(billed_output_tokens) FROM samples WHERE drift_tokens IS NOT NULL GROUP BY 1"
    ),
    ("endpoint", "cost"): "SELECT endpoint, sum(cost_pico) FROM samples WHERE endpoint IS NOT NULL GROUP BY 1",
    ("endpoint", "truncated"): "SELECT endpoint, count(*) FROM samples WHERE finish_reason = 'length' GROUP BY 1",
    ("endpoint", "failures"): "SELECT endpoint, count(*) FROM attempts WHERE error_kind IS NOT NULL GROUP BY 1",
    ("endpoint_evidence", None): (
        "SELECT evidence, endpoint, count(*) FROM samples WHERE evidence IS NOT NULL GROUP BY 1, 2"
    ),
}


def recount(path: Path) -> dict[tuple[str, str, str], int]:
    """Return every counter that is not 0 as the rows say it should be."""
    counted: dict[tuple[str, str, str], int] = {}
    connection = sqlite3.connect(path)
    try:
        for (kind, name), query in _COUNTS.items():
            for row in connection.execute(query):
                found_name, scope, value = row if name is None else (name, *row)
                if value:
                    counted[kind, found_name, scope] = value
    finally:
        connection.close()
    return counted


def counters(path: Path) -> dict[tuple[str, str, str], int]:
    """Return every counter that is not 0 as the triggers kept it."""
    connection = sqlite3.connect(path)
    try:
        rows = connection.execute("SELECT kind, name, scope, value FROM counters WHERE value <> 0").fetchall()
    finally:
        connection.close()
    return {(kind, name, scope): value for kind, name, scope, value in rows}


def committed(path: Path) -> tuple[int, int]:
    """Return what the rows say is committed, and the cap."""
    connection = sqlite3.connect(path)
    try:
        ((total,),) = connection.execute(
            """SELECT (SELECT coalesce(sum(cost_pico), 0) FROM attempts)
                 + (SELECT coalesce(sum(hold_pico), 0) FROM attempts WHERE state IN ('held', 'sent'))
                 + (SELECT coalesce(sum(hold_pico), 0) FROM attempts WHERE state = 'unsettled' AND released = 0)
                 + (SELECT coalesce(sum(amount_pico), 0) FROM adjustments)"""
        ).fetchall()
        ((cap,),) = connection.execute("SELECT cap_pico FROM run").fetchall()
    finally:
        connection.close()
    return total, cap
