from pathlib import Path

import pytest
import torch

from tests.tiny_models import KINDS, Kind, save_tiny_model


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> dict[Kind, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {kind: save_tiny_model(folder / kind, kind) for kind in KINDS}


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Keep tiny forwards from fighting over cores with whatever else runs here."""
    torch.set_num_threads(1)
