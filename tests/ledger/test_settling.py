"""Answers are kept byte for byte, money is settled once, and what is late or repeated changes nothing twice."""

from dataclasses import replace
from pathlib import Path

import pytest

from eagletui.core.errors import LedgerError
from eagletui.ledger.orders import Failed, Finished
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.reader_counts import CountsReader
from eagletui.ledger.writer import LedgerWriter
from tests.ledger.build import HOLD, Clock, answer, answered_sample, queue, send, sql, tokens
from tests.ledger.truth import counters


def _fail(writer: LedgerWriter, attempt: int, failed: Failed) -> None:
    writer.finish([Finished(attempt, failed)])


def test_an_answer_replaces_its_hold_by_its_cost(writer: LedgerWriter) -> None:
    queue(writer, "a")
    attempt = send(writer, 1)
    assert writer.books().held_pico == HOLD
    writer.finish([Finished(attempt, answer(123))])
    books = writer.books()
    assert (books.settled_pico, books.held_pico, books.unsettled_pico) == (123, 0, 0)


def test_a_reply_is_kept_byte_for_byte(writer: LedgerWriter, reader: LedgerReader) -> None:
    queue(writer, "a")
    body = b'{"cost": 0.10000000000000000001, "bad": "\xff\xfe", "esc": "\x1b[2J"}\r\n' * 50
    writer.finish([Finished(send(writer, 1), answer(body=body))])
    detail = reader.sample("a")
    assert detail is not None
    assert detail.reply is not None
    assert (detail.reply.body, detail.reply.encoding) == (body, "json")


def test_what_was_billed_and_who_answered_is_on_the_sample(
    writer: LedgerWriter, reader: LedgerReader, clock: Clock
) -> None:
    queue(writer, "a")
    writer.finish([Finished(send(writer, 1), answer(7, endpoint="beta", finish_reason="length", result=tokens()))])
    (row,) = reader.rows([1])
    assert (row.state, row.endpoint, row.finish_reason, row.cost_pico) == ("tokenized", "beta", "length", 7)
    assert (row.billed_prompt_tokens, row.billed_output_tokens, row.latency_s) == (2, 3, 1.5)
    assert (row.prompt_tokens, row.output_tokens, row.evidence, row.usability) == (2, 3, "streamed", "usable")
    assert row.answered_at == clock.now


def test_finishing_twice_is_finishing_once(writer: LedgerWriter, path: Path) -> None:
    queue(writer, *"ab")
    batch = [
        Finished(send(writer, 1), answer(100, result=tokens())),
        Finished(send(writer, 2), Failed("unsettled", "timeout", "no event", retry_at=5.0)),
    ]
    writer.finish(batch)
    before = counters(path)
    writer.finish(batch)
    writer.finish([Finished(1, answer(999, result=tokens((1, 1))))])
    assert counters(path) == before
    assert sql(path, "SELECT count(*) FROM replies") == [(1,)]


def test_one_bad_row_undoes_the_whole_batch(writer: LedgerWriter, path: Path) -> None:
    queue(writer, "a")
    attempt = send(writer, 1)
    with pytest.raises(LedgerError, match="attempt 77 is not in the ledger"):
        writer.finish([Finished(attempt, answer()), Finished(77, answer())])
    assert sql(path, "SELECT state FROM attempts") == [("sent",)]


def test_an_answer_without_a_cost_is_used_and_keeps_its_hold(writer: LedgerWriter, reader: LedgerReader) -> None:
    queue(writer, "a")
    attempt = send(writer, 1)
    writer.finish([Finished(attempt, answer(None, result=tokens()))])
    assert reader.rows([1])[0].state == "tokenized"
    assert writer.books().unsettled_pico == HOLD
    (waiting,) = writer.open_attempts()
    assert (waiting.id, waiting.has_answer) == (attempt, True)
    writer.settle(attempt, 55, billed_output_tokens=9)
    assert (writer.books().settled_pico, writer.books().unsettled_pico) == (55, 0)
    assert (reader.rows([1])[0].cost_pico, writer.open_attempts()) == (55, [])


