"""Endpoints, prices, findings, offsets, quarantine and verdicts."""

from dataclasses import replace
from pathlib import Path

import pytest

from eagletui.core.chat import Message, Prompt
from eagletui.core.drift import STOP_NOT_BILLED, Constant, Verdict
from eagletui.ledger.orders import Finished, NewPrompt
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.reader_counts import CountsReader
from eagletui.ledger.without_engine import quarantine_words
from eagletui.ledger.writer import LedgerWriter
from tests.ledger.build import Clock, answer, answered_sample, queue, send, sql, tokens
from tests.ledger.build import prompt as a_prompt
from tests.ledger.truth import counters, recount

STOP_VERDICT = Verdict(STOP_NOT_BILLED, provisional=False)
NO_OFFSET = Verdict(provisional=False)
DISTRUST = Verdict(provisional=False, constant=Constant(4, 12, 20, "all answers"))


def _answer(
    writer: LedgerWriter,
    sample: int,
    *,
    evidence: str,
    excess: int,
    finish_reason: str = "stop",
    endpoint: str = "alpha",
    speaks: bool = True,
) -> None:
    """Answer a sample whose three counted tokens were billed as three plus the excess."""
    result = replace(
        tokens(evidence=evidence, usability="resegmented" if evidence == "conflict" else "usable", drift=excess),
        offset=0,
        excess=excess if speaks else None,
        ended=finish_reason == "stop",
    )
    outcome = answer(100, endpoint=endpoint, result=result, finish_reason=finish_reason, billed_output=3 + excess)
    writer.finish([Finished(send(writer, sample), outcome)])


def _labels(reader: LedgerReader) -> list[tuple[str | None, int | None, int | None]]:
    return [(row.evidence, row.offset_tokens, row.drift_tokens) for row in reader.rows(range(1, 10))]


def test_a_price_is_recorded_only_when_it_differs_from_the_last(writer: LedgerWriter, reader: LedgerReader) -> None:
    assert writer.add_price("alpha", prompt_usd="0.0000006", completion_usd="0.000003") is True
    assert writer.add_price("alpha", prompt_usd="0.0000006", completion_usd="0.000003") is False
    assert writer.add_price("beta", prompt_usd="0.0000006", completion_usd="0.000003") is True
    assert writer.add_price("alpha", prompt_usd="0.0000006", completion_usd="0.000004") is True
    assert writer.add_price("alpha", prompt_usd="0.0000006", completion_usd="0.000003") is True
    assert [price.completion_usd for price in reader.prices() if price.endpoint == "alpha"] == [
        "0.000003",
        "0.000004",
        "0.000003",
    ]


def test_refreshing_an_endpoint_keeps_its_state_and_offset(writer: LedgerWriter, reader: LedgerReader) -> None:
    writer.upsert_endpoint("alpha", "Alpha Inc", "int4")
    writer.quarantine("alpha", 5.0)
    writer.relabel_endpoint("alpha", STOP_VERDICT)
    writer.upsert_endpoint("alpha", "Alpha Ltd")
    (row,) = reader.endpoints()
    assert (row.provider_name, row.quantization, row.state, row.quarantined_since) == (
        "Alpha Ltd",
        "int4",
        "quarantined",
        5.0,
    )
    assert (row.offset_tokens, row.offset_cause) == (-1, "stop token not billed")


def test_a_finding_is_one_row_that_is_refreshed_closed_and_reopened(
    writer: LedgerWriter, reader: LedgerReader, clock: Clock
) -> None:
    def report(affected: int) -> bool:
        return writer.finding(
            "drift",
            f"alpha bills {affected} answers too high.",
            affected=affected,
            examined=100,
            action="Quarantine alpha.",
            endpoint="alpha",
            example_key="k1",
        )

    assert report(3) is True
    clock.now += 9
    assert report(5) is False
    (finding,) = reader.snapshot().findings
    assert (finding.affected, finding.first_at, finding.last_at) == (5, clock.now - 9, clock.now)
    assert writer.close_finding("drift", "alpha") is True
    assert writer.close_finding("drift", "alpha") is False
    assert reader.snapshot().findings == ()
    assert len(reader.findings()) == 1
    assert report(6) is True
    assert len(reader.snapshot().findings) == 1


