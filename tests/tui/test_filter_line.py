"""The filter line of the samples browser."""

import pytest

from eagletui.ledger.filters import SampleFilter
from eagletui.tui.filter_line import PRESETS, FilterLineError, preset_name, read_filter, write_filter


def test_every_field_a_condition_and_a_text_are_read() -> None:
    line = (
        "evidence:streamed,logprobs state:failed endpoint:x/y dataset:b3 finish:length usability:usable resegmented>0"
    )
    wanted = read_filter(line + ' "two words" key')
    assert wanted == SampleFilter(
        states=("failed",),
        datasets=("b3",),
        evidence=("streamed", "logprobs"),
        usability=("usable",),
        endpoints=("x/y",),
        finish_reasons=("length",),
        preset="mismatched",
        text="two words key",
    )


def test_an_empty_line_wants_everything_and_keeps_the_order() -> None:
    base = SampleFilter(sort="drift", reverse=True, text="old", evidence=("served",))
    assert read_filter("  ", base) == SampleFilter(sort="drift", reverse=True)


OWN = [
    "cost>=0.01 latency<2.5 spans>1 drift=4 output!=96 billed<=5 prompt>1000 attempts>1",
    '!finish:stop !endpoint:x/y !dataset:"my set" state:tokenized',
]


@pytest.mark.parametrize("line", OWN)
def test_comparisons_and_exclusions_read_back_as_they_were_written(line: str) -> None:
    wanted = read_filter(line)
    assert read_filter(write_filter(wanted)) == wanted
    assert sorted(write_filter(wanted).split()) == sorted(line.split())


def test_dollars_become_picodollars_and_resegmented_is_a_name_of_spans() -> None:
    (cost, spans) = read_filter("cost>$1,000.5 resegmented>=3").compared
    assert cost == ("cost", ">", 1_000_500_000_000_000)
    assert spans == ("spans", ">=", 3)
    assert read_filter("!finish:stop,length").excluded == (("finish_reason", "stop"), ("finish_reason", "length"))


@pytest.mark.parametrize("wanted", list(PRESETS.values()))
def test_a_written_filter_reads_back(wanted: SampleFilter) -> None:
    assert read_filter(write_filter(wanted)) == wanted


def test_presets_are_known_by_name_whatever_the_order() -> None:
    assert preset_name(SampleFilter(preset="mismatched", sort="drift", reverse=True)) == "mismatched"
    assert preset_name(SampleFilter(text="x")) == "own"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("evidnce:served", "did you mean evidence:"),
        ("model:qwen", "known are state"),
        ("state:", "needs a value, such as state:failed"),
        ("resegmented>0 drift!=0", "cannot be joined"),
        ('"open', "a quote is not closed"),
        ("mism>0", "mism is not a figure"),
        ("atempts>1", "did you mean attempts"),
        ("cost>much", "cost: found much, expected a number"),
        ("cost>", "cost: found nothing, expected a number"),
        ("spans>nan", "spans: found nan, expected a number"),
        ("spans>1.5", "spans: found 1.5, expected a whole number"),
        ("cost>1e99", "more than any sample has"),
        ("!stop", "! goes with a field"),
    ],
)
def test_a_word_that_is_not_known_is_named_with_what_would_do(line: str, said: str) -> None:
    with pytest.raises(FilterLineError, match=said.replace("?", r"\?")):
        read_filter(line)


def test_text_with_shell_characters_is_text() -> None:
    assert read_filter(r"it's #1 \d").text == r"it's #1 \d"
    assert read_filter("http://host:80").text == "http://host:80"
    assert read_filter('"model:qwen" dataset:"my set"') == SampleFilter(text="model:qwen", datasets=("my set",))
