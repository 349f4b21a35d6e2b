"""What an endpoint billed beyond its bounds is remembered by the next engine."""

from decimal import Decimal

from eagletui.core.money import Price, hold_bound, prompt_bound
from eagletui.ledger.filters import SampleFilter
from eagletui.ledger.orders import AdmitRequest, Answered, Finished, TokensResult
from eagletui.ledger.writer import LedgerWriter
from tests.engine.conftest import NewRun
from tests.engine.run_folder import EngineRun
from tests.provider_fixture import ProviderHandle

ENDPOINT = "embedded/text"


def buy(run: EngineRun, hold_pico: int, cost_pico: int, counted: int = 100, billed: int = 100) -> None:
    """Answer the next sample of a run as an engine before this one did."""
    with LedgerWriter(run.folder.ledger_path) as writer:
        (sample,) = writer.claim(1)
        (admission,) = writer.admit([AdmitRequest(sample.id, ENDPOINT, hold_pico, False)])
        assert admission.attempt_id is not None
        writer.mark_sent([admission.attempt_id])
        tokens = TokensResult((5, 6, 7), "text", "streamed", "usable", prompt_ids=tuple(range(counted)), drift=0)
        answer = Answered(b"{}", "json", cost_pico, ENDPOINT, "stop", 1.0, billed, 3, tokens=tokens)
        writer.finish([Finished(admission.attempt_id, answer)])


def bound(run: EngineRun, prompt_per_mille: int = 1050) -> int:
    """The bound of the last sample at the published price."""
    with run.reader() as reader:
        (price,) = reader.prices()
        *_, row = reader.page(SampleFilter(), None, 10)
    assert row.prompt_tokens is not None
    published = Price(Decimal(price.prompt_usd), Decimal(price.completion_usd), Decimal(price.request_usd))
    return hold_bound(prompt_bound(row.prompt_tokens, prompt_per_mille), 64, published)


def test_a_restart_holds_as_much_more_as_was_charged_above_a_bound(
    new_run: NewRun, replay_provider: ProviderHandle
) -> None:
    run = new_run(replay_provider.api_url, 2, provider={"only": [ENDPOINT]})
    with LedgerWriter(run.folder.ledger_path) as writer:
        writer.set_run_state("running")
    buy(run, hold_pico=1_000_000, cost_pico=3_000_000)
    assert run.finish() == 0, run.log()
    assert run.attempts()[-1].hold_pico == 3 * bound(run)


def test_a_restart_bounds_prompts_by_the_largest_ratio_that_was_billed(
    new_run: NewRun, replay_provider: ProviderHandle
) -> None:
    run = new_run(replay_provider.api_url, 4, provider={"only": [ENDPOINT]})
    with LedgerWriter(run.folder.ledger_path) as writer:
        writer.set_run_state("running")
    for counted, billed in ((1_000, 1_110), (100, 64 + 140), (10, 70)):
        buy(run, 10**9, 10**6, counted, billed)
    assert run.finish() == 0, run.log()
    assert run.attempts()[-1].hold_pico == bound(run, 1400)
