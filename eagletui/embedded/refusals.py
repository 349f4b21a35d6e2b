"""Refusals and failures before any answer, as data: each row is a fault kind of its name."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any, Final, Literal

from aiohttp import web

from eagletui.embedded import wire
from eagletui.embedded.exchange import Exchange

FaultKind = Callable[..., Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error answer with a status of its own."""

    name: str
    status: int
    does: str
    """One sentence for people who write scripts."""
    message: str
    """Default of the parameter `message`."""
    error_type: str
    retry_after: Literal["seconds", "date"] | None = None
    """How `Retry-After` is written; None: the header is absent."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """Beside `error_type`."""
    availability: str | None = None
    """OpenRouter's `availability.code`, where the refusal is about routing."""


REFUSALS: Final = (
    Refusal(
        "http_400",
        400,
        "Refuse a request whose prompt does not fit the context.",
        "This endpoint's maximum context length is 2048 tokens.",
        "context_length_exceeded",
    ),
    Refusal("http_401", 401, "Refuse the key itself.", "User not found.", "authentication"),
    Refusal(
        "http_402",
        402,
        "Refuse for lack of credits.",
        "This request requires more credits, or fewer max_tokens.",
        "payment_required",
    ),
    Refusal(
        "http_403",
        403,
        "Refuse because the key's limit is reached.",
        "Key limit exceeded (total limit).",
        "forbidden",
    ),
    Refusal(
        "http_403_budget",
        403,
        "Refuse because a workspace's budget is used up, as a payment of the wrong status.",
        "Workspace budget exceeded for this month.",
        "payment_required",
    ),
    Refusal(
        "http_403_moderation",
        403,
        "Refuse the prompt as flagged by moderation.",
        "Your chosen model requires moderation and your input was flagged.",
        "content_policy_violation",
        metadata={"reasons": ["violence"], "flagged_input": "a flagged pass..."},
    ),
    Refusal(
        "http_404_price",
        404,
        "Refuse because no endpoint is as cheap as the request's ceiling.",
        "No endpoints found that satisfy provider.max_price.",
        "constraint_filtered",
        availability="constraint_filtered",
    ),
    Refusal(
        "http_408",
        408,
        "Refuse as timed out; a client cannot know whether work was done.",
        "Request Timeout",
        "timeout",
    ),
    Refusal("http_413", 413, "Refuse a request that is too large.", "Payload Too Large", "invalid_request"),
    Refusal(
        "http_422",
        422,
        "Refuse a field of the request as one that cannot be processed.",
        "tools.0.function: Field required",
        "unprocessable",
    ),
    Refusal(
        "http_429",
        429,
        "Refuse as rate limited, with Retry-After in seconds.",
        "Rate limit exceeded.",
        "rate_limit_exceeded",
        "seconds",
    ),
    Refusal(
        "http_429_date",
        429,
        "Refuse as rate limited, with Retry-After as an HTTP date.",
        "Rate limit exceeded.",
        "rate_limit_exceeded",
        "date",
    ),
    Refusal(
        "http_429_bare",
        429,
        "Refuse as rate limited, without a word on when to come back.",
        "Provider returned error",
        "rate_limit_exceeded",
        metadata={"raw": "Too many requests, please wait before trying again."},
    ),
    Refusal("http_500", 500, "Fail inside the server.", "Internal Server Error", "server"),
    Refusal("http_502", 502, "Fail behind the router.", "Provider returned error", "provider_unavailable"),
    Refusal(
        "http_503",
        503,
        "Refuse as overloaded, with Retry-After in seconds.",
        "The provider is overloaded.",
        "provider_overloaded",
        "seconds",
    ),
    Refusal(
        "http_503_route",
        503,
        "Refuse because no provider meets the routing rules now.",
        "No provider meets your routing requirements.",
        "provider_overloaded",
        availability="overloaded",
    ),
    Refusal("http_529", 529, "Refuse as overloaded, the way a vendor's own API does.", "Overloaded", "overloaded"),
)
"""Statuses and types from https://openrouter.ai/docs/api_reference/errors-and-debugging."""


def refusal_kinds() -> dict[str, FaultKind]:
    """Return a fault kind for each row, by name."""
    return {row.name: _kind(row) for row in REFUSALS}


def _kind(row: Refusal) -> FaultKind:
    async def refuse(exchange: Exchange, *, message: str = row.message, billed: bool = False) -> web.StreamResponse:
        return await _answer(row, exchange, message, billed, None)

    async def refuse_for_a_while(
        exchange: Exchange, *, message: str = row.message, billed: bool = False, retry_after_s: int = 1
    ) -> web.StreamResponse:
        return await _answer(row, exchange, message, billed, retry_after_s)

    kind: FaultKind = refuse if row.retry_after is None else refuse_for_a_while
    kind.__name__ = row.name
    kind.__doc__ = f"{row.does} `billed`: after an answer was generated and billed."
    return kind


async def _answer(
    row: Refusal, exchange: Exchange, message: str, billed: bool, retry_after_s: int | None
) -> web.StreamResponse:
    if billed:
        await exchange.bill(await exchange.generate())
    if retry_after_s is not None:
        exchange.headers["Retry-After"] = _written(row, retry_after_s)
    error = wire.error_object(row.status, message, error_type=row.error_type, availability=row.availability)
    error["metadata"] |= row.metadata
    return await exchange.send_json(row.status, {"error": error})


def _written(row: Refusal, seconds: int) -> str:
    if row.retry_after == "date":
        return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)
    return str(seconds)
