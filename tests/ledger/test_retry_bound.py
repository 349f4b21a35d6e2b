"""What asking samples again commits at most, against what the engine reserves."""

from decimal import Decimal
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from eagletui.core.money import Price, hold_bound, hold_elsewhere, prompt_bound
from eagletui.ledger.orders import AdmitRequest, Failed, Finished
from eagletui.ledger.reader_spend import SpendReader
from eagletui.ledger.retry_bound import AskedAgain
from eagletui.ledger.writer import LedgerWriter
from tests.ledger.build import Clock, make_ledger, queue

CHEAP = Price(Decimal("0.0000002"), Decimal("0.0000006"), Decimal(0))
DEAR = Price(Decimal("0.0000003"), Decimal("0.0000006"), Decimal(0))

prices = st.builds(
    Price,
    *(st.sampled_from([Decimal(0), Decimal("0.0000001"), Decimal("0.0000007"), Decimal("0.000003")]) for _ in range(3)),
)


@given(st.integers(0, 100_000), st.integers(0, 100_000), prices, prices)
def test_a_hold_at_another_price_is_never_below_what_is_reserved_there(
    counted: int, max_tokens: int, here: Price, there: Price
) -> None:
    upper = prompt_bound(counted)
    found = hold_elsewhere(hold_bound(upper, max_tokens, here), here, there)
    assert found is None or found >= hold_bound(upper, max_tokens, there)
    assert hold_elsewhere(1_000, here, here) in (1_000, 0)


def test_each_sample_counts_once_at_the_dearest_open_endpoint(tmp_path: Path) -> None:
    path = make_ledger(tmp_path / "ledger.sqlite", stop_at=10**12, cap=10**12)
    hold = hold_bound(1_000, 500, CHEAP)
    with LedgerWriter(path, Clock()) as writer:
        for tag, price in (("cheap", CHEAP), ("dear", DEAR), ("closed", Price(Decimal(1), Decimal(1), Decimal(1)))):
            writer.upsert_endpoint(tag, tag)
            prompt, completion = format(price.prompt_usd_per_token, "f"), format(price.completion_usd_per_token, "f")
            writer.add_price(tag, prompt_usd=prompt, completion_usd=completion)
        writer.quarantine("closed")
        queue(writer, "a", "b", "c")
        for sample_id in (1, 2):
            (admission,) = writer.admit([AdmitRequest(sample_id, "cheap", hold, True)])
            assert admission.attempt_id is not None
            writer.mark_sent([admission.attempt_id])
            writer.finish([Finished(admission.attempt_id, Failed("void", "bad_request", "no", http_status=400))])
    with SpendReader(path) as reader:
        assert reader.would_ask_again([1, 2, 3]) == AskedAgain(3, 0, 2 * (hold * 3 // 2), 1)
        assert reader.would_ask_again([]) == AskedAgain(0, 0, 0, 0)
