"""Orders that concern many samples: set an endpoint's answers aside, take them back, ask samples again.

Each is cut into slices, a transaction each, so that others can write in between. What an order has come to is kept with
it (`commands.progress_json`): it stays open until the last slice, and whoever takes it up goes on where it was left.
"""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from eagletui.ledger.rebuying import Quarantined, rebuy_range
from eagletui.ledger.rows import BulkVerb
from eagletui.ledger.turns import (
    can_be_retried,
    count_later_answers,
    order_retried,
    queue_failed_later,
    set_aside_later,
)
from eagletui.ledger.writer_base import Writer

SLICE_ROWS: Final = 200
"""Samples changed in one transaction; later turns of their conversations come on top."""
LOOK_ROWS: Final = 5_000
"""Samples looked at in one transaction, to find those."""

_AGAIN: Final = (
    "UPDATE samples SET state = 'queued', failure_kind = NULL, failure_detail = NULL, not_before = :now,"
    " attempts_excused = attempts, attempts_before = attempts"
    f" WHERE state IN ('failed', 'refused') AND {can_be_retried('samples')}"
    " AND id IN (SELECT value FROM json_each(:ids))"
)
_NAMED: Final = "id IN (SELECT value FROM json_each(:ids))"


class Progress(msgspec.Struct, frozen=True):
    """How far an order has come. Money in picodollars."""

    after: int = 0
    """Samples up to this row are dealt with; of samples that were named, so many."""
    samples: int = 0
    """That changed."""
    cost_pico: int = 0
    """What they cost, as settled."""
    prompt_tokens: int = 0
    """As billed, of them and of `later_turns`."""
    output_tokens: int = 0
    later_turns: int = 0
    """Answers of others that follow those in their conversations."""
    changed: bool = False
    """Something did, the endpoint's own state included."""
    is_done: bool = False


