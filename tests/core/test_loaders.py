import pytest

from eagletui.core.loaders import (
    SPECFORGE_OFFLINE,
    SPECFORGE_ONLINE,
    SPECULATORS,
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
        (SPECULATORS, 8, 1, 1),
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


@pytest.mark.parametrize("rule", [SPECFORGE_ONLINE, SPECULATORS, TORCHSPEC_CACHE, TORCHSPEC_PARQUET])
@pytest.mark.parametrize("longest", [15, 2048, 2049, 40_000])
def test_the_fitting_length_cuts_nothing(rule: LoaderRule, longest: int) -> None:
    limit = fitting_length(rule, longest)
    assert limit >= rule.default_length
    assert loader_effect(rule, [SampleLength(longest - 2, 2)], limit).changed == 0
