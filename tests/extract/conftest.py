from pathlib import Path

import pytest

from tests.tiny_models import KINDS, Kind, save_tiny_model


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> dict[Kind, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {kind: save_tiny_model(folder / kind, kind) for kind in KINDS}
