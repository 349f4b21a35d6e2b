"""What the inspector makes of a sample."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from eagletui.core.tokdiff import align, lanes
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.reader_samples import SampleDetail
from eagletui.tui.end_token import expected_end
from eagletui.tui.inspection import apply_spans, cause, describe_side, inspect, tail_rows, tail_verdict
from tests.tui.factory import Built, tokenizer
from tests.tui.test_lane_lines import VOCABULARY


def detail_of(built: Built, key: str) -> SampleDetail:
    with LedgerReader(built.ledger) as reader:
        detail = reader.sample(built.keys[key])
    assert detail is not None
    return detail


@given(st.lists(st.integers(0, 15), max_size=60), st.lists(st.integers(0, 15), max_size=60))
def test_the_second_list_is_rebuilt_from_the_first_and_the_spans(a: list[int], b: list[int]) -> None:
    assert list(apply_spans(a, align(a, b, VOCABULARY), VOCABULARY)) == b


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


def test_every_kind_of_span_has_a_cause_in_words() -> None:
    def first(a: list[int], b: list[int]) -> str:
        return next(cause(lane, VOCABULARY) for lane in lanes(a, b, VOCABULARY) if lane.kind != "=")

    assert first([5, 6, 7], [8]).startswith("The model wrote a character in pieces (3 tokens)")
    assert first([0, 1], [2]).startswith("The model cut the text otherwise than the tokenizer would.")
    assert first([3, 0], [3, 1]).startswith("The texts differ")
    assert first([3, 5, 6], [3]).startswith("The answer was cut in mid-character")
    assert "the API stripped them" in first([3, 15], [3])
    assert "the model did not sample them" in first([3], [3, 4])


def test_a_side_of_a_span_is_written_as_ids_and_bytes() -> None:
    assert describe_side((5, 6, 7), VOCABULARY) == ("[5, 6, 7]", "e2 | 80 | 94")
    assert describe_side((), VOCABULARY) == ("none", "")
    assert describe_side((0,) * 30, VOCABULARY)[0].endswith("and 6 more]")


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