class BulkWriter(Writer):
    """Writes to many samples."""

    def carry_on(self, order_id: int, verb: BulkVerb, args: Mapping[str, Any]) -> Progress:
        """Do the next slice of an order in one transaction, and note how far the order has come.

        Args:
            order_id: of the order, which stays open: record its end once the progress says that it is done.
            verb: what to do.
            args: checked already. quarantine: endpoint, since (None: the time of the order); release: endpoint; retry:
                samples (empty: all that failed), suspect.
        """
        with self._transactions.begin() as connection:
            at, noted = connection.execute(
                "SELECT at, progress_json FROM commands WHERE id = ?", (order_id,)
            ).fetchone()
            progress = Progress() if noted is None else msgspec.json.decode(noted, type=Progress)
            if progress.is_done:
                return progress
            match verb:
                case "quarantine":
                    since = args.get("since")
                    progress = self.quarantine_some(args["endpoint"], at if since is None else since, progress)
                case "release":
                    progress = self.release_some(args["endpoint"], progress)
                case "retry":
                    progress = self.retry_some(args["samples"], progress, suspect=args.get("suspect", False))
            connection.execute(
                "UPDATE commands SET progress_json = ? WHERE id = ?",
                (msgspec.json.encode(progress).decode(), order_id),
            )
        return progress

    def quarantine(self, endpoint: str, since: float = 0.0) -> Quarantined:
        """Keep an endpoint from being used and set aside what it answered since a time, as `model_suspect`.

        Args:
            endpoint: its tag.
            since: Unix seconds.
        """
        progress = Progress()
        while not progress.is_done:
            progress = self.quarantine_some(endpoint, since, progress)
        return self.quarantined(endpoint, progress)

    def release(self, endpoint: str) -> Quarantined:
        """Undo a quarantine: the endpoint may be used again and its samples are what they were."""
        progress = Progress()
        while not progress.is_done:
            progress = self.release_some(endpoint, progress)
        return Quarantined(progress.samples, progress.cost_pico, progress.changed)

    def retry(self, sample_keys: Sequence[str], *, suspect: bool = False) -> int:
        """Queue samples again, and return how many.

        A quarantined one gives up its answer: the attempt and its reply stay, and its cost counts as wasted. So does
        every later turn of its conversation, which was asked after that answer.

        A turn whose turn before has an answer that it cannot follow stays failed; one whose turn before failed too is
        asked after that one.

        Each may fail `max_attempts` times again, however many attempts it has used.

        Args:
            sample_keys: failed, refused or quarantined ones; empty for every failed or refused one.
            suspect: every quarantined one instead.
        """
        progress = Progress()
        while not progress.is_done:
            progress = self.retry_some(sample_keys, progress, suspect=suspect)
        return progress.samples

    def quarantined(self, endpoint: str, progress: Progress) -> Quarantined:
        """Say what a quarantine that is done has moved, and what buying it again costs."""
        with self._transactions.reading() as connection:
            low, high = rebuy_range(
                connection,
                endpoint,
                progress.samples + progress.later_turns if progress.samples else 0,
                progress.prompt_tokens,
                progress.output_tokens,
            )
        return Quarantined(progress.samples, progress.cost_pico, progress.changed, low, high, progress.later_turns)

    def quarantine_some(self, endpoint: str, since: float, progress: Progress) -> Progress:
        """Do a slice of a quarantine. The first one closes the endpoint: what arrives from then on is set aside as it
        arrives."""
        with self._transactions.begin() as connection:
            marked = connection.execute(
                """INSERT INTO endpoints (tag, provider_name, state, quarantined_since)
                VALUES (:tag, :tag, 'quarantined', :since)
                ON CONFLICT (tag) DO UPDATE SET state = 'quarantined', quarantined_since = :since
                    WHERE quarantined_since IS NULL OR quarantined_since > :since""",
                {"tag": endpoint, "since": since},
            ).rowcount
            found = _answered_by(connection, endpoint, progress.after, since)
            rows = connection.execute(
                "UPDATE samples SET state = 'quarantined', usability_before = usability, usability = 'model_suspect'"
                f" WHERE {_NAMED} AND state IN ('answered', 'tokenized')"
                " RETURNING coalesce(cost_pico, 0), coalesce(billed_prompt_tokens, prompt_tokens, 0),"
                " coalesce(billed_output_tokens, output_tokens, 0)",
                {"ids": json.dumps(found.ids)},
            ).fetchall()
            later = count_later_answers(connection, found.ids, endpoint, since)
        return Progress(
            after=found.after,
            samples=progress.samples + len(rows),
            cost_pico=progress.cost_pico + sum(row[0] for row in rows),
            prompt_tokens=progress.prompt_tokens + sum(row[1] for row in rows) + later.prompt_tokens,
            output_tokens=progress.output_tokens + sum(row[2] for row in rows) + later.output_tokens,
            later_turns=progress.later_turns + later.samples,
            changed=progress.changed or bool(marked or rows),
            is_done=found.is_all,
        )

    def release_some(self, endpoint: str, progress: Progress) -> Progress:
        """Do a slice of a release. The first one opens the endpoint."""
        with self._transactions.begin() as connection:
            opened = 0
            if not progress.after:
                opened = connection.execute(
                    "UPDATE endpoints SET state = 'open', quarantined_since = NULL"
                    " WHERE tag = ? AND state = 'quarantined'",
                    (endpoint,),
                ).rowcount
            found = _answered_by(connection, endpoint, progress.after, 0.0, quarantined=True)
            rows = connection.execute(
                "UPDATE samples SET state = CASE WHEN EXISTS (SELECT 1 FROM tokens WHERE sample_id = samples.id)"
                " THEN 'tokenized' ELSE 'answered' END, usability = usability_before, usability_before = NULL"
                f" WHERE {_NAMED} AND state = 'quarantined' RETURNING coalesce(cost_pico, 0)",
                {"ids": json.dumps(found.ids)},
            ).fetchall()
        return Progress(
            after=found.after,
            samples=progress.samples + len(rows),
            cost_pico=progress.cost_pico + sum(row[0] for row in rows),
            changed=progress.changed or bool(opened or rows),
            is_done=found.is_all,
        )

    def retry_some(self, sample_keys: Sequence[str], progress: Progress, *, suspect: bool) -> Progress:
        """Do a slice of a retry; the arguments are those of `retry`."""
        now = self._clock()
        with self._transactions.begin() as connection:
            if sample_keys and not suspect:
                keys = sample_keys[progress.after : progress.after + SLICE_ROWS]
                ids, after = _ids_of(connection, keys), progress.after + len(keys)
                is_done = after >= len(sample_keys)
            else:
                states = ("quarantined",) if suspect else ("failed", "refused")
                ids = _in_states(connection, states, progress.after)
                after, is_done = _last(ids, progress), len(ids) < SLICE_ROWS
            named = {"ids": json.dumps(ids), "now": now}
            queued = 0 if suspect else connection.execute(_AGAIN, named).rowcount
            queued += _give_up_answers(connection, ids, now)
            queued += order_retried(connection, ids, now)
        samples = progress.samples + queued
        return Progress(after=after, samples=samples, changed=samples > 0, is_done=is_done)


