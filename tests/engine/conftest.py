"""Runs on a real provider; every engine is gone at the end of its test."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest

from eagletui.ledger.orders import NewPrompt
from tests.engine.run_folder import EngineRun, make_run
from tests.provider_fixture import replay_provider, start_provider

__all__ = ["replay_provider", "start_provider"]


class NewRun(Protocol):
    """Makes a run on a provider."""

    def __call__(self, base_url: str, prompts: int | Sequence[str | NewPrompt], **options: Any) -> EngineRun: ...


@pytest.fixture
def new_run(tmp_path: Path) -> Iterator[NewRun]:
    """Make runs; `prompts` is the texts, or how many."""
    made: list[EngineRun] = []

    def make(base_url: str, prompts: int | Sequence[str | NewPrompt], **options: Any) -> EngineRun:
        texts: Sequence[str | NewPrompt]
        texts = [f"Say the number {n} in words." for n in range(prompts)] if isinstance(prompts, int) else prompts
        run = make_run(tmp_path / f"run-{len(made)}", base_url, texts, **options)
        made.append(run)
        return run

    yield make
    for run in made:
        run.end()