def test_a_cost_that_comes_with_a_second_report_settles_the_first(writer: LedgerWriter, reader: LedgerReader) -> None:
    queue(writer, *"ab")
    answered, failed = send(writer, 1), send(writer, 2)
    writer.finish([Finished(answered, answer(None, result=tokens()))])
    writer.recover()
    writer.finish(
        [
            Finished(answered, answer(40, result=tokens())),
            Finished(failed, Failed("settled", "mid_stream", "cut", cost_pico=30, retry_at=1.0)),
        ]
    )
    assert (writer.books().settled_pico, writer.books().unsettled_pico) == (70, 0)
    assert reader.rows([1])[0].cost_pico == 40


@pytest.mark.parametrize(("state", "cost"), [("settled", None), ("void", 5), ("unsettled", 0)])
def test_a_failure_whose_state_and_cost_contradict_each_other_cannot_be_made(state: str, cost: int | None) -> None:
    with pytest.raises(ValueError, match="cannot cost"):
        Failed(state, "http_500", "boom", cost_pico=cost)  # type: ignore[arg-type]


def test_settling_twice_is_settling_once(writer: LedgerWriter) -> None:
    queue(writer, "a")
    attempt = send(writer, 1)
    writer.settle(attempt, 40)
    writer.settle(attempt, 70)
    assert writer.books().settled_pico == 40


def test_a_failure_before_the_stream_releases_the_hold_and_queues_the_sample(
    writer: LedgerWriter, path: Path, clock: Clock
) -> None:
    queue(writer, "a")
    attempt = send(writer, 1)
    _fail(writer, attempt, Failed("void", "http_429", "slow down", http_status=429, retry_at=clock.now + 3))
    assert writer.books().committed_pico == 0
    assert sql(path, "SELECT state, not_before FROM samples") == [("queued", clock.now + 3)]
    assert sql(path, "SELECT state, http_status, error_kind, error_detail FROM attempts") == [
        ("void", 429, "http_429", "slow down")
    ]


def test_a_disconnect_keeps_the_hold_until_the_cost_is_known(writer: LedgerWriter) -> None:
    queue(writer, "a")
    attempt = send(writer, 1)
    _fail(writer, attempt, Failed("unsettled", "disconnected", "gone", retry_at=1.0, generation_id="gen-9"))
    assert writer.books().unsettled_pico == HOLD
    assert writer.open_attempts()[0].generation_id == "gen-9"
    writer.settle(attempt, 20)
    assert writer.books().committed_pico == 20


def test_what_arrived_of_a_failed_answer_is_kept_and_its_cost_counts_as_wasted(
    writer: LedgerWriter, reader: LedgerReader
) -> None:
    queue(writer, "a")
    attempt = send(writer, 1)
    _fail(writer, attempt, Failed("settled", "mid_stream", "cut", cost_pico=30, body=b"data: {}", encoding="sse"))
    detail = reader.sample("a")
    assert detail is not None
    assert detail.reply is not None
    assert (detail.reply.body, detail.reply.encoding) == (b"data: {}", "sse")
    assert reader.snapshot().spend.wasted_pico == 30


@pytest.mark.parametrize(("refused", "state"), [(False, "failed"), (True, "refused")])
def test_a_sample_that_is_given_up_says_why(
    writer: LedgerWriter, reader: LedgerReader, refused: bool, state: str
) -> None:
    queue(writer, "a")
    attempt = send(writer, 1)
    _fail(writer, attempt, Failed("void", "context_length", "too long", http_status=400, refused=refused))
    (row,) = reader.rows([1])
    assert (row.state, row.failure_kind, row.failure_detail) == (state, "context_length", "too long")


