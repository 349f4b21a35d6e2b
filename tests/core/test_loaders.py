import pytest

from eagletui.cli.loader_lines import effect_line
from eagletui.core.loaders import (
    SPECFORGE_OFFLINE,
    SPECFORGE_ONLINE,
    SPECULATORS_OFFLINE,
    SPECULATORS_ONLINE,
    SPECULATORS_PREPARE,
    TORCHSPEC_CACHE,
    TORCHSPEC_PARQUET,
    LoaderRule,
    SampleLength,
    fitting_length,
    loader_effect,
)

LENGTHS = [SampleLength(4, 6), SampleLength(12, 3), SampleLength(3, 1)]
"""10, 15 and 4 tokens."""


@pytest.mark.parametrize(
    ("rule", "max_length", "truncated", "dropped"),
    [
        (SPECFORGE_ONLINE, 2048, 0, 0),
        (SPECFORGE_ONLINE, 12, 0, 1),  # the second has no sampled token within 12
        (SPECFORGE_ONLINE, 14, 1, 0),
        (SPECULATORS_PREPARE, 8, 1, 1),
        (SPECULATORS_PREPARE, 14, 1, 0),
        (SPECULATORS_OFFLINE, 14, 0, 0),  # 15 tokens less the first, which has no loss
        (SPECULATORS_OFFLINE, 13, 1, 0),
        (SPECULATORS_OFFLINE, 11, 0, 1),
        (SPECFORGE_OFFLINE, 2048, 0, 1),  # the third's only sampled token is its last
        (TORCHSPEC_CACHE, 22, 0, 0),
        (TORCHSPEC_CACHE, 21, 1, 0),  # 21 - 7 slots of the server leave 14
        (TORCHSPEC_PARQUET, 21, 1, 0),
    ],
)
def test_what_a_loader_changes_is_counted(rule: LoaderRule, max_length: int, truncated: int, dropped: int) -> None:
    effect = loader_effect(rule, LENGTHS, max_length)
    assert (effect.truncated, effect.dropped, effect.retokenized, effect.samples) == (truncated, dropped, 0, 3)
    assert effect.changed == truncated + dropped


def test_what_a_server_has_no_room_for_is_refused_however_it_would_be_cut() -> None:
    assert loader_effect(SPECULATORS_ONLINE, LENGTHS, 13, served=15).truncated == 1
    assert loader_effect(SPECULATORS_ONLINE, LENGTHS, 13, served=14).refused == 1
    assert loader_effect(SPECULATORS_ONLINE, LENGTHS, 8192, served=9).refused == 2


def test_a_row_that_stops_a_loader_is_not_counted_as_dropped_nor_one_that_its_server_cuts() -> None:
    """SGLang keeps 7 of 1,024 slots: 1,017 tokens are whole, up to 1,024 are cut, and 1,500 stop TorchSpec."""
    lengths = [SampleLength(300, total - 300) for total in (1017, 1020, 1024, 1500)]
    effect = loader_effect(TORCHSPEC_PARQUET, lengths, 1024)
    assert (effect.truncated, effect.dropped, effect.refused, effect.changed) == (2, 0, 1, 3)
    said = effect_line(TORCHSPEC_PARQUET, lengths, 1024)
    assert said == "its loader (601a44cf) would refuse the file at 1,024 tokens: 1 of 4 samples are longer"


def test_a_default_that_the_target_has_no_room_for_gets_no_figure() -> None:
    said = effect_line(SPECFORGE_ONLINE, LENGTHS, 33, largest=33)
    assert said == (
        "its loader (0.2.0) would change 0 of 3 samples at 33 tokens; the target has no room for its default of 2,048"
    )
    assert effect_line(SPECFORGE_ONLINE, LENGTHS, 33, largest=4096).endswith("; 0 at its default of 2,048")


@pytest.mark.parametrize("longest", [15, 8185, 8192, 40_000])
@pytest.mark.parametrize(("rule", "beyond"), [(SPECFORGE_ONLINE, 7), (SPECULATORS_PREPARE, 1), (TORCHSPEC_PARQUET, 0)])
def test_the_fitting_length_starts_the_server_of_a_target_with_8192_positions(
    rule: LoaderRule, beyond: int, longest: int
) -> None:
    assert fitting_length(rule, longest, 8192) + beyond <= 8192
    assert fitting_length(rule, longest, 131_072) == fitting_length(rule, longest)


@pytest.mark.parametrize(
    "rule", [SPECFORGE_ONLINE, SPECULATORS_PREPARE, SPECULATORS_OFFLINE, TORCHSPEC_CACHE, TORCHSPEC_PARQUET]
)
@pytest.mark.parametrize("longest", [15, 2048, 2049, 40_000])
def test_the_fitting_length_cuts_nothing(rule: LoaderRule, longest: int) -> None:
    limit = fitting_length(rule, longest)
    assert limit >= rule.default_length
    assert loader_effect(rule, [SampleLength(longest - 2, 2)], limit).changed == 0
