import pytest

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
        (TORCHSPEC_PARQUET, 21, 0, 1),
    ],
)
def test_what_a_loader_changes_is_counted(rule: LoaderRule, max_length: int, truncated: int, dropped: int) -> None:
    effect = loader_effect(rule, LENGTHS, max_length)
    assert (effect.truncated, effect.dropped, effect.retokenized, effect.samples) == (truncated, dropped, 0, 3)
    assert effect.changed == truncated + dropped


def test_what_a_server_has_no_room_for_is_dropped_however_it_would_be_cut() -> None:
    assert loader_effect(SPECULATORS_ONLINE, LENGTHS, 13, served=15).truncated == 1
    assert loader_effect(SPECULATORS_ONLINE, LENGTHS, 13, served=14).dropped == 1
    assert loader_effect(SPECULATORS_ONLINE, LENGTHS, 8192, served=9).dropped == 2


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
