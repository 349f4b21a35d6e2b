"""A server that goes away in the middle of an extraction."""

import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from eagletui.core.features import feature_layers
from eagletui.extract.backends.presence import Patience
from eagletui.extract.backends.refusals import Unusable
from eagletui.extract.backends.served import ServedBackend
from eagletui.extract.backends.vllm import VllmServer
from eagletui.models.facts import read_facts
from tests.extract.model_servers import ServedModel, VllmServing, running
from tests.extract.test_vllm import PROOF, _samples
from tests.tiny_models import Kind

DEADLINE_S = 30.0


class _Said:
    """What the backend tells people, and when it said that the server is away."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.away = threading.Event()

    def __call__(self, _level: str, kind: str, _message: str) -> None:
        self.kinds.append(kind)
        if kind == "server_away":
            self.away.set()


def _backend(model: Path, url: str, said: Callable[[str, str, str], None], longest_s: float) -> ServedBackend:
    facts = read_facts(model)
    layers = feature_layers(facts.num_layers)
    patience = Patience(longest_s, look_every_s=0.05)
    return ServedBackend(VllmServer(url, facts, layers), facts, layers, said, attempts_after_s=(), patience=patience)


@pytest.fixture
def serving(tmp_path: Path, tiny_models: dict[Kind, Path]) -> VllmServing:
    (tmp_path / "states").mkdir()
    return VllmServing(ServedModel(tiny_models["llama"]), tmp_path / "states")


@pytest.mark.parametrize("comes_back_with_a_cache", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_server_that_is_started_again_is_waited_for_and_looked_at_and_proved_before_more_is_computed(
    tiny_models: dict[Kind, Path], serving: VllmServing, comes_back_with_a_cache: bool
) -> None:
    said = _Said()
    results: list[str | None] = []
    faults: list[Unusable] = []
    with running(serving.app()) as url:
        backend = _backend(tiny_models["llama"], url, said, DEADLINE_S)
        list(backend.compute(_samples(40), lambda: True))

    def compute() -> None:
        try:
            results.extend(computed.refusal for computed in backend.compute(_samples(9, 8, 7), lambda: True))
        except Unusable as error:
            faults.append(error)

    with closing(backend):
        thread = threading.Thread(target=compute)
        thread.start()
        assert said.away.wait(DEADLINE_S)
        serving.prefix_caching = comes_back_with_a_cache
        serving.away_answers = 2  # it goes away again while it is looked at
        with running(serving.app(), httpx.URL(url).port or 0):
            thread.join(DEADLINE_S)
            if comes_back_with_a_cache:
                assert "runs with prefix caching" in str(faults[0])
                return
            assert results == [None] * 3
            # A request that failed just before the server was back may say so after it.
            assert said.kinds.count("server_away") == said.kinds.count("server_back") >= 1
            before = serving.requests
            list(backend.compute(_samples(20), lambda: True))
            assert serving.requests == before + PROOF + 1


@pytest.mark.slow
def test_a_server_that_stays_away_ends_the_extraction_with_the_reason(
    tiny_models: dict[Kind, Path], serving: VllmServing
) -> None:
    said = _Said()
    with running(serving.app()) as url:
        backend = _backend(tiny_models["llama"], url, said, 0.1)
        list(backend.compute(_samples(40), lambda: True))
    with closing(backend), pytest.raises(Unusable, match=r"10 samples in a row .* No server answers at http://127"):
        list(backend.compute(_samples(*(9,) * 12), lambda: True))
    assert said.kinds.count("server_away") == 1
