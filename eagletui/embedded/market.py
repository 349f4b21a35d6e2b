"""What the embedded provider sells: one model behind three endpoints, and which of them may answer a request.

Routing follows https://openrouter.ai/docs/guides/routing/provider-selection; it is pure, so that it can be read and
tested without a server.
"""

import random
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

import msgspec

MODEL_SLUG: Final = "huggingfacetb/smollm2-135m-instruct"
MODEL_NAME: Final = "HuggingFaceTB: SmolLM2 135M Instruct"
HUGGING_FACE_ID: Final = "HuggingFaceTB/SmolLM2-135M-Instruct"
CONTEXT_TOKENS: Final = 2048
MAX_COMPLETION_TOKENS: Final = 1024
_PICO_PER_USD: Final = 10**12
_MILLION: Final = 1_000_000
_SAMPLING: Final = ("max_tokens", "temperature", "top_p", "top_k", "seed", "tools")
"""Tools are handed to the model's own template, which has no place for them."""


@dataclass(frozen=True, slots=True)
class Window:
    """How long conversations and answers may be."""

    context_tokens: int = CONTEXT_TOKENS
    completion_tokens: int = MAX_COMPLETION_TOKENS


DEMO_WINDOW: Final = Window()
"""The model's own."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One way to reach the model, with its price and abilities."""

    tag: str
    """The slug that pins it."""
    provider_name: str
    prompt_pico: int
    """Picodollars per prompt token."""
    completion_pico: int
    """Picodollars per completion token, the stop token included."""
    streams: bool
    logprobs: bool
    quantization: str = "int4"

    @property
    def supported_parameters(self) -> tuple[str, ...]:
        """Names of the request parameters this endpoint obeys; others are ignored."""
        return (*_SAMPLING, "logprobs", "top_logprobs") if self.logprobs else _SAMPLING

    def cost_pico(self, prompt_tokens: int, completion_tokens: int) -> int:
        """Return the price of one generation, exact."""
        return prompt_tokens * self.prompt_pico + completion_tokens * self.completion_pico


ENDPOINTS: Final = (
    Endpoint("embedded/stream", "Embedded Stream", 600_000, 2_500_000, streams=True, logprobs=False),
    Endpoint("embedded/logprobs", "Embedded Logprobs", 750_000, 3_012_500, streams=True, logprobs=True),
    Endpoint("embedded/text", "Embedded Text", 450_000, 2_000_000, streams=False, logprobs=False),
)


class MaxPrice(msgspec.Struct, frozen=True):
    """`provider.max_price`, in USD per million tokens."""

    prompt: Decimal | None = None
    completion: Decimal | None = None
    request: Decimal | None = None


class ProviderRules(msgspec.Struct, frozen=True):
    """The request's `provider` object."""

    order: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    quantizations: tuple[str, ...] = ()
    allow_fallbacks: bool = True
    require_parameters: bool = False
    max_price: MaxPrice | None = None
    sort: str | None = None


class NoEndpointError(Exception):
    """No endpoint may answer; the text says which rule excluded the last ones."""


def matches(slug: str, tag: str) -> bool:
    """Tell whether a provider slug names an endpoint: a base slug names all of its variants."""
    return tag == slug or tag.startswith(slug + "/")


def eligible(
    rules: ProviderRules, *, stream: bool, parameters: frozenset[str], endpoints: tuple[Endpoint, ...] = ENDPOINTS
) -> tuple[Endpoint, ...]:
    """Return the endpoints that may answer, in the order in which they are listed.

    Args:
        rules: the request's routing rules.
        stream: whether a stream is asked.
        parameters: names of the optional parameters the request sets.
        endpoints: what is on offer.

    Raises:
        NoEndpointError: a rule leaves none.
    """
    left = list(endpoints)

    def keep(kept: list[Endpoint], rule: str) -> list[Endpoint]:
        if not kept:
            raise NoEndpointError(f"No endpoints found that satisfy {rule}.")
        return kept

    if rules.only:
        left = keep([e for e in left if any(matches(s, e.tag) for s in rules.only)], "provider.only")
    if rules.ignore:
        left = keep([e for e in left if not any(matches(s, e.tag) for s in rules.ignore)], "provider.ignore")
    if rules.quantizations:
        left = keep([e for e in left if e.quantization in rules.quantizations], "provider.quantizations")
    if rules.max_price is not None:
        left = keep([e for e in left if _affordable(e, rules.max_price)], "provider.max_price")
    if rules.require_parameters:
        left = keep([e for e in left if parameters <= set(e.supported_parameters)], "provider.require_parameters")
    if stream:
        left = keep([e for e in left if e.streams], "stream: true")
    if rules.order and not rules.allow_fallbacks:
        left = keep([e for e in left if any(matches(s, e.tag) for s in rules.order)], "provider.order")
    return tuple(left)


def choose(candidates: tuple[Endpoint, ...], rules: ProviderRules, dice: random.Random) -> Endpoint:
    """Pick the endpoint that answers: `order` first, then `sort`, else at random by the inverse square of the price."""
    for slug in rules.order:
        for endpoint in candidates:
            if matches(slug, endpoint.tag):
                return endpoint
    if rules.sort == "price":
        return min(candidates, key=lambda endpoint: endpoint.completion_pico)
    weights = [1 / endpoint.completion_pico**2 for endpoint in candidates]
    return dice.choices(candidates, weights)[0]


def _affordable(endpoint: Endpoint, ceiling: MaxPrice) -> bool:
    asked = ((endpoint.prompt_pico, ceiling.prompt), (endpoint.completion_pico, ceiling.completion))
    return all(limit is None or Decimal(pico) * _MILLION <= limit * _PICO_PER_USD for pico, limit in asked)
