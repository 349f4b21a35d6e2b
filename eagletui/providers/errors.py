"""One map from what HTTP clients and servers say to `ProviderFailure`.

A failure is void only if no byte of the request was written, or the server refused it before any work: 4xx (but 408)
and 503 before a stream. Everything else may have been billed.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

import aiohttp
import httpx
import msgspec

from eagletui.core.errors import ReplyError
from eagletui.core.lifecycle import PauseReason
from eagletui.core.text import clean_line
from eagletui.providers.base import FailureKind, ProviderFailure
from eagletui.providers.decoding import decode_as

DETAIL_CHARACTERS: Final = 300
MAX_RETRY_AFTER_S: Final = 3600.0
TIMED_OUT: Final = 408
"""The one 4xx that may have been billed: see `from_status`."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What one kind of refusal means."""

    kind: FailureKind
    retryable: bool = True
    pause: PauseReason | None = None


STATUS_RULES: Final[Mapping[int, Rule]] = {
    400: Rule("bad_request", retryable=False),
    401: Rule("unauthorized", retryable=False, pause="key_limit"),
    402: Rule("credit", retryable=False, pause="credit"),
    403: Rule("key_limit", retryable=False, pause="key_limit"),
    404: Rule("no_endpoint", retryable=False, pause="breaker"),
    413: Rule("bad_request", retryable=False),
    422: Rule("bad_request", retryable=False),
    429: Rule("rate_limited"),
    500: Rule("server_error"),
    502: Rule("unavailable"),
    503: Rule("overloaded"),
    529: Rule("overloaded"),
}
"""By HTTP status, or by the `error.code` inside a reply. 4xx not named here is retried, other 5xx is a server error."""

TYPE_RULES: Final[Mapping[str, Rule]] = {
    "rate_limit_exceeded": Rule("rate_limited"),
    "provider_overloaded": Rule("overloaded"),
    "provider_unavailable": Rule("unavailable"),
    "timeout": Rule("server_error"),
    "server": Rule("server_error"),
    "context_length_exceeded": Rule("bad_request", retryable=False),
    "max_tokens_exceeded": Rule("bad_request", retryable=False),
    "token_limit_exceeded": Rule("bad_request", retryable=False),
    "content_policy_violation": Rule("moderation", retryable=False),
    "refusal": Rule("moderation", retryable=False),
    "payment_required": Rule("credit", retryable=False, pause="credit"),
    "constraint_filtered": Rule("price", retryable=False, pause="price"),
    "model_not_found": Rule("no_endpoint", retryable=False, pause="breaker"),
    "model_deprecated": Rule("no_endpoint", retryable=False, pause="breaker"),
    "no_endpoints": Rule("no_endpoint", retryable=False, pause="breaker"),
    "privacy_restricted": Rule("no_endpoint", retryable=False, pause="breaker"),
}
"""By `metadata.error_type` or `availability.code` (OpenRouter errors page), which are finer than the status."""


_FORBIDDEN: Final = Rule("forbidden")
"""A 403 that is one endpoint's: another may answer."""
_OF_THE_PLACE: Final = re.compile(r"\b(region|country|countries|territory|location|geo\w*)\b", re.IGNORECASE)
_OF_THE_KEY: Final = re.compile(
    r"\b(keys?|limits?|budgets?|credits?|balance|quota|spend\w*|payment|billing|workspace|account|organi[sz]ation|"
    r"guardrails?|permissions?|forbidden|denied|unauthori[sz]ed|authori[sz]ed)\b",
    re.IGNORECASE,
)
"""Words of a 403 about the key and what stands behind it."""


class _Metadata(msgspec.Struct):
    error_type: str | None = None
    provider_name: Any = None
    reasons: Any = None
    flagged_input: Any = None
    raw: Any = None


class _Availability(msgspec.Struct):
    code: str | None = None
    retryable: bool | None = None
    retry_after: float | None = None


class _Error(msgspec.Struct):
    message: Any = None
    code: int | str | None = None
    type: str | None = None
    metadata: _Metadata | None = None
    availability: _Availability | None = None


class _ErrorBody(msgspec.Struct):
    error: _Error | str | None = None
    message: str | None = None
    detail: Any = None


Hide = Callable[[str], str]
"""Takes secrets out of a text. Words are cut short, and a secret that is cut is found no more, so it comes first."""

_NEVER_SENT: Final = (
    aiohttp.ClientConnectorError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.InvalidURL,
    aiohttp.NonHttpUrlClientError,
    httpx.InvalidURL,
)
"""Raised before there is a connection, or for an address that none is made to."""


def from_transport(error: Exception, *, headers_seen: bool, hide: Hide = str) -> ProviderFailure:
    """Map an HTTP client's exception.

    httpx-aiohttp 0.2 raises the same `httpx.ConnectTimeout` for "connection refused" and for "disconnected after
    the request was received"; only `__cause__` tells them apart. aiohttp raises `ClientConnectorError` and
    `ConnectionTimeoutError` only before a connection exists, and never sends a POST twice.

    Args:
        error: an `httpx` or `aiohttp` exception.
        headers_seen: the response headers had arrived.
        hide: takes the key out of the exception's words.
    """
    cause = error.__cause__ or error
    what = clean_line(hide(f"{type(cause).__name__}: {cause}"), DETAIL_CHARACTERS)
    if headers_seen:
        return ProviderFailure("body_cut", f"The connection broke while the reply arrived ({what}).")
    if isinstance(cause, _NEVER_SENT):
        return ProviderFailure("connect", f"No connection to the provider ({what}).", void=True)
    return ProviderFailure("disconnect", f"The connection broke after the request was sent ({what}).")