def test_a_cost_above_the_hold_is_booked_and_the_row_is_named(writer: LedgerWriter) -> None:
    queue(writer, *"ab")
    (overrun,) = writer.finish([Finished(send(writer, 1), answer(HOLD + 5))])
    assert (overrun.sample_key, overrun.endpoint) == ("a", "alpha")
    assert (overrun.charge.hold_pico, overrun.charge.cost_pico) == (HOLD, HOLD + 5)
    with CountsReader(writer.path) as reader:
        assert reader.overruns() == [overrun]
    assert writer.books().settled_pico == HOLD + 5
    second = send(writer, 2)
    assert writer.settle(second, HOLD) == []


def test_a_request_refused_after_all_cannot_become_free_once_it_was_perhaps_billed(writer: LedgerWriter) -> None:
    queue(writer, "a")
    attempt = send(writer, 1)
    _fail(writer, attempt, Failed("unsettled", "timeout", "no event", retry_at=1.0))
    with pytest.raises(LedgerError, match="illegal move of an attempt"):
        writer.void(attempt)
    assert writer.books().unsettled_pico == HOLD


def test_a_void_attempt_cannot_be_settled(writer: LedgerWriter) -> None:
    queue(writer, "a")
    attempt = send(writer, 1)
    writer.void(attempt)
    writer.void(attempt)
    with pytest.raises(LedgerError, match="illegal move"):
        writer.settle(attempt, 5)
    assert writer.books().committed_pico == 0


def test_an_answer_that_arrives_after_a_restart_is_used_if_the_sample_still_waits(
    writer: LedgerWriter, reader: LedgerReader
) -> None:
    queue(writer, "a")
    attempt = send(writer, 1)
    writer.recover()
    writer.finish([Finished(attempt, answer(50, result=tokens()))])
    (row,) = reader.rows([1])
    assert (row.state, row.cost_pico, row.attempts) == ("tokenized", 50, 1)
    assert writer.books().committed_pico == 50
    assert writer.claim(5) == []


def test_an_answer_that_arrives_after_the_sample_was_given_up_is_used(
    writer: LedgerWriter, reader: LedgerReader
) -> None:
    queue(writer, "a")
    first = send(writer, 1)
    _fail(writer, first, Failed("unsettled", "timeout", "no event", retry_at=1.0))
    _fail(writer, send(writer, 1), Failed("void", "http_400", "no"))
    assert reader.rows([1])[0].state == "failed"
    writer.finish([Finished(first, answer(50, result=tokens()))])
    (row,) = reader.rows([1])
    assert (row.state, row.failure_kind) == ("tokenized", None)


def test_a_second_answer_to_the_same_sample_is_kept_paid_and_not_used(
    writer: LedgerWriter, reader: LedgerReader, path: Path
) -> None:
    queue(writer, "a")
    first = send(writer, 1)
    writer.recover()
    second = send(writer, 1)
    writer.finish([Finished(second, answer(60, body=b"second", result=tokens((1, 2))))])
    writer.finish([Finished(first, answer(50, body=b"first", result=tokens((3, 4))))])
    detail = reader.sample("a")
    assert detail is not None
    assert detail.reply is not None
    assert detail.tokens is not None
    assert detail.tokens.output_ids is not None
    assert (detail.reply.body, list(detail.tokens.output_ids)) == (b"second", [1, 2])
    assert sql(path, "SELECT count(*) FROM replies") == [(2,)]
    assert writer.books().settled_pico == 110
    assert reader.snapshot().spend.wasted_pico == 50


def test_money_without_a_generation_id_is_booked_in_sum_and_releases_its_holds(
    writer: LedgerWriter, reader: LedgerReader
) -> None:
    queue(writer, *"abc")
    attempts = [send(writer, sample) for sample in (1, 2, 3)]
    for attempt in attempts:
        _fail(writer, attempt, Failed("unsettled", "disconnected", "gone", retry_at=1.0))
    writer.finding("unsettled", "3 attempts have no known cost.", affected=3, examined=3, action="Start again.")
    assert writer.adjust_unattributed(700, attempts[:2], "The key shows 700 more.") == 2
    books = writer.books()
    assert (books.unattributed_pico, books.unsettled_pico, books.spent_pico) == (700, HOLD, 700)
    assert [waiting.id for waiting in writer.open_attempts()] == attempts[2:]
    assert writer.adjust_unattributed(0, attempts[:2], "again") == 0
    (booked,) = reader.adjustments()
    assert (booked.amount_pico, booked.attempts, booked.detail) == (700, 2, "The key shows 700 more.")
    assert [event.message for event in reader.last_events(9)] == [booked.detail], "the log says it once"
    assert [finding.closed_at for finding in reader.findings()] == [writer.now()]


