"""Two seeds of the cap campaign, so that the slow tests notice when it breaks or a promise does."""

from pathlib import Path

import pytest

from tests.soak.cap import Campaign, soak
from tests.soak.scenario import draw


@pytest.mark.slow
@pytest.mark.parametrize("seed", [213, 218])
def test_the_books_never_pass_the_cap_and_agree_after_kills(tmp_path: Path, seed: int) -> None:
    campaign = Campaign()
    soak(seed, tmp_path, campaign)
    assert campaign.lives == len(draw(seed).lives)
    assert campaign.total.generations >= draw(seed).samples
    assert campaign.looks > 0
