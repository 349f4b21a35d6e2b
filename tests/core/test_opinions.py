"""What an opinion makes of a label, worked out by hand."""

from dataclasses import replace

import pytest

from eagletui.core.findings import WRONG_FORMAT, Finding
from eagletui.core.likelihood import Likelihood
from eagletui.core.opinions import Answer, Doubts, Opinion, Question, canonical_ids, differing_spans, obstacle, rule
from eagletui.core.sampling import Sampling
from eagletui.core.tokdiff import align
from eagletui.core.vocabulary import Vocabulary

CONFLICT = Answer(
    id="s",
    endpoint="",
    evidence="conflict",
    usability="resegmented",
    reason="2 tokens counted and 3 billed",
    billed=3,
    offset=0,
    tail_trimmed=False,
    question=Question((9,), (1, 2), Sampling(), 3),
    canonical=(1, 2),
)
COUNTED = replace(
    CONFLICT,
    evidence="counted",
    usability="usable",
    reason="",
    billed=2,
    question=Question((9,), (1, 2), Sampling(), 2),
)


def _opinion(ids: tuple[int, ...], posterior: float) -> Opinion:
    return Opinion(ids, posterior, 1.5, (-1.0,) * len(ids), Likelihood(), 10)


def test_a_sure_cut_with_the_billed_count_is_inferred() -> None:
    ruling = rule(CONFLICT, _opinion((1, 3, 4), 0.97))
    assert (ruling.ids, ruling.evidence, ruling.usability) == ((1, 3, 4), "inferred", "usable")
    assert (ruling.offset, ruling.drift, ruling.tail_trimmed) == (0, 0, False)
    assert ruling.reason == (
        "The target model gives this cut a probability of 0.970; it is 1.5 nats more likely than the one before"
    )


def test_a_likely_cut_replaces_only_ids_that_are_wrong_as_they_are() -> None:
    likely = rule(CONFLICT, _opinion((1, 3, 4), 0.6))
    assert (likely.evidence, likely.usability) == ("inferred", "resegmented")
    kept = rule(COUNTED, _opinion((3, 4), 0.6))
    assert (kept.ids, kept.evidence, kept.usability, kept.drift) == ((1, 2), "counted", "usable", 0)
    assert kept.reason == "The target model gives its likeliest cut a probability of 0.60, below 0.9"


def test_a_conflict_with_counts_that_are_in_doubt_is_no_sign_that_ids_are_wrong() -> None:
    doubted = replace(CONFLICT, is_bill_sound=False, question=replace(CONFLICT.question, length=None))
    kept = rule(doubted, _opinion((1, 3, 4), 0.6))
    assert (kept.ids, kept.evidence, kept.usability) == ((1, 2), "conflict", "resegmented")
    assert kept.reason.endswith("a probability of 0.60, below 0.9")
    assert rule(doubted, _opinion((1, 3, 4), 0.97)).evidence == "inferred"
    assert doubted.fingerprint("m") != replace(doubted, is_bill_sound=True).fingerprint("m")


@pytest.mark.parametrize("ids", [(1, 2), (1, 3, 4, 5)])
def test_a_cut_without_the_billed_count_leaves_the_conflict(ids: tuple[int, ...]) -> None:
    ruling = rule(CONFLICT, _opinion(ids, 0.99))
    assert (ruling.ids, ruling.evidence, ruling.drift) == ((1, 2), "conflict", 1)
    assert ruling.reason.startswith("2 tokens counted and 3 billed; the target model finds")


def test_tokens_hidden_by_a_cut_are_an_offset_and_a_trimmed_tail() -> None:
    cut = replace(CONFLICT, question=replace(CONFLICT.question, cut=True))
    ruling = rule(cut, _opinion((1, 2), 0.99))
    assert (ruling.evidence, ruling.offset, ruling.drift, ruling.tail_trimmed) == ("inferred", 1, 0, True)


def test_a_text_that_ends_inside_a_token_is_compared_as_far_as_whole_tokens_go() -> None:
    vocabulary = Vocabulary.from_pieces({0: b"a", 1: b"b", 2: b"ab", 3: b" ", 4: b" \xf0"}, {})
    assert differing_spans((2,), (2, 3), vocabulary) == ()
    (span,) = differing_spans((0, 1), (2, 3), vocabulary)
    assert (span.offset, span.length, span.a_ids, span.b_ids) == (0, 2, (0, 1), (2,))
    cut = replace(CONFLICT, question=replace(CONFLICT.question, length=2, cut=True))
    ruling = rule(cut, replace(_opinion((1,), 0.99), behind=1))
    assert (ruling.ids, ruling.evidence, ruling.tail_trimmed) == ((1,), "inferred", True)
    uncounted = rule(replace(cut, question=replace(cut.question, length=None)), replace(_opinion((1,), 0.99), behind=1))
    assert uncounted.tail_trimmed


def test_ids_are_never_taken_away_altogether() -> None:
    cut = replace(CONFLICT, question=replace(CONFLICT.question, length=1, cut=True))
    ruling = rule(cut, replace(_opinion((), 0.99), behind=2))
    assert (ruling.ids, ruling.evidence, ruling.tail_trimmed) == ((1, 2), "conflict", False)


def test_proved_doubted_and_promptless_answers_are_not_asked_about() -> None:
    assert obstacle("served", "usable", (1,), (9,), "b") == "already served"
    assert obstacle("counted", "text_suspect", (1,), (9,), "b") == "the answer is text_suspect"
    assert obstacle("counted", "usable", (), (9,), "") == "no ids"
    assert obstacle("counted", "usable", (1,), None, "b") == "the prompt's ids are not known"
    assert obstacle("conflict", "resegmented", (1,), (9,), "b") is None


def test_a_text_with_characters_that_stand_for_unknown_bytes_is_not_asked_about() -> None:
    assert (obstacle("counted", "usable", (1,), (9,), "b\ufffdc") or "").startswith("the text has U+FFFD")


def test_findings_keep_the_arbiter_from_doubted_texts_and_counts() -> None:
    doubts = Doubts.of(
        [
            Finding("constant", "", 9, 10, None, WRONG_FORMAT, "a/fp8"),
            Finding("counts", "", 9, 10, None, "No count is trusted here.", "b/fp8"),
        ]
    )
    assert doubts.obstacle("a/fp8") == "the finding constant doubts the text"
    assert doubts.obstacle("b/fp8") is None
    assert doubts.counts == {"b/fp8"}
    assert Doubts.of([Finding("glue", "", 9, 10, None, WRONG_FORMAT)]).obstacle("any") is not None


def test_spans_lead_back_to_the_canonical_ids() -> None:
    vocabulary = Vocabulary.from_pieces({0: b"a", 1: b"b", 2: b"ab", 3: b"c"}, {})
    sampled, canonical = (0, 1, 3, 2), (2, 3, 2)
    assert canonical_ids(sampled, align(sampled, canonical, vocabulary), vocabulary) == canonical
