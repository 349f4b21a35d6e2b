from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from eagletui.core.quantization import differing, kind_of
from eagletui.core.subset import Candidate, choose, nothing_fits

ANY = st.lists(
    st.builds(
        Candidate,
        key=st.text(max_size=3),
        dataset=st.sampled_from("abc"),
        tokens=st.integers(1, 500),
        is_there=st.booleans(),
    ),
    max_size=40,
    unique_by=lambda candidate: candidate.key,
)


def _tokens(candidates: list[Candidate], chosen: list[int]) -> int:
    return sum(candidates[index].tokens for index in chosen)


@given(ANY, st.integers(0, 5000))
def test_the_budget_is_never_passed_and_nothing_is_chosen_twice(candidates: list[Candidate], budget: int) -> None:
    chosen = choose(candidates, budget)
    there = sum(candidate.tokens for candidate in candidates if candidate.is_there)
    assert chosen == sorted(set(chosen))
    assert not any(candidates[index].is_there for index in chosen)
    assert _tokens(candidates, chosen) <= max(0, budget - there)


@given(ANY, st.integers(0, 5000))
def test_nothing_is_left_out_that_would_fit(candidates: list[Candidate], budget: int) -> None:
    chosen = choose(candidates, budget)
    rest = budget - _tokens(candidates, chosen) - sum(one.tokens for one in candidates if one.is_there)
    left_out = [one.tokens for i, one in enumerate(candidates) if not one.is_there and i not in chosen]
    assert all(tokens > rest for tokens in left_out)


def test_a_budget_below_every_sample_is_named() -> None:
    candidates = [Candidate("a", "x", 70), Candidate("b", "x", 1_200)]
    assert nothing_fits(candidates, 69) == "No sample fits into a budget of 69 tokens: the shortest has 70."
    assert nothing_fits(candidates, 70) is None
    assert nothing_fits([*candidates, Candidate("c", "x", 80, is_there=True)], 69) is None


@given(ANY)
def test_a_budget_for_everything_takes_everything(candidates: list[Candidate]) -> None:
    total = sum(candidate.tokens for candidate in candidates)
    assert choose(candidates, total) == [i for i, candidate in enumerate(candidates) if not candidate.is_there]


def test_every_data_set_and_length_has_its_share() -> None:
    candidates = [
        Candidate(f"{name}-{tokens}-{number}", name, tokens)
        for name, count in (("code", 600), ("chat", 200))
        for tokens in (100, 1000)
        for number in range(count)
    ]
    total = sum(candidate.tokens for candidate in candidates)
    chosen = [candidates[index] for index in choose(candidates, total // 4)]
    share = Counter((candidate.dataset, candidate.tokens) for candidate in chosen)
    # A quarter of each stratum: of 600, 600, 200 and 200 samples.
    assert [abs(share[key] - want) <= 1 for key, want in (
        (("code", 100), 150), (("code", 1000), 150), (("chat", 100), 50), (("chat", 1000), 50)
    )] == [True] * 4  # fmt: skip
    assert total // 4 - 1000 <= sum(candidate.tokens for candidate in chosen) <= total // 4


def test_a_data_set_that_was_computed_first_takes_nothing_from_the_share_of_the_others() -> None:
    names = [("a", number) for number in range(100)] + [("b", number) for number in range(100)]
    fresh = [Candidate(f"{name}{number}", name, 10) for name, number in names]
    half = choose(fresh, 1000)
    stopped = [
        Candidate(c.key, c.dataset, c.tokens, is_there=c.dataset == "a" and index in half)
        for index, c in enumerate(fresh)
    ]
    rest = choose(stopped, 1000)
    assert Counter(fresh[index].dataset for index in rest) == {"b": 50}


def test_the_order_of_keys_says_nothing_about_the_choice() -> None:
    candidates = [Candidate(f"sample-{number:04}", "a", 10) for number in range(1000)]
    chosen = choose(candidates, 5000)
    assert 180 < sum(index < 400 for index in chosen) < 220


def test_quantizations_are_the_same_where_their_numbers_are_of_one_kind() -> None:
    kinds = {
        "int4": "int4",
        "Q4_1": "int4",
        "Q4_K_M": "int4",
        "IQ4_XS": "int4",
        "compressed-tensors int4": "int4",
        "gptq int4": "int4",
        "Q8_0": "int8",
        "fp8": "fp8",
        "mxfp4": "fp4",
        "fp4": "fp4",
        "bf16": "plain",
        "fp16": "plain",
        "fp32": "plain",
        "float32": "plain",
        "unknown": None,
        "awq": None,
        None: None,
    }
    assert {name: kind_of(name) for name in kinds} == kinds


def test_endpoints_that_serve_other_weights_are_named_and_silent_ones_are_not() -> None:
    served = {"a/int4": "int4", "b/fp8": "fp8", "c": None, "d": "unknown", "e": "bf16"}
    assert differing(served, "compressed-tensors int4") == {"b/fp8": "fp8", "e": "bf16"}
    assert differing(served, None) == {"a/int4": "int4", "b/fp8": "fp8"}
    assert differing(served, "awq") == {}
