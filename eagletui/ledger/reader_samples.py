"""Read samples: pages for the browser, one in full for the inspector, batches for extraction and export."""

import sqlite3
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from eagletui.core.chat import Prompt
from eagletui.core.tokdiff import Span
from eagletui.ledger.codecs import unpack_bytes, unpack_ids, unpack_spans, unpack_text
from eagletui.ledger.filters import SORT_KEYS, SampleFilter, Term, alternatives, order, where, where_first
from eagletui.ledger.orders import TokensLabel
from eagletui.ledger.reader_base import Reader
from eagletui.ledger.rows import AttemptRow, Encoding, SampleRow, columns
from eagletui.ledger.triggers import TRAINABLE
from eagletui.ledger.turns import asked_prompt

_FEW_ROWS: Final = 3_000
"""Sorted in a few milliseconds."""
_ROWS_AT_ONCE: Final = 500
"""Below SQLite's smallest limit of parameters in a statement."""

_SAMPLE_COLUMNS: Final = (
    columns(SampleRow, "samples")
    .replace("samples.preview", "prompts.preview")
    .replace(
        "samples.extracted",
        "EXISTS (SELECT 1 FROM features JOIN tokens ON tokens.sample_id = features.sample_id"
        " WHERE features.sample_id = samples.id AND features.tokens_revision = tokens.revision)",
    )
)
_FROM_SAMPLES: Final = "FROM samples JOIN prompts ON prompts.id = samples.prompt_id"


@dataclass(frozen=True, slots=True)
class PageEnd:
    """Where a page ended; give it back to read the next one."""

    key: float
    """Sort key of the last row; its id when sorted by id."""
    id: int


@dataclass(frozen=True, slots=True)
class StoredTokens:
    """The rebuilt ids of a sample."""

    revision: int
    prompt_ids: "array[int] | None"
    output_ids: "array[int] | None"
    """None with formats used at text level."""
    raw: str
    spans: tuple[Span, ...]
    evidence: str
    reason: str
    tail_trimmed: bool


@dataclass(frozen=True, slots=True)
class StoredReply:
    """What the API returned, byte for byte."""

    attempt_id: int
    encoding: Encoding
    body: bytes
    received_at: float


@dataclass(frozen=True, slots=True)
class SampleDetail:
    """One sample in full."""

    row: SampleRow
    prompt: Prompt
    """Up to where the answer begins, here and in the classes below."""
    attempts: tuple[AttemptRow, ...]
    """In order."""
    reply: StoredReply | None
    """The answering attempt's, else the last one kept."""
    tokens: StoredTokens | None


@dataclass(frozen=True, slots=True)
class ToExtract:
    """Ids that wait for features."""

    sample_id: int
    sample_key: str
    prompt_ids: "array[int] | None"
    """None when the prompt was not rendered locally."""
    output_ids: "array[int]"
    tokens_revision: int


@dataclass(frozen=True, slots=True)
class ToExport:
    """A trainable sample."""

    row: SampleRow
    prompt: Prompt
    tokens: StoredTokens


@dataclass(frozen=True, slots=True)
class ToRebuild:
    """A kept reply and what was made of it."""

    row: SampleRow
    prompt: Prompt
    reply: StoredReply
    tokens: StoredTokens | None
    label: TokensLabel | None
    """As it is without a quarantine; None where there are no tokens."""


