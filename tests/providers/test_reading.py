"""What hides behind status 200."""

import json
from decimal import Decimal

import pytest

from eagletui.providers.base import Encoding, ProviderFailure, RawReply
from eagletui.providers.reading import read_reply

USAGE = {"prompt_tokens": 10, "completion_tokens": 2, "cost": Decimal("0.000012500001")}
CUT = ProviderFailure("body_cut", "The connection broke while the reply arrived.")


def raw(body: bytes, encoding: Encoding = "json", cut: ProviderFailure | None = None) -> RawReply:
    return RawReply(
        encoding=encoding,
        body=body,
        http_status=200,
        generation_id="gen-1",
        started_at=0.0,
        headers_at=1.0,
        first_event_at=None,
        ended_at=2.0,
        cut=cut,
    )


def document(**changes: object) -> bytes:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hi there"}}
    whole = {"id": "gen-1", "model": "m", "choices": [choice], "usage": USAGE, **changes}
    return json.dumps(whole, default=float).encode()


def stream(*events: object, done: bool = True) -> bytes:
    lines = [b": OPENROUTER PROCESSING\n\n"]
    lines += [b"data: " + json.dumps(event, default=float).encode() + b"\n\n" for event in events]
    return b"".join(lines) + (b"data: [DONE]\n\n" if done else b"")


def delta(text: str, finish: str | None = None) -> dict[str, object]:
    return {"id": "gen-1", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}


BILL = {"id": "gen-1", "choices": [], "usage": USAGE}


def failure(body: bytes, encoding: Encoding = "json", cut: ProviderFailure | None = None) -> ProviderFailure:
    with pytest.raises(ProviderFailure) as caught:
        read_reply(raw(body, encoding, cut))
    return caught.value


def test_a_whole_reply_is_an_answer_with_its_exact_cost() -> None:
    for reply in (
        read_reply(raw(document())),
        read_reply(raw(stream(delta("Hi "), delta("there", "stop"), BILL), "sse")),
    ):
        assert (reply.content, reply.finish_reason) == ("Hi there", "stop")
        assert reply.usage is not None
        assert reply.usage.cost_pico_usd == 12_500_001


def test_two_finish_chunks_are_one_answer() -> None:
    body = stream(delta("Hi"), delta("", "stop"), delta("", "stop"), BILL)
    assert read_reply(raw(body, "sse")).content == "Hi"


def test_an_error_body_with_status_200_is_a_failure() -> None:
    found = failure(b'{"error":{"code":429,"message":"slow down","metadata":{"error_type":"rate_limit_exceeded"}}}')
    assert (found.kind, found.void, found.retryable) == ("rate_limited", False, True)


def test_an_error_inside_a_choice_is_a_failure() -> None:
    choice = {"index": 0, "finish_reason": None, "error": {"code": 502, "message": "upstream"}, "message": {}}
    assert failure(document(choices=[choice])).kind == "unavailable"


def test_an_error_in_mid_stream_is_a_failure_and_its_stated_cost_is_kept() -> None:
    broken = {
        "id": "gen-1",
        "error": {"code": 502, "message": "gone", "metadata": {"error_type": "provider_unavailable"}},
        "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}],
        "usage": USAGE,
    }
    found = failure(stream(delta("Hi"), broken, done=False), "sse")
    assert (found.kind, found.void, found.cost_pico_usd) == ("unavailable", False, 12_500_001)


def test_the_word_error_in_an_answer_is_no_error() -> None:
    assert read_reply(raw(document(note='the "error" key'))).content == "Hi there"
    assert read_reply(raw(stream(delta('{"error": "quoted"}'), delta("", "stop"), BILL), "sse")).finish_reason == "stop"


def test_empty_choices_are_a_failure_that_may_have_been_billed() -> None:
    found = failure(document(choices=[]))
    assert (found.kind, found.void, found.retryable) == ("empty_choices", False, True)
    assert found.cost_pico_usd == 12_500_001


def test_a_stream_that_ends_in_order_without_a_finish_reason_is_incomplete() -> None:
    assert failure(stream(delta("Hi")), "sse").kind == "incomplete"
    assert failure(stream(), "sse").kind == "not_json"


def test_a_cut_before_the_end_is_that_cut() -> None:
    assert failure(stream(delta("Hi"), done=False), "sse", CUT) is CUT
    assert failure(stream(delta("Hi"), done=False)[:-9], "sse", CUT) is CUT
    assert failure(b'{"choices": [{"mess', "json", CUT) is CUT
    assert failure(stream(delta("Hi", "stop"), done=False), "sse", CUT) is CUT


def test_a_cut_after_the_usage_loses_nothing() -> None:
    body = stream(delta("Hi", "stop"), BILL, done=False)
    for broken_end in (b"", b"data: [DO", b'data: {"id": "gen-', b": OPENROU"):
        assert read_reply(raw(body + broken_end, "sse", CUT)).content == "Hi"


RUNNING = {**delta("Hi"), "usage": {"prompt_tokens": 10, "completion_tokens": 1, "cost": 0}}


@pytest.mark.parametrize("events", [[RUNNING], [RUNNING, delta("!")], [RUNNING, delta("!", "stop")]])
def test_the_running_cost_of_a_stream_that_was_cut_is_no_bill(events: list[object]) -> None:
    cut = ProviderFailure("event_timeout", "No further event.")
    found = failure(stream(*events, done=False), "sse", cut)
    assert found is cut
    assert found.cost_pico_usd is None


def test_the_running_cost_before_an_error_in_mid_stream_is_no_bill() -> None:
    broken = {"id": "gen-1", "error": {"code": 502, "message": "gone"}}
    ends = [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]
    for event in (broken, {**broken, "choices": ends}):
        assert failure(stream(RUNNING, event, done=False), "sse").cost_pico_usd is None
    assert failure(stream(RUNNING, {**broken, "choices": ends, "usage": USAGE}), "sse").cost_pico_usd == 12_500_001


def test_a_stream_without_a_finish_reason_has_a_bill_only_if_it_was_ended_in_order() -> None:
    assert failure(stream(delta("Hi"), BILL), "sse").cost_pico_usd == 12_500_001
    assert failure(stream(delta("Hi"), BILL, done=False), "sse").cost_pico_usd is None


def test_bytes_that_are_not_json_are_a_failure() -> None:
    found = failure(b"upstream connect error")
    assert (found.kind, found.void, found.retryable) == ("not_json", False, True)
