"""OpenRouter, and the embedded provider, which speaks the same API.

Every request is pinned to one endpoint and carries a price ceiling, so that the bound of the money is hard on the
server's side too. Facts: https://openrouter.ai/docs (routing, parameters, errors, usage accounting).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final
from urllib.parse import quote

import msgspec

from eagletui.core.errors import ConfigError, ReplyError
from eagletui.core.money import Price, usd_to_pico
from eagletui.core.reasoning_rule import ReasoningRule
from eagletui.core.reply import Reply
from eagletui.core.text import clean_line
from eagletui.providers.base import (
    ChatRequest,
    Endpoint,
    GenerationRecord,
    KeyStatus,
    OnHeaders,
    ProviderFailure,
    RawReply,
    Stranger,
    Timeouts,
    reasoning_field,
)
from eagletui.providers.body import chat_body, encode, reply_limit_bytes
from eagletui.providers.decoding import decode_as
from eagletui.providers.reply_reader import count_of, pico_of
from eagletui.providers.served import plain_name, stranger
from eagletui.providers.transport import HttpReply, HttpTransport

BASE_URL: Final = "https://openrouter.ai/api/v1"
HEADERS: Final = {"X-OpenRouter-Title": "EagleTUI", "X-OpenRouter-Metadata": "enabled"}
"""The second makes replies say which endpoints were tried and what the router did to the prompt."""
PER_MILLION: Final = 1_000_000
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


class _EndpointsBody(msgspec.Struct):
    data: _EndpointList


class _Generation(msgspec.Struct):
    total_cost: Decimal | None = None
    native_tokens_prompt: int | None = None
    native_tokens_completion: int | None = None
    provider_name: str | None = None
    is_byok: bool = False
    upstream_inference_cost: Decimal | None = None
    """Paid to the provider itself, with one's own key there; otherwise a part of the cost, or null."""


class _GenerationBody(msgspec.Struct):
    data: _Generation


class _Key(msgspec.Struct):
    usage: Decimal
    byok_usage: Decimal = Decimal(0)
    """Paid to providers themselves, with one's own keys there."""
    limit: Decimal | None = None
    limit_remaining: Decimal | None = None
    limit_reset: Any = None
    expires_at: Any = None
    is_free_tier: Any = False


class _KeyBody(msgspec.Struct):
    data: _Key


class _Reasoning(msgspec.Struct):
    supported_efforts: list[str] | None = None
    supports_max_tokens: bool | None = None
    mandatory: bool = False


class _Model(msgspec.Struct):
    id: str
    reasoning: _Reasoning | None = None


class _ModelsBody(msgspec.Struct):
    data: list[msgspec.Raw]


class _Credits(msgspec.Struct):
    total_credits: Decimal
    total_usage: Decimal


class _CreditsBody(msgspec.Struct):
    data: _Credits


