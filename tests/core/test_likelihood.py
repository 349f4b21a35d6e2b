"""Findings from likelihoods, with figures worked out by hand."""

import pytest

from eagletui.core.likelihood import Likelihood, Structure, impostor_finding, structure_findings


def _answers(own: float, expected: float, variance: float, number: int = 10) -> list[tuple[str, Likelihood]]:
    return [(f"s{index}", Likelihood(100, own, expected, variance)) for index in range(number)]


def test_likelihoods_add() -> None:
    total = Likelihood(100, -210.0, -200.0, 150.0) + Likelihood(100, -190.0, -200.0, 150.0)
    assert total == Likelihood(200, -400.0, -400.0, 300.0)
    assert total.off == 0.0
    assert Likelihood(100, -180.0, -200.0, 400.0).off == pytest.approx(0.2)
    assert Likelihood(100, -180.0, -200.0, 400.0).sigmas == pytest.approx(1.0)


@pytest.mark.parametrize(("own", "side"), [(-240.0, "less"), (-160.0, "more")])
def test_answers_that_are_too_likely_or_too_unlikely_are_another_models(own: float, side: str) -> None:
    finding = impostor_finding("far/fp4", _answers(own, -200.0, 200.0))
    assert finding is not None
    assert finding.kind == "impostor"
    assert finding.endpoint == "far/fp4"
    # 400 nats over 1,000 tokens; the sum's standard error is the root of 2,000.
    assert f"0.40 nats a token {side} likely" in finding.sentence
    assert "9 standard errors over 1,000 tokens" in finding.sentence
    assert (finding.affected, finding.examined) == (10, 10)


def test_the_targets_own_answers_are_no_finding() -> None:
    assert impostor_finding("", _answers(-203.0, -200.0, 200.0)) is None
    assert impostor_finding("", _answers(-206.0, -200.0, 20_000.0)) is None


def test_few_tokens_say_nothing() -> None:
    assert impostor_finding("", _answers(-300.0, -200.0, 200.0, number=3)) is None


def test_a_structural_token_that_was_hardly_sampled_is_named_with_its_worst_place() -> None:
    (finding,) = structure_findings(
        [Structure("a", "</think>", -0.1), Structure("b", "</think>", -14.0), Structure("b", "<end>", -0.2)]
    )
    assert (finding.kind, finding.affected, finding.examined, finding.example) == ("structure", 1, 2, "b")
    assert "'</think>'" in finding.sentence
    assert "-14.0" in finding.sentence
