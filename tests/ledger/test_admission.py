"""Money is reserved before a request is sent, within the cap, in one transaction."""

from pathlib import Path
from threading import Thread

import pytest

from eagletui.core.errors import LedgerError
from eagletui.ledger.orders import AdmitRequest, Failed, Finished
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.writer import LedgerWriter
from tests.ledger.build import CAP, HOLD, Clock, answer, answered_sample, queue, send, sql


def _verdicts(writer: LedgerWriter, *holds: int) -> list[str]:
    queued = writer.claim(len(holds))
    requests = [AdmitRequest(sample.id, "alpha", hold, True) for sample, hold in zip(queued, holds, strict=True)]
    return [admission.verdict for admission in writer.admit(requests)]


def test_requests_are_admitted_up_to_the_cap_to_the_picodollar(writer: LedgerWriter) -> None:
    queue(writer, *"abcd")
    assert _verdicts(writer, CAP - 10, 11, 10, 0) == ["admit", "wait", "admit", "admit"]
    assert writer.books().committed_pico == CAP


def test_an_admitted_sample_is_in_flight_with_its_hold(writer: LedgerWriter, reader: LedgerReader) -> None:
    queue(writer, "a")
    (admission,) = writer.admit([AdmitRequest(1, "alpha", HOLD, streamed=True)])
    detail = reader.sample("a")
    assert detail is not None
    assert (detail.row.state, detail.row.attempts) == ("in_flight", 1)
    (attempt,) = detail.attempts
    assert (attempt.id, attempt.number, attempt.state) == (admission.attempt_id, 1, "held")
    assert (attempt.hold_pico, attempt.endpoint, attempt.streamed, attempt.cost_pico) == (HOLD, "alpha", 1, None)


def test_a_request_that_could_never_fit_is_told_from_one_that_must_wait(writer: LedgerWriter) -> None:
    queue(writer, *"abc")
    assert _verdicts(writer, CAP, 1, CAP + 1) == ["admit", "wait", "cap"]


def test_nothing_is_admitted_once_stop_at_is_spent(writer: LedgerWriter) -> None:
    queue(writer, *"ab")
    answered_sample(writer, 1, cost=HOLD)
    writer.set_stop_at(HOLD)
    assert _verdicts(writer, 0) == ["stop_at"]
    writer.set_stop_at(HOLD + 1)
    assert _verdicts(writer, 0) == ["admit"]


@pytest.mark.parametrize("state", ["new", "paused", "draining"])
def test_nothing_is_admitted_unless_the_run_is_running(writer: LedgerWriter, path: Path, state: str) -> None:
    queue(writer, "a", start=False)
    if state == "paused":
        writer.set_run_state("running")
        writer.set_run_state("paused", "user", "Paused by you.")
    if state == "draining":
        writer.set_run_state("running")
        writer.set_run_state("draining")
    assert _verdicts(writer, 0) == ["not_running"]
    assert sql(path, "SELECT count(*) FROM attempts") == [(0,)]


def test_a_sample_cannot_be_admitted_twice(writer: LedgerWriter) -> None:
    queue(writer, "a")
    request = AdmitRequest(1, "alpha", HOLD, True)
    assert [admission.verdict for admission in writer.admit([request, request])] == ["admit", "not_queued"]
    assert [admission.verdict for admission in writer.admit([request])] == ["not_queued"]
    assert writer.books().held_pico == HOLD


def test_due_retries_come_first_and_others_wait_for_their_time(writer: LedgerWriter, clock: Clock) -> None:
    queue(writer, *"abc")
    for sample, delay in ((1, 30.0), (2, 10.0)):
        failed = Failed("void", "http_429", "slow down", http_status=429, retry_at=clock.now + delay)
        writer.finish([Finished(send(writer, sample), failed)])
    assert [sample.key for sample in writer.claim(9)] == ["c"]
    assert writer.next_due_at() == 0.0
    clock.now += 10
    assert [sample.key for sample in writer.claim(9)] == ["b", "c"]
    clock.now += 20
    assert [sample.key for sample in writer.claim(9)] == ["b", "a", "c"]
    assert [sample.key for sample in writer.claim(2)] == ["b", "a"]


def test_the_next_due_time_tells_an_empty_queue_from_one_that_waits(writer: LedgerWriter, clock: Clock) -> None:
    assert writer.next_due_at() is None
    queue(writer, "a")
    retry_at = clock.now + 5
    writer.finish([Finished(send(writer, 1), Failed("void", "http_429", "slow down", retry_at=retry_at))])
    assert writer.next_due_at() == retry_at


def test_headers_and_the_generation_id_are_kept_before_the_body(writer: LedgerWriter, path: Path) -> None:
    queue(writer, "a")
    attempt = send(writer, 1)
    writer.mark_headers(attempt, "gen-77", 200)
    assert sql(path, "SELECT generation_id, http_status, state FROM attempts") == [("gen-77", 200, "sent")]


def test_marking_sent_twice_is_marking_once(writer: LedgerWriter, path: Path, clock: Clock) -> None:
    queue(writer, "a")
    attempt = send(writer, 1)
    first = sql(path, "SELECT sent_at FROM attempts")
    clock.now += 5
    writer.mark_sent([attempt])
    assert sql(path, "SELECT sent_at FROM attempts") == first


