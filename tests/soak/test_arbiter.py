"""A few deaths, so that the slow tests notice when the campaign breaks or a promise does."""

import random
from pathlib import Path

import pytest
import torch

from tests.soak.arbiter import kill_at_random


@pytest.mark.slow
def test_an_arbitration_that_is_killed_decides_no_answer_by_half_and_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    deaths = kill_at_random(tmp_path, 4, random.Random(5))
    assert deaths.kills == 4
    assert 0 < deaths.changed < deaths.answers
    assert any(deaths.decided)