def from_status(status: int, headers: Mapping[str, str], body: bytes, hide: Hide = str) -> ProviderFailure:
    """Map an HTTP error answer that came before any stream.

    A 4xx or 503 was refused before any work and costs nothing, but for 408: long answers that are not streamed end
    with it where a relay's patience does, after the model has worked, and are billed in full (OpenRouter's pages on
    errors and on streaming).

    Args:
        status: of HTTP, not 200.
        headers: of the answer.
        body: as far as it was read.
        hide: takes the key out of the server's words.
    """
    error = decode_error(body)
    rule = _rule(status, error)
    words = _words(error, hide) or clean_line(hide(body.decode("utf-8", "replace")), DETAIL_CHARACTERS)
    retry_after_s = _retry_after_s(headers.get("retry-after"))
    availability = error.availability if error else None
    retryable = rule.retryable
    if availability is not None:
        if availability.retryable is not None:
            retryable = availability.retryable
        if retry_after_s is None and availability.retry_after is not None:
            retry_after_s = min(max(availability.retry_after, 0.0), MAX_RETRY_AFTER_S)
    return ProviderFailure(
        rule.kind,
        f"HTTP {status}: {words or 'no explanation'}",
        void=(400 <= status < 500 and status != TIMED_OUT) or status == 503,
        retryable=retryable,
        retry_after_s=retry_after_s,
        http_status=status,
        pause=rule.pause,
    )


def from_error_in_reply(error: object, http_status: int) -> ProviderFailure:
    """Map an `error` object that came inside a reply with status 200, whose body was kept without secrets.

    It may have been billed.
    """
    record = _convert_error(error)
    code = record.code if record else None
    rule = _rule(code if isinstance(code, int) else None, record)
    kind: FailureKind = rule.kind if rule.kind != "server_error" else "error_in_reply"
    return ProviderFailure(
        kind,
        f"The reply carries an error: {_words(record) or 'no explanation'}",
        retryable=rule.retryable,
        http_status=http_status,
        pause=rule.pause,
    )


def decode_error(body: bytes) -> _Error | None:
    """Read the `error` object of an error body, or None when there is none."""
    try:
        decoded = decode_as(body, _ErrorBody)
    except ReplyError:
        return None
    if isinstance(decoded.error, str):
        return _Error(message=decoded.error)
    if decoded.error is not None:
        return decoded.error
    text = decoded.message or decoded.detail
    return _Error(message=text) if text else None


def _convert_error(error: object) -> _Error | None:
    if isinstance(error, str):
        return _Error(message=error)
    try:
        return msgspec.convert(error, type=_Error, strict=False)
    except msgspec.ValidationError:
        return _Error(message=str(error))


def _rule(status: int | None, error: _Error | None) -> Rule:
    metadata = error.metadata if error else None
    names = (
        metadata.error_type if metadata else None,
        error.availability.code if error and error.availability else None,
    )
    for name in names:
        rule = TYPE_RULES.get(name) if name is not None else None
        if rule is not None and not (status == 403 and rule.pause == "credit"):
            return rule  # A 403 about payment is the key's own limit, not the account's balance.
    if status == 403 and metadata is not None and (metadata.reasons or metadata.flagged_input):
        return Rule("moderation", retryable=False)
    if status == 403 and error is not None and _is_of_the_endpoint(error):
        return _FORBIDDEN
    if status is None:
        return Rule("error_in_reply")
    if status in STATUS_RULES:
        return STATUS_RULES[status]
    return Rule("server_error") if status >= 500 or status in (TIMED_OUT, 409, 425) else Rule("unexpected_status")


def _is_of_the_endpoint(error: _Error) -> bool:
    """Tell a 403 that a provider behind the router or its place gives from one about the key; no words are the key's.

    A router hands on what a provider said with the provider's name beside it.
    """
    words = _words(error)
    if error.metadata is not None and error.metadata.provider_name:
        return True
    return bool(words) and (_OF_THE_PLACE.search(words) is not None or _OF_THE_KEY.search(words) is None)


def _words(error: _Error | None, hide: Hide = str) -> str:
    if error is None or error.message is None:
        return ""
    parts = [str(error.message)]
    if error.metadata and error.metadata.error_type:
        parts.append(f"({error.metadata.error_type})")
    if error.metadata and isinstance(error.metadata.raw, str):
        parts.append(error.metadata.raw)
    return clean_line(hide(" ".join(parts)), DETAIL_CHARACTERS)


def _retry_after_s(value: str | None) -> float | None:
    """Read a `Retry-After` header: seconds or an HTTP date (RFC 9110, 10.2.3)."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError, OverflowError):
            return None
    return None if math.isnan(seconds) else min(max(seconds, 0.0), MAX_RETRY_AFTER_S)