def test_recovery_voids_what_was_never_sent_and_keeps_the_holds_of_what_was(writer: LedgerWriter, path: Path) -> None:
    queue(writer, *"abc")
    send(writer, 1)
    writer.mark_headers(1, "gen-1", 200)
    writer.admit([AdmitRequest(2, "alpha", 300, True)])
    found = writer.recover()
    assert (found.voided, found.unsettled, found.requeued) == (1, 1, 2)
    books = writer.books()
    assert (books.held_pico, books.unsettled_pico) == (0, HOLD)
    assert sql(path, "SELECT state, generation_id FROM attempts ORDER BY id") == [
        ("unsettled", "gen-1"),
        ("void", None),
    ]
    assert [sample.key for sample in writer.claim(9)] == ["a", "b", "c"]
    (attempt,) = writer.open_attempts()
    assert (attempt.sample_key, attempt.generation_id, attempt.hold_pico) == ("a", "gen-1", HOLD)


def test_a_retry_is_a_new_attempt_with_the_next_number(writer: LedgerWriter, path: Path, clock: Clock) -> None:
    queue(writer, "a")
    writer.finish([Finished(send(writer, 1), Failed("unsettled", "timeout", "no event", retry_at=clock.now))])
    writer.finish([Finished(send(writer, 1), answer())])
    assert sql(path, "SELECT number, state FROM attempts ORDER BY id") == [(1, "unsettled"), (2, "settled")]


def test_retries_follow_a_clock_that_was_set_back(writer: LedgerWriter, clock: Clock) -> None:
    queue(writer, "a", "b", "c")
    for sample, wait_s in ((1, 40.0), (2, 0.0)):
        failed = Failed("unsettled", "timeout", "no event", retry_at=clock.now + wait_s)
        writer.finish([Finished(send(writer, sample), failed)])
    clock.now -= 10_000
    assert [sample.key for sample in writer.claim(9)] == ["c"]
    assert writer.bring_retries_forward(10_000) == 2
    assert {sample.key for sample in writer.claim(9)} == {"b", "c"}
    clock.now += 41
    assert {sample.key for sample in writer.claim(9)} == {"a", "b", "c"}


def test_no_retry_waits_for_hours_after_a_restart_on_another_clock(writer: LedgerWriter, clock: Clock) -> None:
    queue(writer, "a")
    writer.finish([Finished(send(writer, 1), Failed("unsettled", "timeout", "x", retry_at=clock.now + 60))])
    clock.now -= 86_400
    writer.recover()
    due_at = writer.next_due_at()
    assert due_at is not None
    assert clock.now < due_at <= clock.now + 3_660


def test_samples_that_wait_for_an_endpoint_stay_queued_and_are_claimed_only_once_they_may(
    writer: LedgerWriter, clock: Clock
) -> None:
    queue(writer, "a", "b", "c")
    writer.finish([Finished(send(writer, 1), Failed("void", "overloaded", "later", retry_at=clock.now + 5))])
    assert writer.park({("x",): [1], ("x", "y"): [2]}) == {("x",): 1, ("x", "y"): 1}
    assert writer.park({("y",): [2]}) == {("y",): 0}
    assert writer.parked() == {("x",): 1, ("x", "y"): 1}
    clock.now -= 10_000
    writer.bring_retries_forward(10_000)
    writer.recover()
    assert [sample.key for sample in writer.claim(9)] == ["c"]
    send(writer, 3)
    assert (writer.next_due_at(), writer.has_queued()) == (None, True)
    assert writer.unpark(("y",), 9) == 0, "none waits for it alone"
    assert [writer.unpark(("x", "y"), 9), writer.unpark(None, 1), writer.unpark(None, 9)] == [1, 1, 0]
    clock.now += 20_000
    assert [(sample.key, sample.attempts) for sample in writer.claim(9)] == [("a", 1), ("b", 0)]


def test_two_threads_share_one_writer_without_mixing_their_transactions(writer: LedgerWriter) -> None:
    queue(writer, *(f"k{n}" for n in range(40)))
    failures: list[BaseException] = []

    def work(samples: range) -> None:
        try:
            for sample in samples:
                answered_sample(writer, sample, cost=1)
        except BaseException as error:
            failures.append(error)
            raise

    threads = [Thread(target=work, args=(samples,)) for samples in (range(1, 21), range(21, 41))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert writer.books().settled_pico == 40


def test_reserving_money_inside_a_transaction_that_is_not_durable_is_refused(writer: LedgerWriter) -> None:
    queue(writer, "a")
    with pytest.raises(LedgerError, match="not durable"), writer.transaction():
        writer.admit([AdmitRequest(1, "alpha", HOLD, True)])
    assert writer.books().held_pico == 0


def test_a_reservation_is_flushed_to_disk_and_bulk_rows_are_not(writer: LedgerWriter) -> None:
    queue(writer, "a")

    def level() -> int:
        return int(writer._transactions.connection.execute("PRAGMA synchronous").fetchone()[0])

    writer.admit([AdmitRequest(1, "alpha", HOLD, True)])
    assert level() == 2, "FULL"
    writer.event("info", "engine", "admitted", "One request.")
    assert level() == 1, "NORMAL"


def test_a_sample_that_is_sent_waits_for_no_endpoint(writer: LedgerWriter) -> None:
    queue(writer, "a")
    writer.park({("x",): [1]})
    writer.finish([Finished(send(writer, 1), Failed("void", "server_error", "no", retry_at=1.0))])
    assert not writer.parked()
    assert [sample.key for sample in writer.claim(1)] == ["a"]
