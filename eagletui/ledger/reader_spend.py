"""Read what each endpoint billed against what we counted, and what setting one aside would mean."""

from collections.abc import Sequence
from decimal import Decimal

from eagletui.core.billing import EndpointBill
from eagletui.core.money import Price
from eagletui.ledger.reader_base import Reader
from eagletui.ledger.rebuying import Quarantined, rebuy_range
from eagletui.ledger.retry_bound import AskedAgain, asked_again

_BILLS = """
    SELECT endpoint, count(*), sum(cost_pico),
        sum(coalesce(billed_prompt_tokens, prompt_tokens, 0)), sum(coalesce(billed_output_tokens, output_tokens, 0)),
        sum(coalesce(prompt_tokens, billed_prompt_tokens, 0)), sum(coalesce(output_tokens, billed_output_tokens, 0)),
        coalesce(sum(billed_output_tokens - output_tokens - drift_tokens), 0), sum(output_tokens IS NULL)
    FROM samples WHERE endpoint IS NOT NULL AND cost_pico IS NOT NULL GROUP BY endpoint"""
_UNANSWERED = """
    SELECT endpoint, count(*), sum(cost_pico) FROM attempts
    WHERE state = 'settled' AND has_answer = 0 AND cost_pico > 0 GROUP BY endpoint"""
_PRICES = "SELECT endpoint, prompt_usd, completion_usd, request_usd FROM prices ORDER BY id"


class SpendReader(Reader):
    """Sums over every sample: they take a moment on long runs, so read them beside the screen."""

    def bills(self) -> list[EndpointBill]:
        """List each endpoint's bill, by name."""
        with self._transactions.reading() as connection:
            answers = {row[0]: row[1:] for row in connection.execute(_BILLS)}
            unanswered = {row[0]: row[1:] for row in connection.execute(_UNANSWERED)}
            prices: dict[str, list[tuple[str, str, str]]] = {}
            for endpoint, *price in connection.execute(_PRICES):
                known = prices.setdefault(endpoint, [])
                if not known or known[-1] != tuple(price):
                    known.append((price[0], price[1], price[2]))
        bills = []
        for endpoint in sorted(answers.keys() | unanswered.keys()):
            samples, cost, billed_prompt, billed_output, prompt, output, offset, uncounted = answers.get(
                endpoint, (0,) * 8
            )
            lost, lost_pico = unanswered.get(endpoint, (0, 0))
            seen = prices.get(endpoint, [])
            bills.append(
                EndpointBill(
                    endpoint=endpoint,
                    samples=samples,
                    cost_pico=cost,
                    billed_prompt=billed_prompt,
                    billed_output=billed_output,
                    prompt=prompt,
                    output=output,
                    offset=offset,
                    uncounted=uncounted,
                    unanswered=lost,
                    unanswered_pico=lost_pico,
                    price=Price(*(Decimal(text) for text in seen[-1])) if seen else None,
                    prices=len(set(seen)),
                )
            )
        return bills

    def would_set_aside(self, endpoint: str, since: float) -> Quarantined:
        """Tell what a quarantine since a time would move, and what buying it again costs; nothing is written."""
        with self._transactions.reading() as connection:
            samples, cost, prompt, completion = connection.execute(
                """SELECT count(*), coalesce(sum(cost_pico), 0),
                    coalesce(sum(coalesce(billed_prompt_tokens, prompt_tokens, 0)), 0),
                    coalesce(sum(coalesce(billed_output_tokens, output_tokens, 0)), 0)
                FROM samples WHERE endpoint = ? AND answered_at >= ? AND state IN ('answered', 'tokenized')""",
                (endpoint, since),
            ).fetchone()
            low, high = rebuy_range(connection, endpoint, samples, prompt, completion)
        return Quarantined(samples, cost, samples > 0, low, high)

    def would_ask_again(self, sample_ids: Sequence[int]) -> AskedAgain:
        """Tell what asking failed, refused or quarantined samples again would commit; nothing is written."""
        with self._transactions.reading() as connection:
            return asked_again(connection, sample_ids)
