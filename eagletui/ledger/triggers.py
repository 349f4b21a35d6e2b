"""The triggers of a ledger, made from tables: allowed moves, counters and the extraction queue.

Counters are rows that triggers keep, so that a status query over a million samples reads a few dozen rows. Each
`Counter` says which rows of which table add how much under which name; the insert, update and delete triggers follow.

| kind | name | scope | value |
|---|---|---|---|
| state, evidence, usability, finish_reason | the value | dataset | samples |
| samples | resegmented, drifting, truncated | dataset | samples with spans, with drift other than 0, cut by the limit |
| tokens | prompt, output, billed_prompt, billed_output, drift, drift_billed, trainable | dataset | tokens |
| cost | answers | dataset | picodollars of answering attempts |
| attempts | the state | '' | attempts |
| attempts | retries, failures | '' | attempts beyond the first of a sample, attempts with an error |
| money | settled, held, unsettled, unattributed, wasted | '' | picodollars |
| features | samples, rows | dataset | extracted samples, their tokens |
| extract | pending | dataset | samples that wait for features |
| shards | shards, rows, bytes | '' | sealed files |
| endpoint | samples, billed_output, output, drift, drift_billed, cost, truncated | endpoint that answered | |
| endpoint | failures | endpoint asked | attempts with an error |
| endpoint_evidence | the evidence | endpoint that answered | samples |
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from eagletui.core.lifecycle import ATTEMPT_MOVES, RUN_MOVES, SAMPLE_MOVES

TRAINABLE: Final = "('usable', 'resegmented')"
"""Usabilities of the default training set, as SQL."""


@dataclass(frozen=True, slots=True)
class Counter:
    """One figure kept by triggers. `{row}` stands for NEW or OLD."""

    table: str
    """The table whose rows are summed."""
    kind: str
    """First part of the counter's key."""
    name: str
    """SQL expression for the second part."""
    value: str
    """SQL expression of a row's share; NULL counts as nothing."""
    columns: tuple[str, ...]
    """Columns that name and value depend on; changes of others fire nothing. Empty for rows that never change."""
    scope: str = "''"
    """SQL expression for the dataset or endpoint."""
    when: str = "1"
    """SQL condition for a row to count at all."""


_DATASET: Final = "{row}.dataset"
_DATASET_OF_SAMPLE: Final = "(SELECT dataset FROM samples WHERE id = {row}.sample_id)"
_ENDPOINT: Final = "{row}.endpoint"
_ANSWERED_THROUGH: Final = "{row}.endpoint IS NOT NULL AND {row}.answered_attempt_id IS NOT NULL"


def _sample(kind: str, name: str, value: str, *columns: str, when: str = "1") -> Counter:
    return Counter("samples", kind, name, value, columns, _DATASET, when)


def _endpoint(name: str, value: str, *columns: str, when: str = "1") -> Counter:
    columns = ("endpoint", "answered_attempt_id", *columns)
    return Counter("samples", "endpoint", f"'{name}'", value, columns, _ENDPOINT, f"{_ANSWERED_THROUGH} AND {when}")


def _attempt(kind: str, name: str, value: str, *columns: str, when: str = "1") -> Counter:
    return Counter("attempts", kind, name, value, columns, when=when)


