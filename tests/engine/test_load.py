"""How many samples are streamed: as many as the CPU carries, with a clock of its own."""

import pytest

from eagletui.engine.load import LEAST_SHARE, Strain, StreamShare
from eagletui.engine.spread import Manner

EASY = Strain(cores=0.3, lag_s=0.01, unjudged=0)
STREAM = Manner("stream", stream=True, logprobs=False)
LOGPROBS = Manner("logprobs", stream=True, logprobs=True)


@pytest.mark.parametrize(
    "strain", [Strain(0.9, 0.0, 0), Strain(0.1, 0.3, 0), Strain(0.1, 0.0, 70)], ids=["cores", "lag", "unjudged"]
)
def test_each_kind_of_strain_cuts_the_share_once_in_three_seconds_and_never_to_nothing(strain: Strain) -> None:
    share = StreamShare()
    share.look(strain, 10.0)
    share.look(strain, 12.9)
    assert share.share == pytest.approx(0.7)
    for second in range(13, 100):
        share.look(strain, float(second))
    assert share.share == LEAST_SHARE


def test_the_share_grows_back_slowly_and_stays_where_the_cpu_is_just_enough() -> None:
    share = StreamShare(share=0.5)
    share.look(Strain(cores=0.75, lag_s=0.0, unjudged=0), 10.0)
    assert share.share == 0.5
    share.look(EASY, 20.0)
    assert share.share == pytest.approx(0.55)
    for second in range(21, 100):
        share.look(EASY, float(second))
    assert share.share == 1.0


def test_samples_are_streamed_evenly_by_the_share() -> None:
    share = StreamShare(share=0.3)
    streamed = [share.manner(STREAM).stream for _ in range(100)]
    assert sum(streamed) == 30
    assert all(sum(streamed[at : at + 10]) in (2, 3, 4) for at in range(0, 100, 10))


def test_logprobs_that_prove_ids_without_a_stream_lose_it_first() -> None:
    share = StreamShare(share=0.9)
    assert share.manner(LOGPROBS) == Manner("logprobs", stream=False, logprobs=True)
    assert StreamShare().manner(LOGPROBS) == LOGPROBS
    text = Manner("text", stream=False, logprobs=False)
    assert StreamShare(share=0.0).manner(text) == text
    assert StreamShare(share=LEAST_SHARE).manner(STREAM) == text