def test_an_accepted_offset_relabels_the_answers_it_holds_for_and_no_others(
    writer: LedgerWriter, reader: LedgerReader
) -> None:
    queue(writer, *"abcdefg")
    writer.upsert_endpoint("alpha", "Alpha")
    _answer(writer, 1, evidence="conflict", excess=-1)
    _answer(writer, 2, evidence="counted", excess=0, finish_reason="length")
    _answer(writer, 3, evidence="logprobs", excess=-1)
    _answer(writer, 4, evidence="conflict", excess=4)
    _answer(writer, 5, evidence="conflict", excess=-1, speaks=False)
    _answer(writer, 6, evidence="conflict", excess=-1, endpoint="beta")
    _answer(writer, 7, evidence="counted", excess=0)
    before = _labels(reader)
    usability = reader.snapshot().usability
    assert writer.relabel_endpoint("alpha", STOP_VERDICT) == 5
    assert _labels(reader) == [
        ("counted", -1, 0),
        ("counted", 0, 0),
        ("logprobs", -1, 0),
        ("conflict", -1, 5),
        # Rungs contradict each other here, which no count explains.
        ("conflict", -1, 0),
        ("conflict", 0, -1),
        ("conflict", -1, 1),
    ]
    assert [row.usability for row in reader.rows([1, 4, 5, 7])] == ["usable", *["resegmented"] * 3]
    detail = reader.sample("a")
    assert detail is not None
    assert detail.tokens is not None
    assert detail.tokens.evidence == "counted"
    assert detail.tokens.reason == "3 tokens counted and 2 billed, offset -1 (stop token not billed)."
    assert writer.relabel_endpoint("alpha", STOP_VERDICT) == 0
    assert writer.relabel_endpoint("alpha", NO_OFFSET) == 5
    assert _labels(reader) == before
    assert reader.snapshot().usability == usability


def test_an_endpoint_with_an_unexplained_constant_loses_every_label_that_rests_on_a_count(
    writer: LedgerWriter, reader: LedgerReader
) -> None:
    queue(writer, *"abc")
    _answer(writer, 1, evidence="counted", excess=0)
    _answer(writer, 2, evidence="streamed", excess=0)
    _answer(writer, 3, evidence="conflict", excess=4)
    assert writer.relabel_endpoint("alpha", DISTRUST) == 1
    assert [row.evidence for row in reader.rows([1, 2, 3])] == ["conflict", "streamed", "conflict"]
    assert reader.rows([1])[0].usability == "resegmented"
    detail = reader.sample("a")
    assert detail is not None
    assert detail.tokens is not None
    assert "unexplained constant" in detail.tokens.reason
    assert writer.relabel_endpoint("alpha", NO_OFFSET) == 1
    assert (reader.rows([1])[0].evidence, reader.rows([1])[0].usability) == ("counted", "usable")


def test_an_offset_accepted_during_a_quarantine_shows_after_the_release(
    writer: LedgerWriter, reader: LedgerReader
) -> None:
    queue(writer, "a")
    _answer(writer, 1, evidence="conflict", excess=-1)
    writer.quarantine("alpha")
    writer.relabel_endpoint("alpha", STOP_VERDICT)
    assert reader.rows([1])[0].usability == "model_suspect"
    writer.release("alpha")
    assert (reader.rows([1])[0].evidence, reader.rows([1])[0].usability) == ("counted", "usable")


def test_the_counts_an_endpoint_is_judged_by_come_back_after_a_restart(writer: LedgerWriter, path: Path) -> None:
    queue(writer, *"abc")
    for sample, plain in ((1, -1), (2, -1), (3, None)):
        result = replace(tokens(evidence="streamed", drift=None), plain_excess=plain)
        writer.finish([Finished(send(writer, sample), answer(result=result))])
    with CountsReader(path) as counts:
        groups = counts.counted_groups()
    assert [(group.excess, group.samples, group.proved) for group in groups] == [(None, 1, 1), (-1, 2, 2)]


def test_a_quarantine_sets_aside_what_was_bought_since_and_prices_buying_it_again(
    writer: LedgerWriter, reader: LedgerReader, clock: Clock
) -> None:
    queue(writer, *"abcd")
    answered_sample(writer, 1, cost=10)
    clock.now += 100
    answered_sample(writer, 2, cost=20)
    answered_sample(writer, 3, endpoint="beta", cost=40)
    writer.finish([Finished(send(writer, 4), answer(30))])
    moved = writer.quarantine("alpha", clock.now)
    assert (moved.samples, moved.cost_pico, moved.changed) == (2, 50, True)
    assert [(row.state, row.usability) for row in reader.rows([1, 2, 3, 4])] == [
        ("tokenized", "usable"),
        ("quarantined", "model_suspect"),
        ("tokenized", "usable"),
        ("quarantined", "model_suspect"),
    ]
    assert [item.sample_key for item in reader.to_extract(9)] == ["a", "c"]
    assert [item.row.sample_key for item in reader.to_export(0, 9)] == ["a", "c"]
    assert writer.quarantine("alpha", clock.now)[:3] == (0, 0, False)
    assert writer.quarantine("alpha")[:3] == (1, 10, True)


