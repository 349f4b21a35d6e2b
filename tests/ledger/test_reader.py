"""What viewers read: pages by key, one sample in full, the attention list, the views for people's own SQL."""

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from threading import Timer
from typing import Any

import pytest

from eagletui.core.errors import LedgerError
from eagletui.core.tokdiff import Span
from eagletui.ledger.filters import FAILED, UNPROVED, Compared, Excluded, SampleFilter, Sort
from eagletui.ledger.orders import Failed, Finished
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.reader_samples import page_end
from eagletui.ledger.rows import SampleRow
from eagletui.ledger.writer import LedgerWriter
from tests.ledger.build import Clock, answer, make_ledger, queue, send, sql, tokens

SPAN = Span(4, 2, (5,), (6, 7), "~")

KEYS: dict[Sort, Callable[[SampleRow], Any]] = {
    "id": lambda row: row.id,
    "drift": lambda row: None if row.drift_tokens is None else abs(row.drift_tokens),
    "cost": lambda row: row.cost_pico,
    "output": lambda row: row.output_tokens,
    "latency": lambda row: row.latency_s,
}


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger of 90 samples in two data sets, of every kind."""
    path = make_ledger(tmp_path_factory.mktemp("mixed") / "ledger.sqlite", stop_at=10**9, cap=10**9)
    random = Random(5)
    with LedgerWriter(path, Clock()) as writer:
        queue(writer, *(f"p{n:02d}" for n in range(50)), dataset="prose")
        queue(writer, *(f"c{n:02d}" for n in range(40)), dataset="code_100%")
        for sample in range(1, 81):
            attempt = send(writer, sample, endpoint="alpha")
            if sample % 9 == 0:
                outcome: Any = Failed("void", "http_400", "too long", refused=sample % 2 == 0)
            else:
                evidence = random.choice(["logprobs", "streamed", "counted", "conflict"])
                result = replace(
                    tokens(tuple(range(random.randint(1, 9))), evidence=evidence),
                    drift=random.choice([None, 0, 0, 2, -2, 7]),
                    spans=random.choice([(), (SPAN,), (SPAN, SPAN)]),
                    usability=random.choice(["usable", "resegmented", "unusable"]),
                )
                outcome = answer(
                    random.choice([None, 5, 5, 80]),
                    endpoint=random.choice(["alpha", "beta"]),
                    result=result if random.random() < 0.9 else None,
                    finish_reason=random.choice(["stop", "length"]),
                    latency_s=random.choice([0.5, 1.5, 2.5]),
                )
            writer.finish([Finished(attempt, outcome)])
    return path


CASES: dict[str, tuple[SampleFilter, Callable[[SampleRow], bool]]] = {
    "all": (SampleFilter(), lambda row: True),
    "tokenized": (SampleFilter(states=("tokenized",)), lambda row: row.state == "tokenized"),
    "failed": (SampleFilter(states=FAILED), lambda row: row.state in ("failed", "refused")),
    "unproved": (SampleFilter(evidence=UNPROVED), lambda row: row.evidence in ("counted", "conflict")),
    "two data sets": (SampleFilter(datasets=("prose", "code_100%")), lambda row: True),
    "several columns": (
        SampleFilter(datasets=("prose",), endpoints=("beta",), finish_reasons=("stop", "length")),
        lambda row: row.dataset == "prose" and row.endpoint == "beta",
    ),
    "one value twice": (SampleFilter(usability=("usable", "usable")), lambda row: row.usability == "usable"),
    "mismatched": (SampleFilter(preset="mismatched"), lambda row: bool(row.spans)),
    "drifting": (SampleFilter(preset="drifting"), lambda row: bool(row.drift_tokens)),
    "waiting": (
        SampleFilter(preset="waiting"),
        lambda row: row.state == "tokenized" and row.usability in ("usable", "resegmented"),
    ),
    "text": (SampleFilter(text="P0"), lambda row: row.sample_key.startswith("p0")),
    "by drift": (SampleFilter(sort="drift"), lambda row: True),
    "figures": (
        SampleFilter(compared=(Compared("spans", ">=", 1), Compared("output", ">", 0), Compared("attempts", "!=", 7))),
        lambda row: bool(row.spans) and bool(row.output_tokens) and row.attempts != 7,
    ),
    "dear or slow": (
        SampleFilter(compared=(Compared("cost", ">", 1), Compared("latency", "<=", 1e6), Compared("drift", ">=", 0))),
        lambda row: (row.cost_pico or 0) > 1 and row.latency_s is not None and row.drift_tokens is not None,
    ),
    "excluded": (
        SampleFilter(excluded=(Excluded("dataset", "prose"), Excluded("finish_reason", "stop"))),
        lambda row: row.dataset != "prose" and row.finish_reason != "stop",
    ),
    "answered by cost": (
        SampleFilter(sort="cost", states=("answered", "tokenized")),
        lambda row: row.state in ("answered", "tokenized"),
    ),
    "by output": (SampleFilter(sort="output"), lambda row: True),
    "two kinds by latency": (
        SampleFilter(sort="latency", evidence=("streamed", "counted")),
        lambda row: row.evidence in ("streamed", "counted"),
    ),
}


@pytest.mark.parametrize("limit", [1, 7, 1000])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_pages_joined_are_the_whole_list_in_order(mixed: Path, case: str, reverse: bool, limit: int) -> None:
    wanted, keep = CASES[case]
    wanted = replace(wanted, reverse=reverse)
    key = KEYS[wanted.sort]
    with LedgerReader(mixed) as reader:
        everything = reader.rows(range(1, 200))
        expected = [row for row in everything if keep(row) and key(row) is not None]
        expected.sort(key=lambda row: (key(row), row.id), reverse=reverse)
        assert expected, "the case proves something"
        paged: list[SampleRow] = []
        while page := reader.page(wanted, page_end(paged[-1], wanted) if paged else None, limit):
            paged += page
        assert paged == expected
        assert list(reader.sample_ids(wanted)) == [row.id for row in expected]


def test_signs_that_sql_takes_for_patterns_are_plain_text(mixed: Path) -> None:
    with LedgerReader(mixed) as reader:
        assert reader.page(SampleFilter(text="%"), None, 9) == []
        assert reader.page(SampleFilter(text="p_0"), None, 9) == []
        assert reader.page(SampleFilter(text="' OR 1=1 --"), None, 9) == []


def test_rows_come_in_the_order_asked_and_unknown_ids_are_left_out(mixed: Path) -> None:
    with LedgerReader(mixed) as reader:
        assert [row.id for row in reader.rows([5, 1, 999, 3, 5])] == [5, 1, 3, 5]
        assert len(reader.rows(range(1, 2000))) == 90


def test_an_unknown_sample_is_none_and_near_keys_are_found(mixed: Path) -> None:
    with LedgerReader(mixed) as reader:
        assert reader.sample("p") is None
        assert reader.keys_like("p0", 3) == ["p00", "p01", "p02"]


def test_a_sample_comes_with_its_attempts_reply_ids_and_spans(writer: LedgerWriter, reader: LedgerReader) -> None:
    queue(writer, "a")
    writer.finish([Finished(send(writer, 1), Failed("void", "http_500", "boom", retry_at=1.0))])
    result = replace(tokens((5, 9), drift=2), spans=(SPAN,), reason="One span differs.", tail_trimmed=True)
    writer.finish([Finished(send(writer, 1, endpoint="beta"), answer(7, result=result))])
    detail = reader.sample("a")
    assert detail is not None
    assert [(attempt.number, attempt.state, attempt.endpoint) for attempt in detail.attempts] == [
        (1, "void", "alpha"),
        (2, "settled", "beta"),
    ]
    assert detail.tokens is not None
    assert detail.tokens.spans == (SPAN,)
    assert (detail.tokens.reason, detail.tokens.tail_trimmed) == ("One span differs.", True)
    assert detail.prompt.messages[0].content == "Tell me about a"
    assert detail.row.preview == "Tell me about a"


def test_the_attention_list_puts_findings_first_then_failures_then_drift_then_mismatches(
    writer: LedgerWriter, reader: LedgerReader
) -> None:
    queue(writer, *"abcd")
    writer.finish([Finished(send(writer, 1), answer(result=tokens(drift=3)))])
    writer.finish([Finished(send(writer, 2), answer(result=tokens(drift=-38)))])
    writer.finish([Finished(send(writer, 3), answer(result=replace(tokens(), spans=(SPAN,))))])
    writer.finish([Finished(send(writer, 4), Failed("void", "http_400", "context_length_exceeded"))])
    writer.finding("drift", "alpha drifts.", affected=2, examined=4, action="Quarantine alpha.", endpoint="alpha")
    assert [(item.kind, item.sample_key, item.text) for item in reader.attention()] == [
        ("finding", None, "alpha drifts."),
        ("failed", "d", "http_400: context_length_exceeded"),
        ("drift", "b", "-38 tokens billed against counted"),
        ("drift", "a", "+3 tokens billed against counted"),
        ("mismatch", "c", "re-encoding differs in 1 span"),
    ]
    assert len(reader.attention(2)) == 2


def test_a_long_query_can_be_ended_from_another_thread(mixed: Path) -> None:
    with LedgerReader(mixed) as reader:
        endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
        timer = Timer(0.05, reader.interrupt)
        timer.start()
        with pytest.raises(LedgerError, match="interrupted"), reader._transactions.reading() as connection:
            connection.execute(endless).fetchall()
        timer.join()
        assert reader.run().state == "running", "the next query works"


def test_a_run_has_the_name_of_its_folder_so_that_commands_find_one_that_was_renamed(path: Path) -> None:
    renamed = path.parent.rename(path.parent.parent / "renamed")
    with LedgerReader(renamed / path.name) as reader:
        assert (reader.run().name, reader.snapshot().run.name) == ("renamed", "renamed")


def test_a_damaged_blob_names_itself_instead_of_crashing(
    writer: LedgerWriter, reader: LedgerReader, path: Path
) -> None:
    queue(writer, "a")
    writer.finish([Finished(send(writer, 1), answer(result=tokens()))])
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("UPDATE tokens SET output_ids = x'00112233'")
    connection.close()
    with pytest.raises(LedgerError, match="blob of the ledger is damaged"):
        reader.sample("a")


def test_the_views_say_the_same_as_the_tables(mixed: Path) -> None:
    ((samples, answered, cost),) = sql(
        mixed, "SELECT count(*), count(answered_at_utc), round(sum(cost_usd) * 1e12) FROM v_samples"
    )
    assert (samples, answered) == (90, 72)
    ((settled, held, unsettled, settled_usd),) = sql(mixed, "SELECT settled, held, unsettled, settled_usd FROM v_spend")
    assert (cost, settled_usd) == (settled, settled / 1e12)
    assert (settled, held, unsettled) == sql(
        mixed, "SELECT sum(cost_pico), 0, sum(hold_pico) FILTER (WHERE state = 'unsettled') FROM attempts"
    )[0]
    assert sql(mixed, "SELECT endpoint, samples, drift_tokens FROM v_drift ORDER BY endpoint") == sql(
        mixed,
        "SELECT endpoint, count(*), coalesce(sum(drift_tokens), 0) FROM samples WHERE endpoint IS NOT NULL"
        " GROUP BY 1 ORDER BY 1",
    )


@pytest.mark.parametrize("sort", KEYS)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("states", [(), ("tokenized",)])
def test_a_search_in_parts_finds_what_one_read_finds_in_the_same_order(
    mixed: Path, sort: Sort, reverse: bool, states: tuple[str, ...]
) -> None:
    wanted = SampleFilter(text="P", sort=sort, reverse=reverse, states=states)
    with LedgerReader(mixed) as reader:
        found: list[int] = []
        end = None
        while True:
            part = reader.search(wanted, end, 7)
            found += part.ids
            end = part.end
            if end is None:
                break
        assert found == list(reader.sample_ids(wanted))
        assert found


def test_a_search_through_nothing_ends_at_once(tmp_path: Path) -> None:
    with LedgerReader(make_ledger(tmp_path / "ledger.sqlite", stop_at=1, cap=1)) as reader:
        part = reader.search(SampleFilter(text="x"), None, 10)
        assert (list(part.ids), part.end) == ([], None)
