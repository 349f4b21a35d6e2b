"""A few deaths and a full disk, so that the slow tests notice when the campaign breaks or a promise does."""

import random
from pathlib import Path

import pytest

from tests.soak.extract import Campaign, fill_the_disk, kill_at_random
from tests.tiny_models import save_tiny_model


@pytest.mark.slow
def test_no_row_is_there_twice_and_none_is_lost_when_extractions_are_killed(tmp_path: Path) -> None:
    campaign: Campaign = kill_at_random(tmp_path, save_tiny_model(tmp_path / "model", "llama"), 4, random.Random(3))
    assert campaign.kills == 4
    assert campaign.at["at work"] > 0


@pytest.mark.slow
def test_a_full_disk_pauses_an_extraction_and_nothing_is_lost(tmp_path: Path) -> None:
    filled = fill_the_disk(tmp_path, save_tiny_model(tmp_path / "model", "llama"))
    if filled is None:
        pytest.skip("no small disk can be mounted here: that needs root")
    assert filled["shards_at_pauses"][0].shards < filled["shards_at_pauses"][1].shards < filled["shards"].shards
