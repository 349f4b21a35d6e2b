"""The cap is never passed, stop-at ends admission, and a raised number lets the run go on by itself."""

from eagletui.ledger.writer import LedgerWriter
from tests.engine.books import assert_books_agree, assert_every_sample_answered_once
from tests.engine.conftest import NewRun
from tests.engine.run_folder import EngineRun
from tests.provider_fixture import StartProvider


def committed_never_passed(run: EngineRun, cap_pico: int) -> None:
    with run.reader() as reader:
        assert all(tick.settled_pico + tick.held_pico <= cap_pico for tick in reader.ticks(0))


def test_the_cap_pauses_the_run_and_a_raised_cap_finishes_it(new_run: NewRun, start_provider: StartProvider) -> None:
    provider = start_provider(latency_s=0.02)
    run = new_run(provider.api_url, 30, cap_usd="0.0015", stop_at_usd="0.0015")
    process = run.start()
    run.until_state("paused", "cap")
    snapshot = run.snapshot()
    assert "ctl RUN cap" in (snapshot.run.pause_detail or "")
    assert snapshot.answered < 30
    assert provider.books()["spent_pico"] <= 1_500_000_000
    committed_never_passed(run, 1_500_000_000)
    raised = run.order("stop-at", usd="1.00")
    assert "The cap, $0.0015, comes first" in (raised.result or "")
    assert run.state() == ("paused", "cap")
    run.order("stop-at", usd="0.0001")
    raised = run.order("cap", usd="1.00")
    assert raised.changed == 1
    assert "Stop-at, $0.0001, is reached as well: to go on, raise it too" in (raised.result or "")
    run.until_state("paused", "stop_at")
    assert "ctl RUN stop-at" in (run.snapshot().run.pause_detail or "")
    run.order("stop-at", usd="1.00")
    assert run.wait(process) == 0, run.log()
    assert_every_sample_answered_once(run, 30)
    assert_books_agree(run, provider)


def test_a_cap_below_one_bound_admits_nothing(new_run: NewRun, start_provider: StartProvider) -> None:
    provider = start_provider()
    run = new_run(provider.api_url, 3, cap_usd="0.00001", stop_at_usd="0.00001")
    assert run.finish("--exit-when-paused") == 3, run.log()
    assert run.state() == ("paused", "cap")
    assert provider.books()["rows"] == []


def test_stop_at_ends_admission_and_a_raised_one_goes_on(new_run: NewRun, start_provider: StartProvider) -> None:
    provider = start_provider(latency_s=0.02)
    run = new_run(provider.api_url, 30, cap_usd="1.00", stop_at_usd="0.0008", max_in_flight=2)
    process = run.start()
    run.until_state("paused", "stop_at")
    run.until(lambda reader: reader.snapshot().in_flight == 0, "nothing in flight")
    snapshot = run.snapshot()
    assert snapshot.spend.books.settled_pico >= 800_000_000
    assert snapshot.answered < 30
    assert run.order("stop-at", usd="0.5").changed == 1
    assert run.wait(process) == 0, run.log()
    assert_every_sample_answered_once(run, 30)
    assert_books_agree(run, provider)


def test_a_headless_run_ends_with_3_at_its_limit_and_goes_on_after_a_raise(
    new_run: NewRun, start_provider: StartProvider
) -> None:
    provider = start_provider()
    run = new_run(provider.api_url, 12, cap_usd="1.00", stop_at_usd="0.0003", max_in_flight=1)
    assert run.finish("--exit-when-paused") == 3, run.log()
    assert run.finish("--exit-when-paused") == 3, run.log()
    with LedgerWriter(run.folder.ledger_path) as writer:
        writer.set_stop_at(10**12)
    assert run.finish("--exit-when-paused") == 0, run.log()
    assert_every_sample_answered_once(run, 12)


def test_holds_of_unsettled_attempts_count_and_are_released_so_that_the_run_can_end(
    new_run: NewRun, start_provider: StartProvider
) -> None:
    faults = (
        '[[fault]]\nkind = "disconnect_before_headers"\nmatch = { every = 3 }\nparams = { billed = true }\ntimes = 4\n'
    )
    provider = start_provider(faults=faults)
    run = new_run(provider.api_url, 10, cap_usd="0.0019", stop_at_usd="0.0019", max_in_flight=4)
    process = run.start()
    run.until_state("paused", "cap")
    committed_never_passed(run, 1_900_000_000)
    run.order("cap", usd="1.00")
    run.order("stop-at", usd="1.00")
    assert run.wait(process) == 0, run.log()
    assert_every_sample_answered_once(run, 10)
    assert_books_agree(run, provider)
    assert run.snapshot().spend.books.unattributed_pico > 0
