"""What a router offers for a model: its endpoints, at the highest price a request can meet, and who may answer.

Facts: https://openrouter.ai/docs (list endpoints for a model, provider routing).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Final

import msgspec

from eagletui.core.errors import ConfigError, ReplyError
from eagletui.core.money import Price
from eagletui.core.text import clean_line
from eagletui.providers.base import Endpoint, ProviderFailure
from eagletui.providers.decoding import decode_as
from eagletui.providers.fields import count_of
from eagletui.providers.served import plain_name

MAX_PRICE_USD: Final = 1
"""Per token or request; the dearest model asked 0.0006 a token."""
MAX_PRICE_DIGITS: Final = 40


@dataclass(frozen=True, slots=True)
class Routing:
    """Which endpoints may answer a run."""

    only: tuple[str, ...] = ()
    """Slugs; empty: all. A base slug (`deepinfra`) names all of its variants."""
    ignore: tuple[str, ...] = ()
    quantizations: tuple[str, ...] = ()
    """Accepted quantizations; empty: all."""
    max_tokens: int = 0
    """The longest answer of the run; an endpoint with a lower limit is left out."""
    parameters: frozenset[str] = frozenset()
    """Optional parameters that requests set; an endpoint that lists its parameters and lacks one is left out."""
    distillable_text: bool = True
    """Only models whose author allows training on the output."""
    typed_price: Price | None = None
    """The person's price, for an endpoint that states none."""
    template_kwargs: Mapping[str, object] = field(default_factory=dict)
    """Variables of the chat template that no field of the router's own carries: only endpoints that list
    `chat_template_kwargs` among their parameters may answer."""


class _Rates(msgspec.Struct):
    prompt: Decimal | None = None
    completion: Decimal | None = None
    request: Decimal | None = None
    internal_reasoning: Decimal | None = None
    """Asked for reasoning tokens in place of `completion`."""
    input_cache_write: Decimal | None = None
    """Asked for prompt tokens that enter a cache, in place of `prompt`."""


class _Pricing(_Rates):
    overrides: list[_Rates] = []


class _EndpointRecord(msgspec.Struct):
    tag: str
    provider_name: str
    pricing: _Pricing
    quantization: str | None = None
    max_completion_tokens: int | None = None
    context_length: int | None = None
    max_prompt_tokens: int | None = None
    status: Any = None
    uptime_last_30m: Any = None
    supported_parameters: list[str] = []
    name: Any = None
    """`PROVIDER | MODEL`, where the model may be a dated name of the one that is asked for."""
    model_id: Any = None
    supports_streaming: bool = True
    """The embedded provider's own field; absent elsewhere."""


class _EndpointList(msgspec.Struct):
    endpoints: list[msgspec.Raw]


class EndpointsBody(msgspec.Struct):
    """The body of a list of endpoints; each is read by `read_endpoint`."""

    data: _EndpointList


def unreadable(what: str, error: Exception) -> ProviderFailure:
    """Say that an answer of the router's accounting or lists is not what it should be."""
    sentence = f"The provider's answer about {what} cannot be read: {clean_line(str(error), 200)}"
    return ProviderFailure("not_json", sentence)


def read_endpoint(raw: msgspec.Raw, typed: Price | None) -> Endpoint:
    """Read one endpoint.

    Args:
        raw: its record.
        typed: the person's price, where it states none.

    Raises:
        ProviderFailure: it cannot be read.
        ConfigError: it has no price.
    """
    try:
        record = decode_as(raw, _EndpointRecord)
    except ReplyError as error:
        raise unreadable("an endpoint", error) from error
    price = _highest(record.pricing)
    source: Any = "endpoints"
    if price is None:
        if typed is None:
            raise ConfigError(
                f"{clean_line(record.tag, 60)} states no price that a bound can be made of. Give "
                "prompt_usd_per_million and completion_usd_per_million in [provider], or name it in ignore."
            )
        price, source = typed, "config"
    return Endpoint(
        tag=record.tag,
        provider_name=record.provider_name,
        price=price,
        quantization=record.quantization,
        max_completion_tokens=count_of(record.max_completion_tokens),
        supports_logprobs="logprobs" in record.supported_parameters,
        supports_stream=record.supports_streaming,
        supports_template_kwargs="chat_template_kwargs" in record.supported_parameters,
        parameters=frozenset(record.supported_parameters),
        context_tokens=count_of(record.context_length),
        max_prompt_tokens=count_of(record.max_prompt_tokens),
        status=record.status if type(record.status) is int else None,
        uptime_percent=float(record.uptime_last_30m) if type(record.uptime_last_30m) in (int, float) else None,
        price_source=source,
        model_names=_model_names(record),
        raw_json=bytes(raw).decode("utf-8", "replace"),
    )