class SamplesReader(Reader):
    """Reads samples. Pages go by key, so that the millionth costs what the first does."""

    def page(self, wanted: SampleFilter, after: PageEnd | None, limit: int) -> list[SampleRow]:
        """List the next samples of a filter.

        Args:
            wanted: which, and in what order.
            after: `page_end` of the page before; None for the first.
            limit: at most this many.
        """
        parts, parameters = [], list[str | int | float]()
        with self._transactions.reading() as connection:
            conditions = [where_first(part, partial(_is_rare, connection)) for part in alternatives(wanted)]
        for sql, part_parameters in conditions:
            parameters += part_parameters
            if after is not None:
                compare = "<" if wanted.reverse else ">"
                sql += f" AND ({SORT_KEYS[wanted.sort]}, samples.id) {compare} (?, ?)"
                parameters += (after.key, after.id)
            parts.append(f"SELECT * FROM (SELECT id FROM samples WHERE {sql} ORDER BY {order(wanted)} LIMIT ?)")
            parameters.append(limit)
        with self._transactions.reading() as connection:
            rows = connection.execute(
                f"SELECT {_SAMPLE_COLUMNS} {_FROM_SAMPLES} WHERE samples.id IN ({' UNION ALL '.join(parts)})"
                f" ORDER BY {order(wanted)} LIMIT ?",
                (*parameters, limit),
            )
            return [_sample_row(row) for row in rows]

    def sample_ids(self, wanted: SampleFilter) -> "array[int]":
        """List the ids of every sample of a filter, in order: the index of a virtual list, 8 bytes each."""
        condition = where(wanted)
        with self._transactions.reading() as connection:
            if condition.sql == "1" and wanted.sort == "id":
                dense = _dense_ids(connection, wanted.reverse)
                if dense is not None:
                    return dense
            rows = connection.execute(
                f"SELECT samples.id FROM samples WHERE {condition.sql} ORDER BY {order(wanted)}", condition.parameters
            )
            return array("q", (row[0] for row in rows))

    def sample_keys(self, wanted: SampleFilter) -> list[str]:
        """List the keys of every sample of a filter, in order."""
        condition = where(wanted)
        with self._transactions.reading() as connection:
            rows = connection.execute(
                f"SELECT sample_key FROM samples WHERE {condition.sql} ORDER BY {order(wanted)}", condition.parameters
            )
            return [row[0] for row in rows]

    def rows(self, ids: Sequence[int]) -> list[SampleRow]:
        """List samples by id, in the order given; unknown ids are left out."""
        found: dict[int, SampleRow] = {}
        with self._transactions.reading() as connection:
            for start in range(0, len(ids), _ROWS_AT_ONCE):
                part = list(ids[start : start + _ROWS_AT_ONCE])
                marks = ", ".join("?" * len(part))
                for row in connection.execute(
                    f"SELECT {_SAMPLE_COLUMNS} {_FROM_SAMPLES} WHERE samples.id IN ({marks})", part
                ):
                    sample = _sample_row(row)
                    found[sample.id] = sample
        return [found[sample_id] for sample_id in ids if sample_id in found]

    def sample(self, sample_key: str) -> SampleDetail | None:
        """Read one sample in full; None when there is no such key."""
        with self._transactions.reading() as connection:
            row = connection.execute(
                f"SELECT {_SAMPLE_COLUMNS}, prompts.body, samples.turn {_FROM_SAMPLES} WHERE sample_key = ?",
                (sample_key,),
            ).fetchone()
            if row is None:
                return None
            sample = _sample_row(row[:-2])
            attempts = connection.execute(
                f"SELECT {columns(AttemptRow)} FROM attempts WHERE sample_id = ? ORDER BY number", (sample.id,)
            )
            return SampleDetail(
                row=sample,
                prompt=_prompt(connection, sample, row),
                attempts=tuple(AttemptRow(*attempt) for attempt in attempts),
                reply=_reply(connection, sample.id),
                tokens=_tokens(connection, sample.id),
            )

    def keys_like(self, part: str, limit: int = 5) -> list[str]:
        """List sample keys that contain a text, for messages about an unknown key."""
        condition = where(SampleFilter(text=part))
        with self._transactions.reading() as connection:
            rows = connection.execute(
                f"SELECT sample_key FROM samples WHERE {condition.sql} ORDER BY id LIMIT ?",
                (*condition.parameters, limit),
            )
            return [row[0] for row in rows]

    def to_extract(self, limit: int, after: int = 0) -> list[ToExtract]:
        """List trainable samples without current features, by id.

        Args:
            limit: at most this many.
            after: a sample id; 0 for the first. Samples become trainable in any order: start again from 0 at the end.
        """
        with self._transactions.reading() as connection:
            rows = connection.execute(
                """SELECT samples.id, sample_key, prompt_ids, output_ids, revision FROM to_extract
                JOIN samples ON samples.id = to_extract.sample_id JOIN tokens ON tokens.sample_id = samples.id
                WHERE to_extract.sample_id > ? ORDER BY to_extract.sample_id LIMIT ?""",
                (after, limit),
            )
            return [
                ToExtract(sample_id, key, _ids(prompt_ids), unpack_ids(output_ids), revision)
                for sample_id, key, prompt_ids, output_ids, revision in rows
            ]

    def to_export(self, after: int, limit: int) -> list[ToExport]:
        """List trainable samples by id.

        Args:
            after: a sample id; 0 for the first.
            limit: at most this many.
        """
        with self._transactions.reading() as connection:
            rows = connection.execute(
                f"""SELECT {_SAMPLE_COLUMNS}, prompts.body, samples.turn {_FROM_SAMPLES}
                WHERE samples.state = 'tokenized' AND samples.id > ? AND +samples.usability IN {TRAINABLE}
                ORDER BY samples.id LIMIT ?""",
                (after, limit),
            ).fetchall()
            exports = []
            for row in rows:
                sample = _sample_row(row[:-2])
                tokens = _tokens(connection, sample.id)
                if tokens is not None:
                    exports.append(ToExport(sample, _prompt(connection, sample, row), tokens))
            return exports

    def to_rebuild(self, after: int, limit: int) -> list[ToRebuild]:
        """List samples that hold an answer, by id, with the kept reply and the stored ids."""
        with self._transactions.reading() as connection:
            rows = connection.execute(
                f"""SELECT {_SAMPLE_COLUMNS},
                    CASE state WHEN 'quarantined' THEN usability_before ELSE usability END,
                    excess_tokens, plain_excess_tokens, has_end, prompts.body, samples.turn {_FROM_SAMPLES}
                WHERE samples.answered_attempt_id IS NOT NULL AND samples.id > ? ORDER BY samples.id LIMIT ?""",
                (after, limit),
            ).fetchall()
            found = []
            for row in rows:
                sample = _sample_row(row[:-6])
                reply = _reply(connection, sample.id)
                if reply is not None:
                    tokens = _tokens(connection, sample.id)
                    label = None if tokens is None else _label(sample, tokens, *row[-6:-2])
                    found.append(ToRebuild(sample, _prompt(connection, sample, row), reply, tokens, label))
            return found


