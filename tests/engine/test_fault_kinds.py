"""Every fault kind of the embedded provider, by name, and what the engine makes of it."""

from typing import NamedTuple

from eagletui.embedded.fault_kinds import KINDS, kind_rows
from tests.engine.books import assert_books_agree
from tests.engine.conftest import NewRun
from tests.provider_fixture import StartProvider


class Case(NamedTuple):
    """A fault that hits the first attempt of one sample."""

    kind: str
    attempt: str
    """State that the attempt ends in; `unsettled` here: never known by id, settled in sum."""
    error: str | None
    """None: the attempt is the answer."""
    sample: str = "tokenized"
    evidence: str | None = "logprobs"
    usability: str | None = "usable"
    params: str = "{}"


STREAMED: tuple[Case, ...] = (
    Case("http_400", "void", "bad_request", "failed", None, None),
    Case("http_403_moderation", "void", "moderation", "refused", None, None),
    Case("http_408", "unsettled", "server_error"),
    Case("http_413", "void", "bad_request", "failed", None, None),
    Case("http_422", "void", "bad_request", "failed", None, None),
    Case("http_429", "void", "rate_limited", params="{ retry_after_s = 0 }"),
    Case("http_429_date", "void", "rate_limited", params="{ retry_after_s = 0 }"),
    Case("http_429_bare", "void", "rate_limited"),
    Case("http_500", "unsettled", "server_error"),
    Case("http_502", "settled", "unavailable", params="{ billed = true }"),
    Case("http_503", "void", "overloaded", params="{ retry_after_s = 0 }"),
    Case("http_503_route", "void", "overloaded"),
    Case("http_529", "unsettled", "overloaded"),
    Case("http_524", "unsettled", "server_error"),
    Case("redirect", "unsettled", "unexpected_status"),
    Case("html_from_edge", "unsettled", "not_json"),
    Case("html_from_edge", "unsettled", "unavailable", params="{ status = 502 }"),
    Case("error_in_200", "settled", "unavailable", params="{ billed = true }"),
    Case("empty_choices", "settled", "empty_choices"),
    Case("mid_stream_error", "settled", "unavailable"),
    Case("disconnect_before_headers", "unsettled", "disconnect"),
    Case("disconnect_after_headers", "settled", "body_cut"),
    Case("no_generation_id", "unsettled", "body_cut"),
    Case("slow", "settled", None, params="{ first_token_s = 0.1, tokens_per_s = 5000.0 }"),
    Case("slow_trickle", "settled", None),
    Case("stalled_stream", "settled", "event_timeout"),
    Case("keep_alive_flood", "settled", None),
    Case("wrong_content_type", "settled", None),
    Case("gzip_garbage", "settled", "not_json"),
    Case("truncated_json", "settled", "not_json"),
    Case("two_finish_chunks", "settled", None),
    Case("duplicate_chunk", "settled", None, evidence="conflict", usability="text_suspect"),
    Case("missing_done", "settled", None),
    Case("missing_finish", "settled", "incomplete"),
    Case("reordered_fields", "settled", None),
    Case("nan_logprobs", "settled", None),
    Case("empty_answer", "settled", None, evidence="counted", usability="unusable"),
    Case("content_filter", "settled", None, usability="unusable"),
    Case("other_model", "settled", None, "quarantined", usability="model_suspect"),
    Case("no_usage", "settled", None),
    Case("no_cost", "settled", None),
    Case("usage_only_chunk", "settled", None),
    Case("usage_on_choice", "settled", None),
    Case("odd_cost", "settled", None, params='{ form = "string" }'),
    Case("odd_cost", "settled", None, params='{ form = "float" }'),
    Case("odd_cost", "settled", None, params='{ form = "exponent" }'),
    Case("excess_reasoning", "settled", None),
    Case("late_bill", "settled", "server_error", params="{ after_s = 0.2 }"),
    Case("late_generation", "settled", None),
)
"""What a stream with logprobs makes of each. A case with an error is asked a second time and answered."""