class OpenRouter:
    """The router's API for one model."""

    def __init__(
        self,
        base_url: str,
        model_id: str,
        routing: Routing,
        *,
        key: str,
        timeouts: Timeouts,
        fields_for: Callable[[str], Mapping[str, object]] = reasoning_field,
    ) -> None:
        """Prepare a client; nothing is sent yet.

        Args:
            base_url: up to and including `/api/v1`.
            model_id: `author/slug`.
            routing: which endpoints may answer.
            key: the API key.
            timeouts: limits of each part of a request.
            fields_for: fields of the body that reach the chat template, by the `reasoning` of a request.
        """
        self._model_id = model_id
        self._fields_for = fields_for
        self._routing = routing
        self._tags: dict[str, set[str]] = {}
        """Of the last offer, by plain name of the provider."""
        self._transport = HttpTransport(base_url, key=key, timeouts=timeouts, headers=dict(HEADERS))

    def use_key(self, key: str) -> None:
        """Send another API key from here on."""
        self._transport.use_key(key)

    async def aclose(self) -> None:
        """Close every connection."""
        await self._transport.aclose()

    async def endpoints(self) -> list[Endpoint]:
        """Fetch the endpoints that may answer this run, with their prices."""
        reply = await self._transport.get(f"/models/{quote(self._model_id)}/endpoints")
        records = self._decode(reply, _EndpointsBody, "endpoints").data.endpoints
        listed = [_endpoint(record, self._routing.typed_price) for record in records]
        self._tags = _tags_by_name(listed)
        listed = [_told_apart(endpoint, listed) for endpoint in listed]
        kept = [endpoint for endpoint in listed if _fits(endpoint, self._routing)]
        if not kept:
            raise ConfigError(_why_none(self._model_id, listed, self._routing))
        return kept

    async def send(self, request: ChatRequest, on_headers: OnHeaders) -> RawReply:
        """Send one request and receive its body."""
        body = encode(self.request_body(request))
        return await self._transport.post(
            "/chat/completions",
            body,
            stream=request.stream,
            limit_bytes=reply_limit_bytes(request),
            on_headers=on_headers,
        )

    def request_body(self, request: ChatRequest) -> dict[str, Any]:
        """Return the JSON body of a request."""
        if request.endpoint is None or request.max_price is None:
            raise ValueError("a request to a router needs an endpoint and a price ceiling")
        body = chat_body(request)
        body["usage"] = {"include": True}
        body["provider"] = {
            "only": [request.endpoint],
            "allow_fallbacks": False,
            "require_parameters": True,
            "max_price": _per_million(request.max_price),
        }
        # A base slug names its variants too, also those that were added since the offer was fetched.
        if ignored := list(dict.fromkeys([*request.variants, *self._routing.ignore])):
            body["provider"]["ignore"] = ignored
        if self._routing.quantizations:
            body["provider"]["quantizations"] = [request.quantization or "unknown"]
        if self._routing.distillable_text:
            body["provider"]["enforce_distillable_text"] = True
        body["plugins"] = [{"id": "context-compression", "enabled": False}]
        body.update(self._fields_for(request.sampling.reasoning))
        return body

    def cost(self, reply: Reply, endpoint: Endpoint) -> int | None:
        """Return `usage.cost`, the only statement of what was charged."""
        return reply.usage.cost_pico_usd if reply.usage else None

    def stranger(self, reply: Reply, endpoint: Endpoint) -> Stranger | None:
        """Tell who answered where it was not the one asked."""
        return stranger(reply, endpoint, self._model_id, self._tags)

    async def generation(self, generation_id: str) -> GenerationRecord | None:
        """Ask what one generation cost; None until the router's accounting has it."""
        reply = await self._transport.get("/generation", {"id": generation_id})
        if reply.status == 404:
            return None
        data = self._decode(reply, _GenerationBody, "generation").data
        cost_pico = pico_of(data.total_cost)
        if cost_pico is None:
            return None
        if data.is_byok:
            cost_pico += pico_of(data.upstream_inference_cost) or 0
        return GenerationRecord(
            generation_id=generation_id,
            cost_pico_usd=cost_pico,
            prompt_tokens=count_of(data.native_tokens_prompt),
            completion_tokens=count_of(data.native_tokens_completion),
            provider_name=data.provider_name,
        )

    async def key(self) -> KeyStatus | None:
        """Ask what the key has spent."""
        data = self._decode(await self._transport.get("/key"), _KeyBody, "key").data
        try:
            return KeyStatus(
                usage_pico_usd=usd_to_pico(data.usage + data.byok_usage),
                limit_pico_usd=None if data.limit is None else usd_to_pico(data.limit),
                remaining_pico_usd=None if data.limit_remaining is None else usd_to_pico(data.limit_remaining),
                limit_reset=clean_line(data.limit_reset, 20) if isinstance(data.limit_reset, str) else None,
                expires_at=_moment(data.expires_at),
                is_free_tier=data.is_free_tier is True,
            )
        except (ValueError, ArithmeticError) as error:
            raise _unreadable("key", error) from error

    async def reasoning(self) -> ReasoningRule | None:
        """Ask the list of models what this one's reasoning allows; what it does not say is unknown."""
        reply = await self._transport.get("/models")
        if reply.status != 200:
            return None
        for raw in self._decode(reply, _ModelsBody, "models").data:
            try:
                model = decode_as(raw, _Model)
            except ReplyError:
                continue  # another shape of another model's row
            if model.id == self._model_id and model.reasoning is not None:
                stated = model.reasoning
                return ReasoningRule(
                    tuple(stated.supported_efforts or ()), stated.supports_max_tokens, stated.mandatory
                )
        return None

    async def balance(self) -> int | None:
        """Ask for the account's credits, which only management keys may know."""
        reply = await self._transport.get("/credits")
        if reply.status in (401, 403, 404):
            return None
        data = self._decode(reply, _CreditsBody, "credits").data
        try:
            return usd_to_pico(data.total_credits - data.total_usage)
        except (ValueError, ArithmeticError) as error:
            raise _unreadable("credits", error) from error

    def _decode(self, reply: HttpReply, shape: type[Any], what: str) -> Any:
        if reply.status != 200:
            raise self._transport.failure(reply)
        try:
            return decode_as(reply.body, shape)
        except ReplyError as error:
            raise _unreadable(what, error) from error


def _unreadable(what: str, error: Exception) -> ProviderFailure:
    sentence = f"The provider's answer about {what} cannot be read: {clean_line(str(error), 200)}"
    return ProviderFailure("not_json", sentence)


def _moment(value: object) -> datetime | None:
    """Read a time of the API; without a zone it is UTC."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment


def _endpoint(raw: msgspec.Raw, typed: Price | None) -> Endpoint:
    try:
        record = decode_as(raw, _EndpointRecord)
    except ReplyError as error:
        raise _unreadable("an endpoint", error) from error
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


def _told_apart(endpoint: Endpoint, listed: Sequence[Endpoint]) -> Endpoint:
    variants = tuple(other.tag for other in listed if other.tag != endpoint.tag and _named(other.tag, (endpoint.tag,)))
    return replace(endpoint, variants=variants) if variants else endpoint


def _tags_by_name(listed: Sequence[Endpoint]) -> dict[str, set[str]]:
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


def _fits(endpoint: Endpoint, routing: Routing) -> bool:
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


def _why_none(model_id: str, listed: list[Endpoint], routing: Routing) -> str:
    if not listed:
        return f"No endpoint serves {model_id}. Check [model] id."
    if routing.template_kwargs and any(_fits(e, replace(routing, template_kwargs={})) for e in listed):
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


def _per_million(price: Price) -> dict[str, Decimal]:
    return {
        "prompt": price.prompt_usd_per_token * PER_MILLION,
        "completion": price.completion_usd_per_token * PER_MILLION,
        "request": price.request_usd,
    }
