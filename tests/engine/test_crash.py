"""Kill the engine at any moment: nothing is bought twice unknowingly, nothing is lost, the money agrees."""

import signal
from functools import partial

import pytest

from eagletui.ledger.reader import LedgerReader
from tests.engine.books import assert_books_agree, assert_every_sample_answered_once
from tests.engine.conftest import NewRun
from tests.provider_fixture import StartProvider


def has_answers(answers: int, reader: LedgerReader) -> bool:
    snapshot = reader.snapshot()
    return snapshot.answered >= answers and snapshot.attempts["sent"] >= 3


def test_kills_at_any_moment_leave_every_sample_once_and_books_that_agree(
    new_run: NewRun, start_provider: StartProvider
) -> None:
    provider = start_provider(latency_s=0.05, tokens_per_s=300)
    run = new_run(provider.api_url, 30, max_in_flight=6)
    out_when_killed = 0
    for answers in (0, 7, 16):
        process = run.start()
        run.until(partial(has_answers, answers), f"{answers} answers and requests in flight")
        process.kill()
        process.join()
        left = run.snapshot()
        assert left.spend.books.held_pico > 0
        out_when_killed += left.attempts["sent"]
    assert run.finish() == 0, run.log()
    assert_every_sample_answered_once(run, 30)
    assert_books_agree(run, provider)
    killed = [attempt for attempt in run.attempts() if attempt.error_kind == "engine_died"]
    assert sum(attempt.sent_at is not None for attempt in killed) == out_when_killed
    assert all(attempt.state in ("settled", "void") or attempt.released for attempt in killed)


def test_sigterm_drains_and_the_next_start_goes_on(new_run: NewRun, start_provider: StartProvider) -> None:
    provider = start_provider(latency_s=0.2, tokens_per_s=200)
    run = new_run(provider.api_url, 12, max_in_flight=4)
    process = run.start()
    run.until(lambda reader: reader.snapshot().attempts["sent"] >= 4, "four requests in flight")
    run.signal(process, signal.SIGTERM)
    assert run.wait(process) == 130, run.log()
    after = run.snapshot()
    assert after.run.state == "running"
    assert after.attempts["sent"] == after.attempts["held"] == after.attempts["unsettled"] == 0
    assert 0 < after.answered < 12
    assert after.spend.books.settled_pico == provider.books()["spent_pico"]
    assert run.finish() == 0, run.log()
    assert_every_sample_answered_once(run, 12)
    assert_books_agree(run, provider)


@pytest.mark.slow
def test_a_second_sigterm_breaks_off_and_the_cost_is_found_at_the_next_start(
    new_run: NewRun, start_provider: StartProvider
) -> None:
    provider = start_provider(latency_s=0.1, tokens_per_s=20)
    run = new_run(provider.api_url, 8, max_in_flight=4)
    process = run.start()
    run.until(lambda reader: reader.snapshot().attempts["sent"] >= 4, "four requests in flight")
    run.signal(process, signal.SIGTERM)
    run.until(lambda reader: '"draining": true' in reader.heartbeats()[0].detail_json, "draining")
    run.signal(process, signal.SIGTERM)
    assert run.wait(process, 5.0) == 130, run.log()
    after = run.snapshot()
    assert after.attempts["sent"] == 0
    assert after.attempts["unsettled"] > 0
    assert after.spend.books.unsettled_pico > 0
    assert run.finish() == 0, run.log()
    assert_every_sample_answered_once(run, 8)
    assert_books_agree(run, provider)


@pytest.mark.slow
def test_a_hangup_is_ignored(new_run: NewRun, start_provider: StartProvider) -> None:
    provider = start_provider(latency_s=0.1)
    run = new_run(provider.api_url, 10, max_in_flight=2)
    process = run.start()
    run.until(lambda reader: reader.snapshot().answered >= 1, "an answer")
    run.signal(process, signal.SIGHUP)
    assert run.wait(process) == 0, run.log()


@pytest.mark.slow
def test_two_sigterms_at_once_break_off_too(new_run: NewRun, start_provider: StartProvider) -> None:
    provider = start_provider(latency_s=0.1, tokens_per_s=20)
    run = new_run(provider.api_url, 6, max_in_flight=4)
    process = run.start()
    run.until(lambda reader: reader.snapshot().attempts["sent"] >= 4, "four requests in flight")
    run.signal(process, signal.SIGTERM)
    run.signal(process, signal.SIGTERM)
    assert run.wait(process, 5.0) == 130, run.log()
    assert run.snapshot().attempts["sent"] == 0


def test_nothing_more_is_bought_once_the_ledger_was_moved_away(new_run: NewRun, start_provider: StartProvider) -> None:
    provider = start_provider(latency_s=0.05)
    run = new_run(provider.api_url, 400, max_in_flight=2)
    process = run.start()
    run.until(lambda reader: reader.snapshot().answered >= 2, "answers")
    moved = run.folder.ledger_path.with_name("elsewhere.sqlite")
    run.folder.ledger_path.rename(moved)
    process.join(20)
    assert process.exitcode == 2
    assert "Nothing more is bought" in run.log()
    assert len(provider.books()["rows"]) < 400
