"""Every refusal a server can state, and what it means."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from eagletui.core.lifecycle import PAUSE_REASONS
from eagletui.providers.errors import STATUS_RULES, TYPE_RULES, from_error_in_reply, from_status


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 413, 422, 425, 429, 503])
def test_a_refusal_before_the_stream_is_void(status: int) -> None:
    assert from_status(status, {}, b"").void


@pytest.mark.parametrize("status", [408, 500, 502, 504, 520, 524, 529])
def test_a_timeout_or_server_fault_may_have_been_billed_and_is_retried(status: int) -> None:
    failure = from_status(status, {}, b"")
    assert not failure.void
    assert failure.retryable


@pytest.mark.parametrize(
    ("status", "body", "kind", "pause"),
    [
        (402, b'{"error":{"code":402,"message":"can only afford 12 tokens"}}', "credit", "credit"),
        (403, b'{"error":{"code":403,"message":"Key limit exceeded (total limit)"}}', "key_limit", "key_limit"),
        (
            403,
            b'{"error":{"code":403,"message":"Key limit exceeded","metadata":{"error_type":"payment_required"}}}',
            "key_limit",
            "key_limit",
        ),
        (
            403,
            b'{"error":{"code":403,"message":"Workspace budget exceeded for this month."}}',
            "key_limit",
            "key_limit",
        ),
        (403, b'{"error":"Forbidden"}', "key_limit", "key_limit"),
        (403, b"<html>Access denied</html>", "key_limit", "key_limit"),
        (
            403,
            b'{"error":{"message":"Provider returned error","code":403,"metadata":{"raw":{"error":{"code":'
            b'"unsupported_country_region_territory"}},"provider_name":"OpenAI"}}}',
            "forbidden",
            None,
        ),
        (403, b'{"error":{"message":"Your account cannot use this model in your country."}}', "forbidden", None),
        (403, b'{"error":{"code":403,"message":"This endpoint refuses such requests."}}', "forbidden", None),
        (
            403,
            b'{"error":{"code":403,"message":"flagged","metadata":{"provider_name":"Azure","reasons":["hate"]}}}',
            "moderation",
            None,
        ),
        (403, b'{"error":{"code":403,"message":"flagged","metadata":{"reasons":["violence"]}}}', "moderation", None),
        (
            404,
            b'{"error":{"code":404,"message":"No endpoints","availability":{"code":"constraint_filtered"}}}',
            "price",
            "price",
        ),
        (
            404,
            b'{"error":{"code":404,"message":"x","metadata":{"error_type":"model_not_found"}}}',
            "no_endpoint",
            "breaker",
        ),
        (429, b'{"error":{"code":429,"message":"slow down"}}', "rate_limited", None),
        (
            503,
            b'{"error":{"code":503,"message":"busy","metadata":{"error_type":"provider_overloaded"}}}',
            "overloaded",
            None,
        ),
        (502, b"<html>bad gateway</html>", "unavailable", None),
    ],
)
def test_a_refusal_has_its_kind_and_its_pause_reason(status: int, body: bytes, kind: str, pause: str | None) -> None:
    failure = from_status(status, {}, body)
    assert (failure.kind, failure.pause) == (kind, pause)
    assert str(status) in failure.detail


def test_retry_after_is_read_as_seconds_and_as_a_date() -> None:
    assert from_status(429, {"retry-after": "7"}, b"").retry_after_s == 7.0
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    wait_s = from_status(429, {"retry-after": later}, b"").retry_after_s
    assert wait_s is not None
    assert 85 < wait_s <= 90
    assert from_status(429, {"retry-after": "soon"}, b"").retry_after_s is None
    assert from_status(429, {"retry-after": "-3"}, b"").retry_after_s == 0.0


def test_the_routers_availability_overrules_the_status() -> None:
    body = b'{"error":{"code":429,"message":"m","availability":{"code":"x","retryable":false,"retry_after":12.5}}}'
    failure = from_status(429, {}, body)
    assert not failure.retryable
    assert failure.retry_after_s == 12.5


def test_an_error_inside_a_reply_is_never_void() -> None:
    failure = from_error_in_reply({"code": 429, "message": "slow"}, 200)
    assert (failure.kind, failure.void, failure.retryable) == ("rate_limited", False, True)
    failure = from_error_in_reply({"code": 402, "message": "no credit"}, 200)
    assert (failure.void, failure.pause) == (False, "credit")
    assert from_error_in_reply("it broke", 200).kind == "error_in_reply"
    assert from_error_in_reply({"code": [], "message": {"deep": 1}}, 200).kind == "error_in_reply"


def test_words_of_a_server_are_cleaned_and_short() -> None:
    body = b'{"error":{"message":"\\u001b[31mred\\u0007 ' + b"x" * 5000 + b'"}}'
    detail = from_status(500, {}, body).detail
    assert "\x1b" not in detail
    assert "\x07" not in detail
    assert len(detail) < 400


def test_every_pause_named_by_a_rule_exists() -> None:
    for rule in (*STATUS_RULES.values(), *TYPE_RULES.values()):
        assert rule.pause is None or rule.pause in PAUSE_REASONS
