"""An endpoint that goes wrong is noticed within 200 answers, and a sound one is not."""

import random
from itertools import count

import pytest

from eagletui.config.sections import CheckSection
from eagletui.core.answer_traits import INDEX, TRAITS, traits_of
from eagletui.engine.content_watch import ContentWatch
from eagletui.engine.watch import BREACHES, CHECKED_KINDS, Watch
from tests.soak.answers import MIXTURES, Answers
from tests.soak.degradations import DEGRADATIONS
from tests.soak.watch import PROMISED, Show, until_stopped

ALL = next(mixture for mixture in MIXTURES if mixture.name == "all")


@pytest.mark.parametrize("name", ["tool calls, unknown name", "half as long"])
def test_a_degradation_is_noticed_within_the_promised_answers(name: str) -> None:
    stopped, finding, others = until_stopped(Answers(5), DEGRADATIONS[name], random.Random(5), endpoints=2)
    assert stopped is not None
    assert stopped <= PROMISED
    assert finding is not None
    assert f"of the last {finding.examined}" in finding.sentence
    assert finding.example is not None
    assert "quarantine e0 --since 2" in finding.action
    assert others == 0


def test_sound_answers_of_every_kind_of_job_raise_nothing() -> None:
    for mixture in MIXTURES:
        answers, show = Answers(3), Show()
        for _ in range(260):
            assert show.answer("e", answers.draw(mixture)) == ()


def test_a_finding_stands_until_as_many_sound_answers_have_come_and_outlives_the_engine() -> None:
    answers, show, dice = Answers(2), Show(), random.Random(2)
    for _ in range(100):
        show.answer("e", DEGRADATIONS["refusals"](answers.draw(ALL), dice))
    finding = next(finding for finding in show.watch.findings("e") if finding.kind == "refusal")
    later = Show(ContentWatch(lambda: 0.0))
    later.watch.restore([finding])
    assert later.watch.findings("e") == (finding,)
    after = next(number for number in count(1) if not later.answer("e", answers.draw(ALL)))
    assert 150 <= after <= 200


def test_five_wrong_canaries_in_a_row_are_enough() -> None:
    answers, watch = Answers(6), ContentWatch(lambda: 0.0)
    for number in range(60):
        exchange = answers.draw(ALL)
        traits = traits_of(exchange.reply, exchange.prompt)
        if number % 10 == 0:
            values = (*traits.values[: INDEX["canary"]], 1.0, *traits.values[INDEX["canary"] + 1 :])
            traits = traits._replace(values=values)
        watch.see("e", f"s{number}", traits)
    finding = next(finding for finding in watch.findings("e") if finding.kind == "canary")
    assert "6 of the last 6 answers to canary prompts miss what they must hold" in finding.sentence


def test_canaries_rarer_than_the_window_are_judged_by_the_last_of_them() -> None:
    answers, watch = Answers(6), ContentWatch(lambda: 0.0)
    found: list[int] = []
    for number in range(1, 2_101):
        exchange = answers.draw(ALL)
        traits = traits_of(exchange.reply, exchange.prompt)
        if number % 100 == 0:
            missed = float(number >= 1_500)
            values = (*traits.values[: INDEX["canary"]], missed, *traits.values[INDEX["canary"] + 1 :])
            traits = traits._replace(values=values)
        watch.see("e", f"canary-{number}", traits)
        if any(finding.kind == "canary" for finding in watch.findings("e")):
            found.append(number)
    assert 1_900 <= found[0] < 1_900 + 15, "the fifth wrong answer in a row"
    finding = next(finding for finding in watch.findings("e") if finding.kind == "canary")
    assert (finding.affected, finding.examined) == (5, 5)


def test_memory_is_bounded_however_many_kinds_of_prompt_come() -> None:
    answers, watch = Answers(1), ContentWatch(lambda: 0.0)
    exchange = answers.draw(ALL)
    traits = traits_of(exchange.reply, exchange.prompt)
    for number in range(3_000):
        watch.see("e", f"s{number}", traits._replace(stratum=f"set {number}", digest=number))
    seen = watch._endpoints["e"]
    assert len(seen.window) == 150
    assert len(seen.recent) <= 150
    assert len(seen.past) <= 201


def test_every_kind_of_shift_breaks_the_check_and_is_closed_again() -> None:
    kinds = {trait.kind for trait in TRAITS if trait.kind}
    assert kinds <= set(BREACHES) <= set(CHECKED_KINDS)


def test_a_shift_is_a_breach_once_and_failing_requests_are_named_without_one() -> None:
    watch, answers, dice = Watch(CheckSection(), clock=lambda: 0.0), Answers(4), random.Random(4)
    for number in range(100):
        exchange = DEGRADATIONS["empty"](answers.draw(ALL), dice)
        watch.look("e", f"s{number}", traits_of(exchange.reply, exchange.prompt))
        watch.ended("e", f"s{number}", failed=number % 3 > 0)
    (review,) = watch.review()
    assert "empty" in [breach.kind for breach in review.breaches]
    failures = next(finding for finding in review.findings if finding.kind == "failures")
    assert "66 of the last 100 requests failed" in failures.sentence
    assert watch.review() == []
