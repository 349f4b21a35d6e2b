"""Constants between billed and counted: which are explained, which are faults, and what every label then is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagletui.core.drift import EndpointCounts, Split, Verdict, judge, relabel

STOP = Split("stop", True, False)
PLAIN = Split("stop", False, False)
TOOLS = Split("tool_calls", True, True)
CUT = Split("length", True, False)


def counts(*groups: tuple[Split, int, int]) -> EndpointCounts:
    """(kind of answer, billed - counted, how many)."""
    return EndpointCounts.of((split, excess) for split, excess, number in groups for _ in range(number))


def offset_of(*groups: tuple[Split, int, int]) -> int | None:
    verdict = judge(counts(*groups))
    return verdict.cause.offset if verdict.cause else None


def test_a_stop_token_that_is_not_billed_is_a_named_cause() -> None:
    verdict = judge(counts((STOP, -1, 20), (CUT, 0, 5)))
    assert verdict.cause is not None
    assert (verdict.cause.name, verdict.cause.offset) == ("stop token not billed", -1)
    assert (verdict.offset("stop"), verdict.offset("tool_calls"), verdict.offset("length")) == (-1, -1, 0)
    assert verdict.trusted


def test_some_noise_does_not_hide_a_cause() -> None:
    assert offset_of((STOP, -1, 14), (STOP, 1, 3), (STOP, 0, 3), (CUT, 0, 6), (CUT, 2, 2)) == -1


def test_the_same_constant_on_cut_answers_is_not_that_cause() -> None:
    verdict = judge(counts((STOP, -1, 20), (CUT, -1, 20)))
    assert verdict.cause is None
    assert verdict.constant is not None
    assert verdict.constant.excess == -1
    assert not verdict.trusted


def test_a_constant_on_half_of_the_cut_answers_is_not_that_cause_either() -> None:
    assert offset_of((STOP, -1, 20), (CUT, -1, 10), (CUT, 0, 10)) is None


def test_a_kind_of_answer_that_contradicts_the_cause_refutes_it() -> None:
    assert offset_of((STOP, -1, 40), (TOOLS, 0, 10)) is None


def test_fewer_than_ten_samples_are_provisional_and_teach_nothing() -> None:
    verdict = judge(counts((STOP, -1, 9)))
    assert verdict.provisional
    assert verdict.cause is None
    assert not judge(counts((STOP, 0, 10))).provisional


@pytest.mark.parametrize("excess", [1, 2, -2, -3])
def test_any_other_constant_is_a_fault_and_never_an_offset(excess: int) -> None:
    verdict = judge(counts((STOP, excess, 30)))
    assert verdict.cause is None
    assert verdict.constant is not None
    assert (verdict.constant.excess, verdict.constant.affected, verdict.constant.examined) == (excess, 30, 30)


def test_a_constant_in_one_kind_of_answer_is_found_among_good_ones() -> None:
    verdict = judge(counts((STOP, 0, 100), (PLAIN, 1, 12)))
    assert verdict.constant is not None
    assert "without reasoning" in verdict.constant.where


def test_counts_that_mostly_disagree_are_not_trusted_even_without_a_constant() -> None:
    verdict = judge(counts(*((STOP, excess, 2) for excess in (-3, -2, -1, 0, 1, 2, 3, 4))))
    assert verdict.constant is None
    assert verdict.disagreeing is not None
    assert not verdict.trusted


def test_natural_noise_is_trusted() -> None:
    assert judge(counts((CUT, 0, 70), (CUT, 1, 20), (CUT, 2, 10))).trusted


def test_labels_follow_the_verdict_and_proof_stays_proof() -> None:
    unbilled = judge(counts((STOP, -1, 20)))
    assert relabel("conflict", -1, "stop", unbilled) == "counted"
    assert relabel("counted", 0, "stop", unbilled) == "conflict"
    assert relabel("counted", 0, "length", unbilled) == "counted"
    assert relabel("streamed", -1, "stop", unbilled) == "streamed"
    assert relabel("conflict", None, "stop", unbilled) == "conflict"
    assert relabel("canonical", None, "stop", unbilled) == "canonical"
    faulty = judge(counts((STOP, 2, 20)))
    assert relabel("counted", 0, "stop", faulty) == "conflict"
    assert relabel("counted", 0, "stop", Verdict()) == "counted"


observations = st.lists(st.tuples(st.sampled_from([STOP, PLAIN, TOOLS, CUT]), st.integers(-3, 3)), max_size=60)


@given(observations)
def test_the_verdict_is_a_function_of_the_counts_and_not_of_their_order(seen: list[tuple[Split, int]]) -> None:
    backwards = EndpointCounts()
    for split, excess in reversed(seen):
        backwards = backwards.added(split, excess)
    assert judge(backwards) == judge(EndpointCounts.of(seen))


@given(observations)
def test_an_offset_is_only_ever_the_named_one_and_never_beside_a_fault(seen: list[tuple[Split, int]]) -> None:
    verdict = judge(EndpointCounts.of(seen))
    assert verdict.offset("length") == 0
    assert verdict.offset("stop") in (0, -1)
    if verdict.cause is not None:
        assert verdict.trusted
        assert sum(excess == -1 and split is not CUT for split, excess in seen) >= 5
