"""The figures of the dashboard, hand-computed over a small run."""

from dataclasses import replace

import pytest

from eagletui.ledger.orders import Failed, Feature, Finished
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.writer import LedgerWriter
from eagletui.ledger.writer_extract import ExtractorWriter
from tests.ledger.build import CAP, HOLD, STOP_AT, Clock, answer, queue, send, tokens


def test_an_empty_run_shows_zeros_where_nothing_happened_and_unknown_where_nothing_is_known(
    reader: LedgerReader, clock: Clock
) -> None:
    snapshot = reader.snapshot()
    assert snapshot.at == clock.now
    assert set(snapshot.states.values()) == {0}
    assert set(snapshot.states) == {
        "queued", "in_flight", "answered", "tokenized", "failed", "refused", "quarantined",
    }  # fmt: skip
    assert set(snapshot.attempts) == {"held", "sent", "settled", "unsettled", "void"}
    assert (snapshot.samples, snapshot.answered, snapshot.in_flight, snapshot.last_event_id) == (0, 0, 0, 0)
    assert snapshot.spend.per_million_usable_pico is None
    assert snapshot.drift.percent is None
    assert snapshot.rate is None
    assert snapshot.latency is None
    assert (snapshot.endpoints, snapshot.datasets, snapshot.workers, snapshot.findings) == ((), (), (), ())


def test_every_figure_of_a_small_run(writer: LedgerWriter, reader: LedgerReader) -> None:
    queue(writer, *"abcd", dataset="prose")
    queue(writer, *"efgh", dataset="code")
    writer.upsert_endpoint("alpha", "Alpha")
    # a: proved and exact. b: resegmented, 4 too many billed. c: cut, counted. d: failed once for money, then given up.
    writer.finish([Finished(send(writer, 1), answer(100, result=tokens((1, 2, 3), evidence="logprobs")))])
    spans = replace(tokens((1, 2), evidence="conflict", usability="resegmented", drift=4), spans=())
    writer.finish([Finished(send(writer, 2), answer(200, result=spans, billed_output=6))])
    cut = tokens((1,) * 10, evidence="counted")
    writer.finish(
        [Finished(send(writer, 3), answer(50, endpoint="beta", result=cut, finish_reason="length", billed_output=10))]
    )
    writer.finish([Finished(send(writer, 4), Failed("settled", "mid_stream", "cut", cost_pico=30, retry_at=1.0))])
    writer.finish([Finished(send(writer, 4), Failed("void", "http_400", "no"))])
    send(writer, 5)
    send(writer, 6, endpoint="beta")
    writer.finish([Finished(send(writer, 7), Failed("unsettled", "timeout", "no event", retry_at=1.0))])
    writer.adjust_unattributed(7, [], "found on the key")
    writer.set_limited_by("cap")
    with ExtractorWriter(writer.path) as extractor:
        extractor.commit_shard("shards/000001.safetensors", [Feature(1, 0, 5, 1)], size_bytes=900, xxh3="0")

    snapshot = reader.snapshot()
    states = {state: count for state, count in snapshot.states.items() if count}
    assert states == {"tokenized": 3, "failed": 1, "in_flight": 2, "queued": 2}
    assert (snapshot.samples, snapshot.answered, snapshot.in_flight) == (8, 3, 2)
    assert snapshot.attempts == {"held": 0, "sent": 2, "settled": 4, "unsettled": 1, "void": 1}
    assert (snapshot.retries, snapshot.failures) == (1, 3)

    tokens_ = snapshot.tokens
    assert (tokens_.prompt, tokens_.output, tokens_.billed_prompt, tokens_.billed_output) == (6, 15, 6, 19)
    assert tokens_.trainable == 15

    books = snapshot.spend.books
    assert (books.settled_pico, books.held_pico, books.unsettled_pico) == (380, 2 * HOLD, HOLD)
    assert (books.unattributed_pico, books.stop_at_pico, books.cap_pico) == (7, STOP_AT, CAP)
    assert snapshot.spend.wasted_pico == 30
    assert snapshot.spend.per_million_usable_pico == 387 * 1_000_000 // 15

    assert snapshot.evidence == {"logprobs": 1, "conflict": 1, "counted": 1}
    assert snapshot.usability == {"usable": 2, "resegmented": 1}
    assert snapshot.finish_reasons == {"stop": 2, "length": 1}
    assert (snapshot.drift.tokens, snapshot.drift.samples) == (4, 1)
    assert snapshot.drift.percent == pytest.approx(100 * 4 / 19)
    assert snapshot.resegmented == 0, "no spans are stored"

    alpha, beta = snapshot.endpoints
    assert (alpha.tag, alpha.samples, alpha.failures, alpha.truncated, alpha.in_flight) == ("alpha", 2, 3, 0, 1)
    assert (alpha.billed_output, alpha.output, alpha.drift_tokens, alpha.cost_pico) == (9, 5, 4, 300)
    assert alpha.drift_percent == pytest.approx(100 * 4 / 9)
    assert alpha.evidence == {"logprobs": 1, "conflict": 1}
    assert alpha.row is not None
    assert (beta.tag, beta.row, beta.truncated, beta.in_flight, beta.cost_pico) == ("beta", None, 1, 1, 50)

    assert snapshot.extracted == 1
    extract = snapshot.extract
    assert (extract.shards, extract.rows, extract.bytes, extract.pending) == (1, 5, 900, 2)
    assert snapshot.limited_by == "cap"

    code, prose = snapshot.datasets
    assert (code.name, code.samples, prose.name, prose.samples) == ("code", 4, "prose", 4)
    assert (prose.states["tokenized"], prose.states["failed"], code.states["in_flight"]) == (3, 1, 2)
    assert (prose.tokens.output, code.tokens.output) == (15, 0)
    assert (prose.drift_tokens, prose.drifting, prose.extracted, prose.cost_pico) == (4, 1, 1, 350)
    assert prose.usability == {"usable": 2, "resegmented": 1}