COUNTERS: Final = (
    _sample("state", "{row}.state", "1", "state"),
    _sample("evidence", "{row}.evidence", "1", "evidence", when="{row}.evidence IS NOT NULL"),
    _sample("usability", "{row}.usability", "1", "usability", when="{row}.usability IS NOT NULL"),
    _sample("finish_reason", "{row}.finish_reason", "1", "finish_reason", when="{row}.finish_reason IS NOT NULL"),
    _sample("samples", "'resegmented'", "1", "spans", when="{row}.spans > 0"),
    _sample("samples", "'drifting'", "1", "drift_tokens", when="{row}.drift_tokens <> 0"),
    _sample("tokens", "'prompt'", "{row}.prompt_tokens", "prompt_tokens"),
    _sample("tokens", "'output'", "{row}.output_tokens", "output_tokens"),
    _sample("tokens", "'billed_prompt'", "{row}.billed_prompt_tokens", "billed_prompt_tokens"),
    _sample("tokens", "'billed_output'", "{row}.billed_output_tokens", "billed_output_tokens"),
    _sample("tokens", "'drift'", "{row}.drift_tokens", "drift_tokens"),
    _sample(
        "tokens",
        "'drift_billed'",
        "{row}.billed_output_tokens",
        "drift_tokens",
        "billed_output_tokens",
        when="{row}.drift_tokens IS NOT NULL",
    ),
    _sample(
        "tokens",
        "'trainable'",
        "{row}.output_tokens",
        "output_tokens",
        "usability",
        "state",
        when="{row}.state = 'tokenized' AND {row}.usability IN " + TRAINABLE,
    ),
    _sample("cost", "'answers'", "{row}.cost_pico", "cost_pico"),
    _endpoint("samples", "1"),
    _endpoint("billed_output", "{row}.billed_output_tokens", "billed_output_tokens"),
    _endpoint("output", "{row}.output_tokens", "output_tokens"),
    _endpoint("drift", "{row}.drift_tokens", "drift_tokens"),
    _endpoint(
        "drift_billed",
        "{row}.billed_output_tokens",
        "drift_tokens",
        "billed_output_tokens",
        when="{row}.drift_tokens IS NOT NULL",
    ),
    _endpoint("cost", "{row}.cost_pico", "cost_pico"),
    _endpoint("truncated", "1", "finish_reason", when="{row}.finish_reason = 'length'"),
    Counter(
        "samples",
        "endpoint_evidence",
        "{row}.evidence",
        "1",
        ("endpoint", "answered_attempt_id", "evidence"),
        _ENDPOINT,
        f"{_ANSWERED_THROUGH} AND {{row}}.evidence IS NOT NULL",
    ),
    _attempt("attempts", "{row}.state", "1", "state"),
    _attempt("attempts", "'retries'", "1", when="{row}.number > 1"),
    _attempt("attempts", "'failures'", "1", "error_kind", when="{row}.error_kind IS NOT NULL"),
    Counter("attempts", "endpoint", "'failures'", "1", ("error_kind",), _ENDPOINT, "{row}.error_kind IS NOT NULL"),
    _attempt("money", "'settled'", "{row}.cost_pico", "cost_pico"),
    _attempt("money", "'held'", "{row}.hold_pico", "state", when="{row}.state IN ('held', 'sent')"),
    _attempt(
        "money",
        "'unsettled'",
        "{row}.hold_pico",
        "state",
        "released",
        when="{row}.state = 'unsettled' AND {row}.released = 0",
    ),
    _attempt("money", "'wasted'", "{row}.cost_pico", "cost_pico", "has_answer", when="{row}.has_answer = 0"),
    Counter("adjustments", "money", "'unattributed'", "{row}.amount_pico", ()),
    Counter("features", "features", "'samples'", "1", (), _DATASET_OF_SAMPLE),
    Counter("features", "features", "'rows'", "{row}.rows", ("rows",), _DATASET_OF_SAMPLE),
    Counter("to_extract", "extract", "'pending'", "1", (), _DATASET_OF_SAMPLE),
    Counter("shards", "shards", "'shards'", "1", ()),
    Counter("shards", "shards", "'rows'", "{row}.rows", ("rows",)),
    Counter("shards", "shards", "'bytes'", "{row}.bytes", ("bytes",)),
)


def move_rows() -> Iterator[tuple[str, str, str]]:
    """Yield the rows of `moves`: machine, old state, new state; the old state '' stands for a new row."""
    yield "sample", "", "queued"
    yield "attempt", "", "held"
    yield "run", "", "new"
    for sample_old, sample_news in SAMPLE_MOVES.items():
        yield from (("sample", sample_old, new) for new in sample_news)
    for attempt_old, attempt_news in ATTEMPT_MOVES.items():
        yield from (("attempt", attempt_old, new) for new in attempt_news)
    for run_old, run_news in RUN_MOVES.items():
        yield from (("run", run_old, new) for new in run_news)


def trigger_statements() -> Iterator[str]:
    """Yield every CREATE TRIGGER statement of the current ledger version."""
    yield from _move_triggers()
    yield from _guard_triggers()
    yield from _counter_triggers()
    yield from _extract_triggers()


def count_statement(counter: Counter, which: str = "true") -> str:
    """Return the statement that adds a counter's figures over rows, by the expressions that its triggers use.

    Args:
        counter: which.
        which: condition on the rows of its table.
    """
    name, scope, value, when = (
        text.replace("{row}", counter.table) for text in (counter.name, counter.scope, counter.value, counter.when)
    )
    return f"""INSERT INTO counters (kind, name, scope, value)
        SELECT '{counter.kind}', name, scope, sum(value)
        FROM (SELECT {name} AS name, {scope} AS scope, {value} AS value FROM {counter.table} WHERE ({when}) AND {which})
        WHERE value IS NOT NULL GROUP BY name, scope
        ON CONFLICT (kind, name, scope) DO UPDATE SET value = value + excluded.value"""


def _move_triggers() -> Iterator[str]:
    for machine, noun, table in (
        ("sample", "a sample", "samples"),
        ("attempt", "an attempt", "attempts"),
        ("run", "a run", "run"),
    ):
        yield f"""CREATE TRIGGER {table}_first_state BEFORE INSERT ON {table}
            WHEN NOT EXISTS (SELECT 1 FROM moves WHERE machine = '{machine}' AND old_state = ''
                             AND new_state = NEW.state)
            BEGIN SELECT RAISE(ABORT, 'illegal first state of {noun}'); END"""
        yield f"""CREATE TRIGGER {table}_move BEFORE UPDATE OF state ON {table}
            WHEN OLD.state IS NOT NEW.state
             AND NOT EXISTS (SELECT 1 FROM moves WHERE machine = '{machine}' AND old_state = OLD.state
                             AND new_state = NEW.state)
            BEGIN SELECT RAISE(ABORT, 'illegal move of {noun}'); END"""