def _is_rare(connection: sqlite3.Connection, term: Term) -> bool:
    query = f"SELECT count(*) FROM (SELECT 1 FROM samples WHERE {term.sql} LIMIT ?)"
    (found,) = connection.execute(query, (*term.parameters, _FEW_ROWS)).fetchone()
    return bool(found < _FEW_ROWS)


def page_end(row: SampleRow, wanted: SampleFilter) -> PageEnd:
    """Return where a page that ends with this row ended."""
    key: float | None
    match wanted.sort:
        case "id":
            key = row.id
        case "drift":
            key = None if row.drift_tokens is None else abs(row.drift_tokens)
        case "cost":
            key = row.cost_pico
        case "output":
            key = row.output_tokens
        case "latency":
            key = row.latency_s
    return PageEnd(0 if key is None else key, row.id)


def _dense_ids(connection: sqlite3.Connection, reverse: bool) -> "array[int] | None":
    """Return every id without reading a row, where none is missing between the first and the last."""
    (first, last) = connection.execute("SELECT (SELECT min(id) FROM samples), (SELECT max(id) FROM samples)").fetchone()
    (count,) = connection.execute("SELECT coalesce(sum(value), 0) FROM counters WHERE kind = 'state'").fetchone()
    if first is None or last - first + 1 != count:
        return None
    return array("q", range(last, first - 1, -1) if reverse else range(first, last + 1))


def _sample_row(row: tuple[Any, ...]) -> SampleRow:
    return SampleRow(*(*row[:-1], bool(row[-1])))


def _prompt(connection: sqlite3.Connection, sample: SampleRow, row: tuple[Any, ...]) -> Prompt:
    return asked_prompt(connection, sample.id, row[-2], row[-1])


def _ids(blob: bytes | None) -> "array[int] | None":
    return None if blob is None else unpack_ids(blob)


def _label(
    row: SampleRow,
    tokens: StoredTokens,
    usability: str | None,
    excess: int | None,
    plain_excess: int | None,
    has_end: int,
) -> TokensLabel:
    return TokensLabel(
        evidence=tokens.evidence,
        usability=usability or "",
        reason=tokens.reason,
        offset=row.offset_tokens,
        drift=row.drift_tokens,
        excess=excess,
        plain_excess=plain_excess,
        ended=bool(has_end),
    )


def _reply(connection: sqlite3.Connection, sample_id: int) -> StoredReply | None:
    row = connection.execute(
        "SELECT attempt_id, encoding, body, received_at FROM replies JOIN attempts ON attempts.id = attempt_id"
        " WHERE sample_id = ? ORDER BY has_answer DESC, number DESC LIMIT 1",
        (sample_id,),
    ).fetchone()
    return None if row is None else StoredReply(row[0], row[1], unpack_bytes(row[2]), row[3])


def _tokens(connection: sqlite3.Connection, sample_id: int) -> StoredTokens | None:
    row = connection.execute(
        "SELECT revision, prompt_ids, output_ids, raw, spans, evidence, reason, tail_trimmed FROM tokens"
        " WHERE sample_id = ?",
        (sample_id,),
    ).fetchone()
    if row is None:
        return None
    revision, prompt_ids, output_ids, raw, spans, evidence, reason, tail_trimmed = row
    return StoredTokens(
        revision=revision,
        prompt_ids=_ids(prompt_ids),
        output_ids=_ids(output_ids),
        raw=unpack_text(raw),
        spans=unpack_spans(spans),
        evidence=evidence,
        reason=reason,
        tail_trimmed=bool(tail_trimmed),
    )
