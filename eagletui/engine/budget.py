"""Upper bounds: how many prompt tokens a request can be billed, and what it can cost at most."""

from eagletui.core.money import (
    MAX_PICO,
    PROMPT_EXTRA_TOKENS,
    PROMPT_MARGIN_PER_MILLE,
    Overcharge,
    Price,
    hold_bound,
    overcharge_per_mille,
    prompt_bound,
)


class PromptBounds:
    """Bounds per endpoint, never below what that endpoint has billed: of prompt tokens, and of whole requests."""

    def __init__(self) -> None:
        """Start with the common margin."""
        self._per_mille: dict[str, int] = {}
        self._overcharges: dict[str, list[Overcharge]] = {}
        self._scale_per_mille: dict[str, int] = {}

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

    def learn_overcharge(self, endpoint: str, overcharge: Overcharge) -> int:
        """Scale later holds by what a request cost above its own, and return the scale, per mille."""
        known = self._overcharges.setdefault(endpoint, [])
        known.append(overcharge)
        self._scale_per_mille[endpoint] = overcharge_per_mille(known)
        return self._scale_per_mille[endpoint]

    def hold(self, endpoint: str, counted: int, max_tokens: int, price: Price) -> int:
        """Return the bound of one request in picodollars; one too large for the ledger is larger than any cap."""
        try:
            bound = hold_bound(self.upper(endpoint, counted), max_tokens, price)
        except ValueError:
            return MAX_PICO
        return min(MAX_PICO, -(-bound * self._scale_per_mille.get(endpoint, 1000) // 1000))
