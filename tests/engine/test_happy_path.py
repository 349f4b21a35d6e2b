"""The whole path on a healthy provider."""

from pathlib import Path

from tests.engine.books import assert_books_agree, assert_every_sample_answered_once
from tests.engine.conftest import NewRun
from tests.provider_fixture import ProviderHandle, StartProvider


def test_every_sample_is_answered_once_and_the_money_equals_the_books(
    new_run: NewRun, replay_provider: ProviderHandle
) -> None:
    run = new_run(replay_provider.api_url, 30)
    assert run.finish() == 0, run.log()
    assert run.state() == ("done", None)
    assert_every_sample_answered_once(run, 30)
    assert_books_agree(run, replay_provider)
    assert len(replay_provider.books()["rows"]) == 30
    assert run.snapshot().spend.books.settled_pico > 0
    assert run.snapshot().spend.books.unattributed_pico == 0


def test_endpoints_prices_and_hashes_are_in_the_ledger(new_run: NewRun, replay_provider: ProviderHandle) -> None:
    run = new_run(replay_provider.api_url, 24)
    assert run.finish() == 0, run.log()
    with run.reader() as reader:
        prices = {price.endpoint: price for price in reader.prices()}
        answered = {figures.tag: figures.samples for figures in reader.snapshot().endpoints}
        row = reader.run()
    assert prices["embedded/logprobs"].prompt_usd == "0.00000075"
    assert prices["embedded/logprobs"].completion_usd == "0.0000030125"
    assert answered == {"embedded/stream": 10, "embedded/logprobs": 10, "embedded/text": 4}
    assert row.tokenizer_hash
    assert row.key_usage_at_start_pico == 0


def test_a_finished_run_starts_and_ends_at_once_and_asks_nothing(
    new_run: NewRun, replay_provider: ProviderHandle
) -> None:
    run = new_run(replay_provider.api_url, 3)
    assert run.finish() == 0, run.log()
    assert run.finish() == 0, run.log()
    assert len(replay_provider.books()["rows"]) == 3


def test_a_second_engine_is_refused_and_names_the_first(new_run: NewRun, start_provider: StartProvider) -> None:
    provider = start_provider(latency_s=0.5)
    run = new_run(provider.api_url, 40, max_in_flight=2)
    first = run.start()
    run.until_state("running")
    assert run.finish() == 1
    assert f"pid {first.pid}" in run.log()


def test_the_key_is_nowhere_in_the_run_folder(new_run: NewRun, start_provider: StartProvider, tmp_path: Path) -> None:
    key = "sk-or-v1-marker-5f0c2d"
    faults = '[[fault]]\nkind = "http_500"\nmatch = { nth = 2 }\n\n[[fault]]\nkind = "http_403"\nmatch = { nth = 5 }\n'
    faults += f'params = {{ message = "Key {key} is over its limit" }}\ntimes = 1\n'
    provider = start_provider(faults=faults)
    run = new_run(provider.api_url, 12, provider={"api_key_env": "EAGLE_TEST_KEY"}, max_in_flight=1)
    process = run.start(env={"EAGLE_TEST_KEY": key})
    run.until_state("paused", "key_limit")
    assert "[key]" in (run.snapshot().run.pause_detail or "")
    run.order("resume")
    assert run.wait(process) == 0, run.log()
    holding = [path for path in run.folder.path.rglob("*") if path.is_file() and key.encode() in path.read_bytes()]
    assert holding == []