def test_a_covered_attempt_that_settles_after_all_is_not_counted_twice(
    writer: LedgerWriter, reader: LedgerReader
) -> None:
    queue(writer, "a")
    attempt = send(writer, 1)
    _fail(writer, attempt, Failed("unsettled", "disconnected", "gone", retry_at=1.0))
    writer.adjust_unattributed(300, [attempt], "The key shows 300 more.")
    writer.settle(attempt, 120)
    books = writer.books()
    assert (books.settled_pico, books.unattributed_pico, books.spent_pico) == (120, 180, 300)
    assert [booked.amount_pico for booked in reader.adjustments()] == [300, -120]


def test_ids_may_come_later_than_the_answer(writer: LedgerWriter, reader: LedgerReader) -> None:
    queue(writer, "a")
    writer.finish([Finished(send(writer, 1), answer())])
    assert reader.rows([1])[0].state == "answered"
    assert writer.store_tokens(1, tokens((4, 5))) is True
    assert reader.rows([1])[0].state == "tokenized"


def test_a_rebuild_grows_the_revision_only_where_ids_change(writer: LedgerWriter, reader: LedgerReader) -> None:
    queue(writer, "a")
    answered_sample(writer, 1)

    def revision() -> int:
        detail = reader.sample("a")
        assert detail is not None
        assert detail.tokens is not None
        return detail.tokens.revision

    assert revision() == 1
    assert writer.store_tokens(1, tokens((5, 6, 7), evidence="logprobs")) is False
    assert revision() == 1
    assert reader.rows([1])[0].evidence == "logprobs"
    assert writer.store_tokens(1, tokens((5, 6, 8))) is True
    assert revision() == 2


def test_ids_of_a_sample_without_an_answer_are_refused(writer: LedgerWriter) -> None:
    queue(writer, "a")
    with pytest.raises(LedgerError, match="sample 1 has no answer"):
        writer.store_tokens(1, tokens())


def test_a_lone_surrogate_in_the_raw_text_survives(writer: LedgerWriter, reader: LedgerReader) -> None:
    queue(writer, "a")
    answered_sample(writer, 1)
    writer.store_tokens(1, replace(tokens(), raw="half \ud83d of an emoji"))
    detail = reader.sample("a")
    assert detail is not None
    assert detail.tokens is not None
    assert detail.tokens.raw == "half \ud83d of an emoji"


def test_an_answer_found_after_its_cost_was_learned_is_kept_and_not_bought_again(
    writer: LedgerWriter, reader: LedgerReader, path: Path
) -> None:
    queue(writer, "a")
    attempt_id = send(writer, 1)
    writer.mark_headers(attempt_id, "gen-1", 200)
    writer.recover()
    writer.settle(attempt_id, 70)
    writer.finish([Finished(attempt_id, answer(70, result=tokens()))])
    (row,) = reader.rows([1])
    assert (row.state, row.cost_pico) == ("tokenized", 70)
    assert writer.books().settled_pico == 70
    writer.finish([Finished(attempt_id, answer(70, result=tokens((9,))))])
    assert sql(path, "SELECT count(*), max(revision) FROM tokens") == [(1, 1)]


def test_an_id_that_only_a_body_names_is_kept_for_an_attempt_that_a_restart_found_first(writer: LedgerWriter) -> None:
    queue(writer, "a")
    attempt = send(writer, 1)
    writer.recover()
    cut = Failed("unsettled", "body_cut", "x", retry_at=0.0, generation_id="gen-1", body=b"data: {}", encoding="sse")
    _fail(writer, attempt, cut)
    (left,) = writer.open_attempts()
    assert left.generation_id == "gen-1"