PAUSING: tuple[tuple[str, str, str], ...] = (
    ("http_401", "key_limit", "User not found"),
    ("http_402", "credit", "more credits"),
    ("http_403", "key_limit", "Key limit exceeded"),
    ("http_403_budget", "key_limit", "Workspace budget exceeded"),
    ("http_404_price", "price", "max_price"),
    ("overbilled", "breaker", "above the bound"),
)
"""Faults that concern the whole run: its pause reason, and words of its message."""


def script(cases: list[tuple[str, str]]) -> str:
    rows = (
        f'[[fault]]\nkind = "{kind}"\nmatch = {{ prompt_contains = "case {number:02d}" }}\nparams = {params}\ntimes = 1'
        for number, (kind, params) in enumerate(cases)
    )
    return "\n".join(rows)


def prompts(number: int) -> list[str]:
    return [f"This is case {case:02d}." for case in range(number)]


def test_every_fault_of_one_answer_ends_as_it_must_and_the_books_agree(
    new_run: NewRun, start_provider: StartProvider
) -> None:
    provider = start_provider(script([(case.kind, case.params) for case in STREAMED]))
    run = new_run(
        provider.api_url,
        prompts(len(STREAMED)),
        provider={"only": ["embedded/logprobs"]},
        pace={"event_timeout_s": 2.0},
        max_in_flight=len(STREAMED),
    )
    assert run.finish() == 1, run.log()
    with run.reader() as reader:
        found = [reader.sample(f"p{number:04d}") for number in range(len(STREAMED))]
    for case, sample in zip(STREAMED, found, strict=True):
        assert sample is not None
        first = sample.attempts[0]
        got = Case(
            case.kind,
            first.state,
            first.error_kind,
            sample.row.state,
            sample.row.evidence,
            sample.row.usability,
            case.params,
        )
        assert got == case
        assert first.released == (case.attempt == "unsettled"), case
        asked_again = case.error is not None and case.sample == "tokenized"
        assert len(sample.attempts) == 1 + asked_again, case
    assert_books_agree(run, provider)


def test_every_fault_that_concerns_the_run_pauses_it_and_a_resume_goes_on(
    new_run: NewRun, start_provider: StartProvider
) -> None:
    kinds = [kind for kind, _, _ in PAUSING]
    provider = start_provider(script([(kind, "{}") for kind in [*kinds, "key_wrong"]]))
    run = new_run(
        provider.api_url,
        prompts(len(kinds) + 1),
        max_in_flight=1,
        provider={"only": ["embedded/text"]},
        check={"on_breach": "pause"},
    )
    process = run.start()
    for kind, reason, words in PAUSING:
        run.until(lambda reader: reader.run().state == "paused", f"a pause by {kind}")
        found = run.snapshot().run
        assert found.pause_reason == reason, kind
        assert words in (found.pause_detail or ""), kind
        run.order("resume")
    assert run.wait(process) == 1, "the last look at the key found money that no request explains"
    assert run.snapshot().states["tokenized"] == len(kinds) + 1
    named = [finding for finding in run.snapshot().findings if finding.kind == "key_usage"]
    assert "$0.5000 more" in named[0].sentence
    assert run.snapshot().spend.books.spent_pico == provider.books()["spent_pico"]
    attempts = sorted(run.attempts(), key=lambda attempt: attempt.id)
    (dearest,) = [attempt.cost_pico for attempt in attempts if (attempt.cost_pico or 0) > attempt.hold_pico]
    assert dearest is not None
    assert attempts[-1].hold_pico >= dearest, "its ratio is learned"


def test_every_kind_is_named_above_and_says_what_it_does() -> None:
    named = {case.kind for case in STREAMED} | {kind for kind, _, _ in PAUSING} | {"key_wrong"}
    assert named == set(KINDS)
    assert len(KINDS) >= 25
    assert all(len(row.does) > 20 for row in kind_rows())