def test_buying_again_is_priced_at_the_other_endpoints_with_the_tokens_that_were_billed(
    writer: LedgerWriter, reader: LedgerReader
) -> None:
    queue(writer, *"ab")
    for tag, prompt, completion in (
        ("alpha", "0.000001", "0.000001"),
        ("beta", "0.000002", "0.000010"),
        ("gamma", "0.000001", "0.000004"),
        ("closed", "0", "0"),
    ):
        writer.upsert_endpoint(tag, tag)
        writer.add_price(tag, prompt_usd=prompt, completion_usd=completion, request_usd="0.0001")
    writer.quarantine("closed")
    answered_sample(writer, 1)
    answered_sample(writer, 2)
    moved = writer.quarantine("alpha")
    # Two answers of 2 prompt and 3 completion tokens: 4 x P_in + 6 x P_out + 2 x request.
    assert (moved.rebuy_low_pico, moved.rebuy_high_pico) == (228_000_000, 268_000_000)


def test_buying_again_is_not_priced_at_endpoints_that_are_gone(writer: LedgerWriter) -> None:
    queue(writer, "a")
    for tag, completion in (("alpha", "0.000001"), ("beta", "0.000002"), ("gone", "0.000005"), ("excluded", "0")):
        writer.upsert_endpoint(tag, tag)
        writer.add_price(tag, prompt_usd="0", completion_usd=completion)
    answered_sample(writer, 1)
    lanes = {"alpha": {"offered": True}, "beta": {"offered": True}, "gone": {"offered": False}}
    writer.beat("engine", detail={"endpoints": lanes})
    moved = writer.quarantine("alpha")
    assert (moved.rebuy_low_pico, moved.rebuy_high_pico) == (6_000_000, 6_000_000)
    writer.beat("engine", detail={"endpoints": {"alpha": {"offered": True}}})
    writer.release("alpha")
    moved = writer.quarantine("alpha")
    assert (moved.rebuy_low_pico, moved.rebuy_high_pico) == (3_000_000, 3_000_000), "its own price where none is left"


def test_an_answer_on_its_way_when_its_endpoint_is_quarantined_is_set_aside_too(
    writer: LedgerWriter, reader: LedgerReader, clock: Clock
) -> None:
    queue(writer, *"ab")
    attempts = [send(writer, 1), send(writer, 2, endpoint="beta")]
    writer.quarantine("alpha", clock.now)
    clock.now += 5
    for attempt_id, endpoint in zip(attempts, ("alpha", "beta"), strict=True):
        writer.finish([Finished(attempt_id, answer(10, endpoint=endpoint, result=tokens()))])
    assert [row.state for row in reader.rows([1, 2])] == ["quarantined", "tokenized"]
    writer.release("alpha")
    assert [(row.state, row.usability) for row in reader.rows([1])] == [("tokenized", "usable")]


def test_a_suspect_sample_is_bought_again_and_no_release_brings_the_old_answer_back(
    writer: LedgerWriter, reader: LedgerReader, path: Path
) -> None:
    queue(writer, *"abc")
    first = answered_sample(writer, 1, cost=10)
    answered_sample(writer, 2, cost=20)
    answered_sample(writer, 3, cost=40, endpoint="beta")
    writer.quarantine("alpha")
    assert writer.retry(["a", "c"]) == 1
    assert [row.state for row in reader.rows([1, 2, 3])] == ["queued", "quarantined", "tokenized"]
    assert reader.snapshot().spend.wasted_pico == 10
    assert writer.retry([], suspect=True) == 1
    assert writer.retry([], suspect=True) == 0
    writer.finish([Finished(send(writer, 1, endpoint="beta"), answer(5, endpoint="beta", result=tokens((8, 9))))])
    writer.release("alpha")
    (row,) = reader.rows([1])
    assert (row.state, row.endpoint, row.cost_pico, row.output_tokens) == ("tokenized", "beta", 5, 2)
    assert reader.snapshot().spend.books.settled_pico == 75
    assert sql(path, "SELECT id FROM attempts WHERE has_answer ORDER BY id")[0][0] != first
    assert sql(path, "SELECT revision, attempt_id FROM tokens WHERE sample_id = 1") == [(2, 4)]
    assert sql(path, "SELECT count(*) FROM replies") == [(4,)]


