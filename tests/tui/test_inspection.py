"""What the inspector makes of a sample."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from eagletui.core.tokdiff import align, lanes
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.reader_samples import SampleDetail
from eagletui.tui.end_token import expected_end
from eagletui.tui.inspection import inspect, lanes_of, tail_rows, tail_verdict
from tests.tui.factory import Built, tokenizer
from tests.tui.test_lane_lines import VOCABULARY


def detail_of(built: Built, key: str) -> SampleDetail:
    with LedgerReader(built.ledger) as reader:
        detail = reader.sample(built.keys[key])
    assert detail is not None
    return detail


@given(st.lists(st.integers(0, 15), max_size=60), st.lists(st.integers(0, 15), max_size=60))
def test_both_tokenizations_are_put_together_from_the_first_and_the_spans(a: list[int], b: list[int]) -> None:
    assert lanes_of(a, align(a, b, VOCABULARY), VOCABULARY) == lanes(a, b, VOCABULARY)


def test_a_proved_sample_is_compared_with_the_canonical_encoding(busy: Built) -> None:
    vocabulary = tokenizer().vocabulary
    detail = detail_of(busy, "spans2")
    shown = inspect(detail, vocabulary)
    assert shown is not None
    assert shown.is_compared
    assert [lane.kind for lane in shown.spans] == ["~", "~"]
    assert detail.tokens is not None
    canonical = tokenizer().encode(detail.tokens.raw.removesuffix("<|im_end|>"))
    rebuilt = [token_id for lane in shown.lanes for token_id in lane.b_ids]
    assert rebuilt == [*canonical, vocabulary.special_id("<|im_end|>")]


def test_a_counted_sample_gets_no_invented_alignment(busy: Built) -> None:
    shown = inspect(detail_of(busy, "counted"), tokenizer().vocabulary)
    assert shown is not None
    assert not shown.is_compared
    assert shown.spans == ()
    assert shown.note.startswith("Counted only; no ids are proved.")


def test_a_failed_sample_has_nothing_to_inspect(busy: Built) -> None:
    assert inspect(detail_of(busy, "failed"), tokenizer().vocabulary) is None


def test_an_id_outside_the_vocabulary_is_named_instead_of_aligned(busy: Built) -> None:
    detail = detail_of(busy, "spans1")
    assert detail.tokens is not None
    ids: Any = [999_999]
    shown = inspect(replace(detail, tokens=replace(detail.tokens, output_ids=ids)), tokenizer().vocabulary)
    assert shown is not None
    assert "Id 999999 is not in this run's vocabulary" in shown.note


def test_a_span_is_placed_by_byte_and_token_among_all(busy: Built) -> None:
    shown = inspect(detail_of(busy, "spans2"), tokenizer().vocabulary)
    assert shown is not None
    assert (shown.bytes_of(0), shown.token_of(0)) == ("bytes 13-17 of 112", "token 5 of 29")
    assert [difference.token for difference in shown.differences] == [4, 12]


def test_ids_that_contradict_a_bill_are_shown_beside_the_canonical_ones(busy: Built) -> None:
    detail = detail_of(busy, "spans1")
    assert detail.tokens is not None
    shown = inspect(replace(detail, tokens=replace(detail.tokens, evidence="conflict")), tokenizer().vocabulary)
    assert shown is not None
    assert shown.is_compared
    assert shown.a_name == "stored"
    assert (
        shown.differences[0]
        .cause(tokenizer().vocabulary, "stored")
        .endswith("nothing proves which of the two the model sampled.")
    )


def test_the_tail_spells_each_id_alone_and_in_context() -> None:
    rows = tail_rows([3, 5, 6, 7, 15, 99], VOCABULARY)
    assert [(row.kind, row.alone) for row in rows] == [
        ("ordinary", "·kept"),
        ("ordinary", "<E2>"),
        ("ordinary", "<80>"),
        ("ordinary", "<94>"),
        ("special", "<|im_end|>"),
        ("unknown", "no such token"),
    ]
    assert rows[4].context == "·kept—[<|im_end|>]"
    assert len(tail_rows([0] * 100, VOCABULARY)) == 12


def test_a_wrong_end_token_is_told_from_the_right_one() -> None:
    expected = expected_end("smollm2", "stop")
    assert expected == "<|im_end|>"
    assert tail_verdict([3, 15], VOCABULARY, expected, "stop")[1]
    sentence, good = tail_verdict([3, 0], VOCABULARY, expected, "stop")
    assert not good
    assert sentence == "<|im_end|> (15) should end the answer, but the last id is 0: a"
    assert tail_verdict([3, 0], VOCABULARY, expected_end("smollm2", "length"), "length")[1]
    assert not tail_verdict([], VOCABULARY, expected, "stop")[1]
    assert not tail_verdict([0], VOCABULARY, "<|eot|>", "stop")[1]


def test_an_unknown_format_expects_no_end_token() -> None:
    assert expected_end("no-such-format", "stop") is None
    assert expected_end("../smollm2", "stop") is None
