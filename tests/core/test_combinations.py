"""Combinations of changes, against all of them written out."""

from itertools import combinations, pairwise
from math import exp, inf, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagletui.core.alternatives import Change
from eagletui.core.combinations import Combination, Lengths, Weighed, best_combinations, log_sum, log_total

changes = st.lists(
    st.builds(
        lambda start, size, weight, growth: Weighed(Change(start, start + size, (start, size)), weight, growth),
        st.integers(0, 8),
        st.integers(1, 4),
        st.floats(-6, 6).map(lambda weight: round(weight, 3)),
        st.integers(-2, 2),
    ),
    max_size=7,
    unique_by=lambda one: one.change,
)
lengths = st.one_of(
    st.just(Lengths()),
    st.builds(
        Lengths, st.dictionaries(st.integers(-3, 3), st.floats(-5, 0), max_size=3), st.sampled_from([-inf, -7.0, 0.0])
    ),
)


def _written_out(weighed: list[Weighed], wanted: Lengths) -> list[Combination]:
    found = []
    for size in range(len(weighed) + 1):
        for chosen in combinations(sorted(weighed, key=lambda one: one.change.start), size):
            if all(one.change.end <= other.change.start for one, other in pairwise(chosen)):
                weight = sum(one.weight for one in chosen) + wanted.weight(sum(one.growth for one in chosen))
                if weight > -inf:
                    found.append(Combination(weight, tuple(one.change for one in chosen)))
    return sorted(found, key=lambda way: -way.weight)


@given(changes, lengths)
def test_the_best_combinations_are_the_best_of_all(weighed: list[Weighed], wanted: Lengths) -> None:
    expected = _written_out(weighed, wanted)[:5]
    found = best_combinations(weighed, wanted, 5)
    assert [way.weight for way in found] == pytest.approx([way.weight for way in expected])
    known = {way.changes: way.weight for way in _written_out(weighed, wanted)}
    for way in found:
        assert known[way.changes] == pytest.approx(way.weight)


@given(changes, lengths)
def test_the_total_is_that_of_all_combinations(weighed: list[Weighed], wanted: Lengths) -> None:
    expected = sum(exp(way.weight) for way in _written_out(weighed, wanted))
    assert log_total(weighed, wanted) == (pytest.approx(log(expected)) if expected else -inf)


def test_no_change_is_a_combination_where_its_length_may_be() -> None:
    assert best_combinations([], Lengths(), 3) == [Combination(0.0, ())]
    assert best_combinations([], Lengths({1: 0.0}, -inf), 3) == []
    assert log_total([], Lengths({1: 0.0}, -inf)) == -inf


def test_lengths_beyond_a_growth_name_the_same_tokenizations() -> None:
    wanted = Lengths({2: -1.0}, -7.0)
    assert [wanted.beyond(1).weight(growth) for growth in (1, 2)] == [-1.0, -7.0]


def test_the_sum_of_nothing_is_nothing() -> None:
    assert log_sum() == -inf
    assert log_sum(-inf, 0.0) == 0.0
    assert log_sum(1000.0, 1000.0) == pytest.approx(1000.0 + log(2))
