import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import Gemma3nTextConfig, LlamaConfig

from eagletui.extract.pack import Budget, budget_of, plan_packs


@given(st.lists(st.integers(1, 300), max_size=60), st.integers(1, 200))
def test_every_sample_is_in_one_row_and_no_shared_row_passes_the_budget(lengths: list[int], budget: int) -> None:
    packs = plan_packs(lengths, budget)
    assert sorted(index for pack in packs for index in pack) == list(range(len(lengths)))
    assert all(len(pack) == 1 or sum(lengths[index] for index in pack) <= budget for pack in packs)


def test_short_samples_fill_the_room_beside_long_ones_and_the_longest_comes_first() -> None:
    assert plan_packs([90, 10, 60, 40, 500], 100) == ((4,), (0, 1), (2, 3))


@pytest.mark.parametrize(("inner", "longest"), [(128, 1024), (2048, 1024), (3072, 682), (4096, 512), (14336, 512)])
def test_rows_of_narrow_models_are_longer_on_a_cpu_if_a_sample_is_so_long(inner: int, longest: int) -> None:
    budget = budget_of("cpu", LlamaConfig(intermediate_size=inner))
    assert [budget.among(tokens) for tokens in (1, 512, 600, 5000)] == [512, 512, min(600, longest), longest]


def test_rows_elsewhere_are_as_long_for_every_model_and_sample() -> None:
    budgets = [budget_of("cuda", LlamaConfig(intermediate_size=inner)) for inner in (128, 14336)]
    assert {budget.among(tokens) for budget in budgets for tokens in (1, 50_000)} == {16_384}


def test_a_config_without_an_inner_size_is_taken_for_one_of_four_times_the_hidden_size() -> None:
    config = Gemma3nTextConfig(hidden_size=768)
    assert isinstance(config.intermediate_size, list)
    assert budget_of("cpu", config).among(5000) == 682


def test_after_a_row_was_too_long_no_sample_makes_rows_longer_than_half_of_it() -> None:
    assert [Budget.after(900).among(tokens) for tokens in (1, 5000)] == [450, 450]
    assert Budget.after(1).among(5000) == 1