class _Found(NamedTuple):
    ids: list[int]
    after: int
    """All samples up to this one were looked at."""
    is_all: bool


def _answered_by(
    connection: sqlite3.Connection, endpoint: str, after: int, since: float, *, quarantined: bool = False
) -> _Found:
    """Find the next answers of an endpoint since a time, all or those that are quarantined."""
    rows = connection.execute(
        """SELECT id, answered_at >= :since AND (NOT :quarantined OR state = 'quarantined')
        FROM samples INDEXED BY samples_by_endpoint WHERE endpoint = :endpoint AND endpoint IS NOT NULL AND id > :after
        ORDER BY id LIMIT :limit""",
        {"endpoint": endpoint, "after": after, "since": since, "quarantined": quarantined, "limit": LOOK_ROWS},
    )
    ids: list[int] = []
    seen = 0
    for row_id, counts in rows:
        seen, after = seen + 1, row_id
        if counts:
            ids.append(row_id)
        if len(ids) == SLICE_ROWS:
            return _Found(ids, after, False)
    return _Found(ids, after, seen < LOOK_ROWS)


def _in_states(connection: sqlite3.Connection, states: Sequence[str], after: int) -> list[int]:
    found: list[int] = []
    for state in states:
        rows = connection.execute(
            "SELECT id FROM samples INDEXED BY samples_by_state WHERE state = ? AND id > ? ORDER BY id LIMIT ?",
            (state, after, SLICE_ROWS),
        )
        found += (row_id for (row_id,) in rows)
    return sorted(found)[:SLICE_ROWS]


def _ids_of(connection: sqlite3.Connection, keys: Sequence[str]) -> list[int]:
    rows = connection.execute(
        "SELECT id FROM samples WHERE sample_key IN (SELECT value FROM json_each(?)) ORDER BY id", (json.dumps(keys),)
    )
    return [row_id for (row_id,) in rows]


def _last(ids: Sequence[int], progress: Progress) -> int:
    return ids[-1] if ids else progress.after


def _give_up_answers(connection: sqlite3.Connection, candidates: Sequence[int], now: float) -> int:
    """Queue the quarantined ones of some samples again, and the turns that followed their answers. Their ids stay until
    others replace them, so that features are known to be stale."""
    chosen = connection.execute(
        f"SELECT id FROM samples WHERE {_NAMED} AND state = 'quarantined' ORDER BY id",
        {"ids": json.dumps(candidates)},
    ).fetchall()
    ids = [row_id for (row_id,) in chosen]
    if not ids:
        return 0
    ids = list(dict.fromkeys([*ids, *set_aside_later(connection, ids)]))
    named = {"ids": json.dumps(ids), "now": now}
    connection.execute(
        f"UPDATE attempts SET has_answer = 0 WHERE id IN (SELECT answered_attempt_id FROM samples WHERE {_NAMED})",
        named,
    )
    connection.execute(
        f"""UPDATE samples SET state = 'queued', not_before = :now, answered_attempt_id = NULL, endpoint = NULL,
            finish_reason = NULL, evidence = NULL, usability = NULL, usability_before = NULL, prompt_tokens = NULL,
            output_tokens = NULL, billed_prompt_tokens = NULL, billed_output_tokens = NULL, excess_tokens = NULL,
            plain_excess_tokens = NULL, has_end = 0, offset_tokens = NULL, drift_tokens = NULL, spans = NULL,
            cost_pico = NULL, latency_s = NULL, answered_at = NULL, attempts_excused = attempts,
            attempts_before = attempts WHERE {_NAMED}""",
        named,
    )
    return len(ids) + queue_failed_later(connection, ids, now)
