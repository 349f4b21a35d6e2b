"""Branches of one text score as each text would by itself."""

from pathlib import Path

import pytest
import torch

from eagletui.core.sampling import Sampling
from eagletui.models.load import TargetModel, load_target
from eagletui.models.scoring import Ask, TokenTree
from tests.tiny_models import KINDS, Kind, random_samples

PROMPT, TEXT, BRANCH, OTHER = random_samples((5, 9, 4, 3))
ALL = (1, 2, 3, 400)


def _alone(target: TargetModel, ids: tuple[int, ...]) -> dict[int, float]:
    """Log-probabilities behind a text, by one plain forward of it."""
    with torch.inference_mode():
        hidden = target.decoder(input_ids=torch.tensor([ids])).last_hidden_state[0, -1]
        logs = torch.log_softmax(target.head(hidden).float(), dim=-1)
    return {token_id: float(logs[token_id]) for token_id in ALL}


@pytest.mark.parametrize("kind", KINDS)
def test_every_branch_scores_as_its_own_text(tiny_models: dict[Kind, Path], kind: Kind) -> None:
    target = load_target(tiny_models[kind], dtype="float32", device="cpu")
    tree = TokenTree(target, Sampling())
    scores, likelihood = tree.fill(PROMPT, TEXT, [ALL] * (len(TEXT) + 1))
    assert likelihood.tokens == len(TEXT)
    for node in (0, 4, len(TEXT)):
        assert scores[node] == pytest.approx(_alone(target, PROMPT + TEXT[:node]), abs=1e-3)

    first = tree.nodes
    asked = [Ask(3 if index == 0 else first + index - 1, token, ALL) for index, token in enumerate(BRANCH)]
    asked += [Ask(0 if index == 0 else first + len(asked) - 1 + index, token, ALL) for index, token in enumerate(OTHER)]
    grown = tree.grow(asked)
    for index in range(len(BRANCH)):
        assert grown[index] == pytest.approx(_alone(target, PROMPT + TEXT[:3] + BRANCH[: index + 1]), abs=1e-3)
    for index in range(len(OTHER)):
        assert grown[len(BRANCH) + index] == pytest.approx(_alone(target, PROMPT + OTHER[: index + 1]), abs=1e-3)

    twig = tree.nodes
    later = tree.grow([Ask(first + 1, OTHER[0], ALL), Ask(twig, OTHER[1], ALL)])
    assert later[1] == pytest.approx(_alone(target, PROMPT + TEXT[:3] + BRANCH[:2] + OTHER[:2]), abs=1e-3)