def _guard_triggers() -> Iterator[str]:
    yield """CREATE TRIGGER attempts_hold_is_fixed BEFORE UPDATE OF hold_pico ON attempts
        WHEN OLD.hold_pico IS NOT NEW.hold_pico
        BEGIN SELECT RAISE(ABORT, 'a hold never changes'); END"""
    yield """CREATE TRIGGER attempts_cost_is_final BEFORE UPDATE OF cost_pico ON attempts
        WHEN OLD.cost_pico IS NOT NULL AND OLD.cost_pico IS NOT NEW.cost_pico
        BEGIN SELECT RAISE(ABORT, 'a settled cost never changes'); END"""
    for action in ("UPDATE", "DELETE"):
        yield f"""CREATE TRIGGER replies_{action.lower()} BEFORE {action} ON replies
            BEGIN SELECT RAISE(ABORT, 'a reply is kept as received'); END"""
        yield f"""CREATE TRIGGER adjustments_{action.lower()} BEFORE {action} ON adjustments
            BEGIN SELECT RAISE(ABORT, 'an adjustment is never changed; book another one'); END"""
    for table in ("attempts", "samples"):
        yield f"""CREATE TRIGGER {table}_stay BEFORE DELETE ON {table}
            BEGIN SELECT RAISE(ABORT, 'rows of {table} are never deleted'); END"""


def _add(counter: Counter, row: str, sign: str) -> str:
    def fill(text: str) -> str:
        return text.replace("{row}", row)

    value = fill(counter.value)
    return f"""INSERT INTO counters (kind, name, scope, value)
        SELECT '{counter.kind}', {fill(counter.name)}, {fill(counter.scope)}, {sign}({value})
        WHERE ({fill(counter.when)}) AND ({value}) IS NOT NULL
        ON CONFLICT (kind, name, scope) DO UPDATE SET value = value + excluded.value;"""


def _counter_triggers() -> Iterator[str]:
    for number, counter in enumerate(COUNTERS):
        label = f"count_{number:02d}_{counter.table}"
        new = _add(counter, "NEW", "+")
        old = _add(counter, "OLD", "-")
        when = counter.when.replace("{row}", "NEW")
        value = counter.value.replace("{row}", "NEW")
        yield f"""CREATE TRIGGER {label}_insert AFTER INSERT ON {counter.table}
            WHEN ({when}) AND ({value}) IS NOT NULL BEGIN {new} END"""
        if counter.table not in ("samples", "attempts", "adjustments"):
            yield f"CREATE TRIGGER {label}_delete AFTER DELETE ON {counter.table} BEGIN {old} END"
        if counter.columns:
            changed = " OR ".join(f"OLD.{column} IS NOT NEW.{column}" for column in counter.columns)
            yield f"""CREATE TRIGGER {label}_update AFTER UPDATE OF {", ".join(counter.columns)} ON {counter.table}
                WHEN {changed} BEGIN {old} {new} END"""


def _extract_triggers() -> Iterator[str]:
    def refresh(sample_id: str) -> str:
        return f"""DELETE FROM to_extract WHERE sample_id = {sample_id};
            INSERT INTO to_extract (sample_id)
                SELECT samples.id FROM samples JOIN tokens ON tokens.sample_id = samples.id
                WHERE samples.id = {sample_id} AND samples.state = 'tokenized'
                  AND samples.usability IN {TRAINABLE} AND tokens.output_ids IS NOT NULL
                  AND NOT EXISTS (SELECT 1 FROM features WHERE features.sample_id = samples.id
                                  AND features.tokens_revision = tokens.revision);"""

    yield f"""CREATE TRIGGER extract_samples AFTER UPDATE OF state, usability ON samples
        WHEN (OLD.state IS NOT NEW.state OR OLD.usability IS NOT NEW.usability)
         AND 'tokenized' IN (OLD.state, NEW.state)
        BEGIN {refresh("NEW.id")} END"""
    yield f"CREATE TRIGGER extract_tokens_insert AFTER INSERT ON tokens BEGIN {refresh('NEW.sample_id')} END"
    yield f"""CREATE TRIGGER extract_tokens_update AFTER UPDATE OF revision ON tokens
        WHEN OLD.revision IS NOT NEW.revision BEGIN {refresh("NEW.sample_id")} END"""
    yield f"CREATE TRIGGER extract_features_insert AFTER INSERT ON features BEGIN {refresh('NEW.sample_id')} END"
    yield f"""CREATE TRIGGER extract_features_update AFTER UPDATE OF tokens_revision ON features
        BEGIN {refresh("NEW.sample_id")} END"""
    yield f"CREATE TRIGGER extract_features_delete AFTER DELETE ON features BEGIN {refresh('OLD.sample_id')} END"
