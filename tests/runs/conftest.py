"""Runs lie in a folder of each test's own."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EAGLETUI_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"
