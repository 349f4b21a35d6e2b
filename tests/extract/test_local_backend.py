import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from eagletui.core.features import feature_layers, sampled_mask
from eagletui.extract.backends.local import LocalBackend
from eagletui.extract.capture import Capture, DeviceFullError
from eagletui.extract.computing import Computed
from eagletui.extract.shards import IdsSample
from eagletui.models.load import load_target
from tests.tiny_models import Kind, random_samples, save_tiny_model


def _samples(*lengths: int) -> list[IdsSample]:
    ids = random_samples(lengths)
    return [IdsSample(f"s{number}", part, sampled_mask(1, len(part) - 1)) for number, part in enumerate(ids)]


def _backend(model: Path, said: list[str]) -> LocalBackend:
    capture = Capture(load_target(model, dtype="bfloat16", device="cpu"), feature_layers(8))
    return LocalBackend(capture, lambda _level, kind, _message: said.append(kind))


def _compute(backend: LocalBackend, samples: list[IdsSample]) -> list[Computed]:
    return list(backend.compute(samples, lambda: True))


def test_packing_waits_for_a_second_sample_to_test_it_with(tiny_models: dict[Kind, Path]) -> None:
    said: list[str] = []
    backend = _backend(tiny_models["llama"], said)
    _compute(backend, _samples(20))
    assert (backend.mode, said) == (None, [])
    _compute(backend, _samples(20, 30))
    assert (backend.mode, said) == ("packed", ["capture_mode"])


def test_a_failed_self_test_falls_back_to_lone_forwards_and_says_so(
    tiny_models: dict[Kind, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    backend = _backend(tiny_models["llama"], said)
    plain = backend.capture._run

    def as_one_sample(ids: torch.Tensor, extra: dict[str, Any]) -> torch.Tensor:
        running = {"position_ids": torch.arange(len(ids))[None], "segment_lengths": [len(ids)]}
        return plain(ids, running if extra else {})

    monkeypatch.setattr(backend.capture, "_run", as_one_sample)
    computed = _compute(backend, _samples(20, 30, 40))
    assert (backend.mode, said) == ("one_by_one", ["self_test_failed"])
    assert "median relative error" in backend.choice
    for sample, streams, refusal in computed:
        assert refusal is None
        assert streams is not None
        assert torch.equal(streams, backend.capture.one_by_one(torch.tensor(sample.token_ids)))


def test_a_row_that_does_not_fit_is_split_and_a_sample_that_does_not_fit_is_refused(
    tiny_models: dict[Kind, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = _backend(tiny_models["llama"], [])
    _compute(backend, _samples(20, 30))
    plain = backend.capture._run

    def small_device(ids: torch.Tensor, extra: dict[str, Any]) -> torch.Tensor:
        if len(ids) > 45:
            raise DeviceFullError(f"{len(ids)} tokens do not fit into the memory of cpu at once.")
        return plain(ids, extra)

    monkeypatch.setattr(backend.capture, "_run", small_device)
    computed = {sample.key: (streams, refusal) for sample, streams, refusal in _compute(backend, _samples(40, 30, 50))}
    assert set(computed) == {"s0", "s1", "s2"}
    assert computed["s2"] == (None, "50 tokens do not fit into the memory of cpu at once.")
    assert [key for key, (streams, _) in computed.items() if streams is not None] == ["s0", "s1"]


def test_a_device_that_is_too_small_for_the_self_test_gets_shorter_packs(
    tiny_models: dict[Kind, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    backend = _backend(tiny_models["llama"], said)
    tried = _small_device(backend, monkeypatch, room=125)
    samples = _samples(90, 90, *(30,) * 12)
    computed = _compute(backend, samples)
    assert {sample.key for sample, streams, _ in computed if streams is not None} == {s.key for s in samples}
    assert said == ["memory_short", "capture_mode"]
    assert (backend.mode, backend.capture.budget_tokens) == ("packed", 120)
    assert [rows for rows in tried if rows > 125] == [240], "a length is found too long once"


def test_packs_stay_short_after_one_was_too_long_for_the_device(
    tiny_models: dict[Kind, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    backend = _backend(tiny_models["llama"], said)
    _compute(backend, _samples(20, 30))
    tried = _small_device(backend, monkeypatch, room=300)
    for _window in range(2):
        computed = _compute(backend, _samples(*(100,) * 20))
        assert sorted(sample.key for sample, streams, _ in computed if streams is not None) == sorted(
            f"s{number}" for number in range(20)
        )
    assert tried[0] == 500
    assert set(tried[1:]) == {200}
    assert said == ["capture_mode", "memory_short"]


def test_a_device_without_room_for_any_pack_runs_samples_one_by_one(
    tiny_models: dict[Kind, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = _backend(tiny_models["llama"], [])
    _small_device(backend, monkeypatch, room=20)
    computed = _compute(backend, _samples(40, 20, 15))
    assert backend.mode == "one_by_one"
    assert [sample.key for sample, streams, _ in computed if streams is not None] == ["s1", "s2"]
    assert "packs of 64 tokens do not fit into the memory of cpu" in backend.choice


def _small_device(backend: LocalBackend, monkeypatch: pytest.MonkeyPatch, *, room: int) -> list[int]:
    """Let forwards of more tokens fail as on a full device; return the lengths of all that were tried."""
    tried: list[int] = []
    plain = backend.capture._run

    def run(ids: torch.Tensor, extra: dict[str, Any]) -> torch.Tensor:
        tried.append(len(ids))
        if len(ids) > room:
            raise DeviceFullError(f"{len(ids)} tokens do not fit into the memory of cpu at once.")
        return plain(ids, extra)

    monkeypatch.setattr(backend.capture, "_run", run)
    return tried


def test_a_computer_without_memory_for_a_pack_gets_shorter_ones(tmp_path: Path) -> None:
    """torch has no class of error for this on a CPU, so its own words tell it; they come from torch itself here."""
    said: list[str] = []
    backend = _backend(save_tiny_model(tmp_path / "model", "llama"), said)
    _compute(backend, _samples(20, 30))
    held: list[weakref.ref[torch.Tensor]] = []

    def need_much(_module: Any, args: tuple[Any, ...]) -> None:
        if args[0].shape[1] > 45:
            activations = torch.zeros(8)
            held.append(weakref.ref(activations))
            torch.empty(2**50)

    backend.capture.target.layers[5].register_forward_pre_hook(need_much)
    backend.capture.budget_tokens = 70
    computed = {sample.key: refusal for sample, _, refusal in _compute(backend, _samples(40, 30, 50))}
    assert computed == {"s0": None, "s1": None, "s2": "50 tokens do not fit into the memory of cpu at once."}
    assert said == ["capture_mode", "memory_short"]
    assert len(held) == 2
    with pytest.raises(DeviceFullError) as full:
        backend.capture.one_by_one(torch.arange(50))
    assert held[-1]() is None, f"memory of the forward is held by {full.value}"


def test_other_errors_of_a_forward_are_not_taken_for_a_full_device(tmp_path: Path) -> None:
    backend = _backend(save_tiny_model(tmp_path / "model", "llama"), [])

    def fail(_module: Any, _args: tuple[Any, ...]) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    backend.capture.target.layers[5].register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        backend.capture.one_by_one(torch.arange(5))


def test_work_ends_between_forwards_when_asked_to(tmp_path: Path) -> None:
    backend = _backend(save_tiny_model(tmp_path / "model", "llama"), [])
    backend.capture.budget_tokens = 20
    answers = iter([True, False])
    assert len(list(backend.compute(_samples(20, 20, 20), lambda: next(answers)))) == 1
