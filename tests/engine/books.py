"""Compare a run's ledger with the provider's own books."""

from collections import Counter

from tests.engine.run_folder import EngineRun
from tests.provider_fixture import ProviderHandle


def assert_books_agree(run: EngineRun, provider: ProviderHandle) -> None:
    """Totals agree to the picodollar, and every attempt whose generation id arrived has that generation's cost."""
    books = provider.books()
    money = run.snapshot().spend.books
    assert money.spent_pico == books["spent_pico"]
    assert money.open_pico == 0
    cost_by_generation = {row["id"]: row["cost_pico"] for row in books["rows"]}
    attempts = run.attempts()
    for attempt in attempts:
        if attempt.state == "settled":
            assert attempt.cost_pico == cost_by_generation[attempt.generation_id or ""]
        elif attempt.generation_id is not None:
            assert cost_by_generation.get(attempt.generation_id, 0) == 0, f"a billed attempt is {attempt.state}"
        assert attempt.cost_pico is None or attempt.cost_pico <= attempt.hold_pico
    owners = Counter(attempt.generation_id for attempt in attempts)
    assert all(owners[row["id"]] <= 1 for row in books["rows"])


def assert_every_sample_answered_once(run: EngineRun, samples: int) -> None:
    """No sample is lost and none has two answers."""
    states = run.snapshot().states
    assert states["tokenized"] + states["quarantined"] == samples
    assert sum(attempt.has_answer for attempt in run.attempts()) == samples