def test_latency_is_the_nearest_rank_over_the_last_500_answers(
    writer: LedgerWriter, reader: LedgerReader, clock: Clock
) -> None:
    writer.set_cap(10**9)
    writer.set_stop_at(10**9)
    queue(writer, *(f"k{n}" for n in range(505)))
    with writer.transaction(durable=True):
        for sample in range(1, 506):
            clock.now += 1
            # The first five are slow and fall out of the window; then 1 to 500 hundredths of a second.
            latency_s = 99.0 if sample <= 5 else (sample - 5) / 100
            writer.finish([Finished(send(writer, sample), answer(1, latency_s=latency_s))])
    latency = reader.snapshot().latency
    assert latency is not None
    assert (latency.p50_s, latency.p95_s, latency.samples) == (2.5, 4.75, 500)


def test_the_rate_is_taken_over_the_last_minute_and_unknown_once_the_ticks_are_old(
    writer: LedgerWriter, reader: LedgerReader, clock: Clock
) -> None:
    queue(writer, *"abcdefgh")
    writer.tick()
    assert reader.snapshot().rate is None, "one tick is no rate"
    for sample in range(1, 5):
        clock.now += 10
        writer.finish([Finished(send(writer, sample), answer(100, result=tokens()))])
        writer.tick()
    rate = reader.snapshot().rate
    assert rate is not None
    assert (rate.window_s, rate.samples_per_s, rate.output_tokens_per_s, rate.pico_per_s) == (40, 0.1, 0.3, 10.0)
    clock.now += 30
    writer.tick()
    rate = reader.snapshot().rate
    assert rate is not None
    assert (rate.window_s, rate.samples_per_s) == (60, 3 / 60)
    clock.now += 11
    assert reader.snapshot().rate is None


def test_a_second_tick_in_the_same_second_replaces_the_first(writer: LedgerWriter, reader: LedgerReader) -> None:
    queue(writer, "a")
    writer.tick()
    writer.finish([Finished(send(writer, 1), answer(100, result=tokens()))])
    writer.tick()
    (tick,) = reader.ticks(0)
    assert (tick.answered, tick.output_tokens, tick.settled_pico, tick.in_flight) == (1, 3, 100, 0)


def test_a_snapshot_is_one_moment_though_a_writer_goes_on(writer: LedgerWriter, reader: LedgerReader) -> None:
    queue(writer, *"ab")
    with reader.moment():
        before = reader.snapshot()
        send(writer, 1)
        assert reader.snapshot() == before
    assert reader.snapshot().in_flight == 1
