"""OpenRouter, and the embedded provider, which speaks the same API.

Every request is pinned to one endpoint and carries a price ceiling, so that the bound of the money is hard on the
server's side too. Facts: https://openrouter.ai/docs (routing, parameters, errors, usage accounting).
"""

from collections.abc import Callable, Mapping
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
    RawReply,
    Stranger,
    Timeouts,
    reasoning_field,
)
from eagletui.providers.body import chat_body, encode
from eagletui.providers.decoding import decode_as
from eagletui.providers.fields import count_of, pico_of
from eagletui.providers.offer import (
    EndpointsBody,
    Routing,
    fits,
    read_endpoint,
    tags_by_name,
    told_apart,
    unreadable,
    why_none,
)
from eagletui.providers.served import stranger
from eagletui.providers.transport import HttpReply, HttpTransport

BASE_URL: Final = "https://openrouter.ai/api/v1"
HEADERS: Final = {"X-OpenRouter-Title": "EagleTUI", "X-OpenRouter-Metadata": "enabled"}
"""The second makes replies say which endpoints were tried and what the router did to the prompt."""
PER_MILLION: Final = 1_000_000


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
        records = self._decode(reply, EndpointsBody, "endpoints").data.endpoints
        listed = [read_endpoint(record, self._routing.typed_price) for record in records]
        self._tags = tags_by_name(listed)
        listed = [told_apart(endpoint, listed) for endpoint in listed]
        kept = [endpoint for endpoint in listed if fits(endpoint, self._routing)]
        if not kept:
            raise ConfigError(why_none(self._model_id, listed, self._routing))
        return kept

    async def send(self, request: ChatRequest, on_headers: OnHeaders) -> RawReply:
        """Send one request and receive its body."""
        return await self._transport.chat(request, encode(self.request_body(request)), on_headers)

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
            raise unreadable("key", error) from error

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
            raise unreadable("credits", error) from error

    def _decode(self, reply: HttpReply, shape: type[Any], what: str) -> Any:
        if reply.status != 200:
            raise self._transport.failure(reply)
        try:
            return decode_as(reply.body, shape)
        except ReplyError as error:
            raise unreadable(what, error) from error


def _moment(value: object) -> datetime | None:
    """Read a time of the API; without a zone it is UTC."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment


def _per_million(price: Price) -> dict[str, Decimal]:
    return {
        "prompt": price.prompt_usd_per_token * PER_MILLION,
        "completion": price.completion_usd_per_token * PER_MILLION,
        "request": price.request_usd,
    }