def test_what_was_asked_after_a_suspect_answer_is_bought_again_after_the_new_one(
    writer: LedgerWriter, reader: LedgerReader, path: Path
) -> None:
    said = [Message("user" if n % 2 == 0 else "assistant", f"recorded {n}") for n in range(5)]
    talk = NewPrompt("talk", "prose", Prompt(tuple(said)), "recorded 4", turns=(0, 1, 2))
    source = writer.add_source("talk.jsonl", "hash of talk", 4)
    writer.add_prompts([talk, a_prompt("other")], source)
    writer.set_run_state("running")

    def answer_next(text: str | None, endpoint: str) -> None:
        sample = next(sample for sample in writer.claim(5) if sample.key.startswith("talk"))
        turn = "is empty" if text is None else Message("assistant", text)
        given = replace(answer(10, endpoint=endpoint, result=tokens()), next_turn=turn)
        writer.finish([Finished(send(writer, sample.id, endpoint=endpoint), given)])

    answered_sample(writer, 4, endpoint="beta")
    answer_next("gibberish", "alpha")
    answer_next(None, "beta")
    assert [row.state for row in reader.rows([1, 2, 3, 4])] == ["tokenized", "tokenized", "failed", "tokenized"]
    assert writer.quarantine("alpha")[0] == 1
    assert writer.retry([], suspect=True) == 3
    assert [row.state for row in reader.rows([1, 2, 3, 4])] == ["queued", "queued", "queued", "tokenized"]
    assert [sample.key for sample in writer.claim(5)] == ["talk.t0"]
    assert reader.snapshot().spend.wasted_pico == 20
    answer_next("sense", "beta")
    (second,) = writer.claim(5)
    assert [message.content for message in second.prompt.messages] == ["recorded 0", "sense", "recorded 2"]
    answer_next("more sense", "beta")
    answer_next("the end", "beta")
    assert [row.state for row in reader.rows([1, 2, 3])] == ["tokenized"] * 3
    assert counters(path) == recount(path)


def test_the_price_of_buying_again_counts_the_turns_after_suspect_answers(writer: LedgerWriter) -> None:
    said = [Message("user" if n % 2 == 0 else "assistant", f"recorded {n}") for n in range(3)]
    source = writer.add_source("talk.jsonl", "hash of talk", 2)
    writer.add_prompts([NewPrompt("talk", "prose", Prompt(tuple(said)), "recorded 2", turns=(0, 1))], source)
    writer.set_run_state("running")
    writer.upsert_endpoint("beta", "beta", None)
    writer.add_price(
        "beta",
        prompt_usd="0",
        completion_usd="0.000001",
        request_usd="0",
        source="config",
        max_completion_tokens=None,
        raw_json="{}",
    )
    for sample_id, endpoint in ((1, "alpha"), (2, "beta")):
        given = replace(answer(10, endpoint=endpoint, result=tokens()), next_turn=Message("assistant", "x"))
        writer.finish([Finished(send(writer, sample_id, endpoint=endpoint), given)])
    moved = writer.quarantine("alpha")
    assert (moved.samples, moved.later_turns) == (1, 1)
    assert (moved.rebuy_low_pico, moved.rebuy_high_pico) == (6_000_000, 6_000_000)  # six tokens at $1 a million
    assert "1 sample of later turns would be bought again" in quarantine_words("alpha", moved)


def test_a_release_undoes_a_quarantine_completely(writer: LedgerWriter, reader: LedgerReader) -> None:
    queue(writer, *"abc")
    answered_sample(writer, 1, cost=10)
    writer.finish([Finished(send(writer, 2), answer(30))])
    result = tokens(usability="resegmented")
    writer.finish([Finished(send(writer, 3), answer(5, result=result))])
    before = reader.snapshot()
    rows = reader.rows([1, 2, 3])
    writer.upsert_endpoint("alpha", "Alpha")
    writer.quarantine("alpha")
    assert writer.release("alpha")[:3] == (3, 45, True)
    assert reader.rows([1, 2, 3]) == rows
    after = reader.snapshot()
    assert (after.states, after.usability, after.tokens, after.extract) == (
        before.states,
        before.usability,
        before.tokens,
        before.extract,
    )
    assert writer.release("alpha")[:3] == (0, 0, False)


def test_a_rebuild_during_a_quarantine_shows_after_the_release(writer: LedgerWriter, reader: LedgerReader) -> None:
    queue(writer, "a")
    answered_sample(writer, 1)
    writer.quarantine("alpha")
    writer.store_tokens(1, tokens((8, 9), usability="text_suspect"))
    assert (reader.rows([1])[0].state, reader.rows([1])[0].usability) == ("quarantined", "model_suspect")
    writer.release("alpha")
    assert (reader.rows([1])[0].state, reader.rows([1])[0].usability) == ("tokenized", "text_suspect")


@pytest.mark.parametrize("repeat", [1, 2])
def test_a_verdict_is_kept_with_the_name_and_the_rule(
    writer: LedgerWriter, reader: LedgerReader, path: Path, repeat: int
) -> None:
    for _ in range(repeat):
        writer.accept("prose", "same bytes", "Kim", mismatched=13, samples=200)
    assert [
        (verdict.dataset, verdict.rule, verdict.accepted_by, verdict.mismatched, verdict.samples)
        for verdict in reader.verdicts()
    ] == [("prose", "same bytes", "Kim", 13, 200)] * repeat
