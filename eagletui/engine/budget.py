"""Upper bounds: how many prompt tokens a request can be billed, and what it can cost at most."""

from eagletui.core.money import MAX_PICO, PROMPT_EXTRA_TOKENS, PROMPT_MARGIN_PER_MILLE, Price, hold_bound, prompt_bound


class PromptBounds:
    """Upper prompt token counts per endpoint, never below what that endpoint has billed."""

    def __init__(self) -> None:
        """Start with the common margin."""
        self._per_mille: dict[str, int] = {}

    def upper(self, endpoint: str, counted: int) -> int:
        """Return the most prompt tokens an endpoint may bill for a prompt we count.

        Args:
            endpoint: its tag.
            counted: length of the rendered prompt in our tokenizer.
        """
        return prompt_bound(counted, max(PROMPT_MARGIN_PER_MILLE, self._per_mille.get(endpoint, 0)))

    def learn(self, endpoint: str, counted: int, billed: int | None) -> None:
        """Remember the largest ratio of billed to counted prompt tokens, beyond what `PROMPT_EXTRA_TOKENS` covers."""
        if billed is not None and counted > 0:
            ratio = -(-(billed - PROMPT_EXTRA_TOKENS) * 1000 // counted)
            self._per_mille[endpoint] = max(self._per_mille.get(endpoint, 0), ratio)

    def hold(self, endpoint: str, counted: int, max_tokens: int, price: Price) -> int:
        """Return the bound of one request in picodollars; one too large for the ledger is larger than any cap."""
        try:
            return hold_bound(self.upper(endpoint, counted), max_tokens, price)
        except ValueError:
            return MAX_PICO