def _model_names(record: _EndpointRecord) -> tuple[str, ...]:
    after_bar = record.name.split(" | ", 1)[-1] if isinstance(record.name, str) and " | " in record.name else None
    return tuple(name for name in (after_bar, record.model_id) if isinstance(name, str) and name)


def told_apart(endpoint: Endpoint, listed: Sequence[Endpoint]) -> Endpoint:
    """Return an endpoint that knows which others its tag names."""
    variants = tuple(other.tag for other in listed if other.tag != endpoint.tag and _named(other.tag, (endpoint.tag,)))
    return replace(endpoint, variants=variants) if variants else endpoint


def tags_by_name(listed: Sequence[Endpoint]) -> dict[str, set[str]]:
    """Return the tags of each provider, by its plain name."""
    tags: dict[str, set[str]] = {}
    for endpoint in listed:
        tags.setdefault(plain_name(endpoint.provider_name), set()).add(endpoint.tag)
    return tags


def _highest(pricing: _Pricing) -> Price | None:
    """The most a request can meet: conditional overrides count, discounts do not. None where any of it is no price.

    Any prompt token may enter a cache and any output token may be reasoning, so the dearer rate of each bounds both.
    """
    rates: tuple[_Rates, ...] = (pricing, *pricing.overrides)
    prompts = [usd for rate in rates for usd in (rate.prompt, rate.input_cache_write) if usd is not None]
    completions = [usd for rate in rates for usd in (rate.completion, rate.internal_reasoning) if usd is not None]
    requests = [rate.request for rate in rates if rate.request is not None]
    if pricing.prompt is None or pricing.completion is None:
        return None
    if not all(map(_is_price, (*prompts, *completions, *requests))):
        return None
    return Price(max(prompts), max(completions), max(requests, default=Decimal(0)))


def _is_price(usd: Decimal) -> bool:
    """Refuse what is no amount or none that anyone pays; -1 means "varies" on the router's own auto models."""
    if not usd.is_finite() or not 0 <= usd <= MAX_PRICE_USD:
        return False
    exponent = usd.as_tuple().exponent
    return isinstance(exponent, int) and exponent >= -MAX_PRICE_DIGITS


def fits(endpoint: Endpoint, routing: Routing) -> bool:
    """Tell whether an endpoint may answer a run."""
    if routing.only and not _named(endpoint.tag, routing.only):
        return False
    if _named(endpoint.tag, routing.ignore):
        return False
    if not endpoint.parameters.issuperset(routing.parameters) and endpoint.parameters:
        return False
    if routing.quantizations and (endpoint.quantization or "unknown") not in routing.quantizations:
        return False
    if routing.template_kwargs and not endpoint.supports_template_kwargs:
        return False
    return endpoint.max_completion_tokens is None or endpoint.max_completion_tokens >= routing.max_tokens


def _named(tag: str, slugs: Sequence[str]) -> bool:
    return any(tag == slug or tag.startswith(slug + "/") for slug in slugs)


def why_none(model_id: str, listed: list[Endpoint], routing: Routing) -> str:
    """Say why no endpoint may answer."""
    if not listed:
        return f"No endpoint serves {model_id}. Check [model] id."
    if routing.template_kwargs and any(fits(e, replace(routing, template_kwargs={})) for e in listed):
        found = ", ".join(
            f"{name} = {json.dumps(value, default=str)}" for name, value in routing.template_kwargs.items()
        )
        return (
            f"template_kwargs of [model]: found {clean_line(found, 200)}, and no endpoint of {model_id} that fits "
            "[provider] takes chat_template_kwargs, so prompts would be rendered otherwise than asked. Remove it, or "
            "use a server that takes it (kind vllm, sglang or llama.cpp). Thinking switches and reasoning_effort need "
            "no such endpoint."
        )
    described = ", ".join(_described(endpoint, routing) for endpoint in listed)
    return (
        f"None of the endpoints of {model_id} fits only, ignore and quantizations of [provider] with "
        f"max_tokens = {routing.max_tokens}. On offer: {clean_line(described, 600)}."
    )


def _described(endpoint: Endpoint, routing: Routing) -> str:
    lacks = sorted(routing.parameters - endpoint.parameters) if endpoint.parameters else []
    without = f", without {' and '.join(lacks)}" if lacks else ""
    longest = endpoint.max_completion_tokens or "any"
    return f"{endpoint.tag} ({endpoint.quantization or 'unknown'}, at most {longest} tokens{without})"
