"""A forward launched before the one before is taken, as on CUDA, with a device that computes at once."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from eagletui.core.features import feature_layers, sampled_mask
from eagletui.extract.backends.local import LocalBackend
from eagletui.extract.capture import Capture, DeviceFullError
from eagletui.extract.computing import Computed
from eagletui.extract.shards import IdsSample
from eagletui.extract.transfer import AtOnce, Wait
from eagletui.models.load import load_target
from tests.tiny_models import Kind, random_samples

LENGTHS = (40, 30, 60, 20, 50, 10)


class Device(AtOnce):
    """Logs what is launched and taken, and has room for so many tokens, those of streams not yet taken included."""

    def __init__(self, log: list[str], room: int = 10_000) -> None:
        super().__init__(torch.device("cpu"))
        self.log = log
        self.room = room
        self.held = 0

    def bring(self, results: Sequence[torch.Tensor]) -> Wait:
        wait, tokens = super().bring(results), len(results[0])
        self.held += tokens

        def wait_and_log() -> list[torch.Tensor]:
            self.held -= tokens
            self.log.append(f"taken {tokens}")
            return wait()

        return wait_and_log


class Bench:
    """An engine with a logging device, after its self-test."""

    def __init__(self, model: Path, lookahead: int, monkeypatch: pytest.MonkeyPatch, *, mode: Any = "packed") -> None:
        self.log: list[str] = []
        self.device = Device(self.log)
        self.said: list[str] = []
        capture = Capture(load_target(model, dtype="bfloat16", device="cpu"), feature_layers(8))
        capture.budget_tokens = 70
        self.backend = LocalBackend(capture, lambda _l, kind, _m: self.said.append(kind), lookahead=lookahead)
        self.backend.mode = mode
        plain = capture._run

        def run(ids: torch.Tensor, extra: dict[str, Any]) -> torch.Tensor:
            if self.device.held + len(ids) > self.device.room:
                self.log.append(f"full {len(ids)}")
                raise DeviceFullError(f"{len(ids)} tokens do not fit.")
            self.log.append(f"launched {len(ids)}")
            return plain(ids, extra)

        monkeypatch.setattr(capture, "_run", run)
        monkeypatch.setattr(capture, "_transfer", self.device)

    def compute(self, *lengths: int, go_on: Callable[[], bool] = lambda: True) -> list[Computed]:
        ids = random_samples(lengths)
        samples = [IdsSample(f"s{number}", part, sampled_mask(1, len(part) - 1)) for number, part in enumerate(ids)]
        return list(self.backend.compute(samples, go_on))


def _streams(computed: list[Computed]) -> list[tuple[str, torch.Tensor]]:
    return [(sample.key, states) for sample, states, _ in computed if states is not None]


@pytest.mark.parametrize("mode", ["packed", "one_by_one"])
def test_the_same_samples_come_in_the_same_order_and_stay_as_they_are(
    tiny_models: dict[Kind, Path], monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    plain, ahead = (Bench(tiny_models["llama"], number, monkeypatch, mode=mode) for number in (0, 1))
    expected, found = _streams(plain.compute(*LENGTHS)), _streams(ahead.compute(*LENGTHS))
    assert [key for key, _ in found] == [key for key, _ in expected]
    assert all(torch.equal(one, other) for (_, one), (_, other) in zip(found, expected, strict=True))
    assert sorted(key for key, _ in found) == [f"s{number}" for number in range(len(LENGTHS))]


def test_the_next_forward_is_launched_before_one_is_taken(
    tiny_models: dict[Kind, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = Bench(tiny_models["llama"], 1, monkeypatch)
    ahead.compute(70, 69, 68)
    assert ahead.log == ["launched 70", "launched 69", "taken 70", "launched 68", "taken 69", "taken 68"]
    plain = Bench(tiny_models["llama"], 0, monkeypatch)
    plain.compute(70, 69)
    assert plain.log == ["launched 70", "taken 70", "launched 69", "taken 69"]


def test_a_cpu_looks_at_no_forward_ahead(tiny_models: dict[Kind, Path]) -> None:
    capture = Capture(load_target(tiny_models["llama"], dtype="bfloat16", device="cpu"), feature_layers(8))
    plain = LocalBackend(capture, lambda *_: None)
    assert (plain.lookahead, plain.window_samples) == (0, 64)
    assert LocalBackend(capture, lambda *_: None, lookahead=1).window_samples > 64, "a window's end is a stop"


def test_what_was_launched_is_yielded_when_the_work_is_ended(
    tiny_models: dict[Kind, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = Bench(tiny_models["llama"], 1, monkeypatch)
    answers = iter([True, True, False])
    found = _streams(ahead.compute(70, 69, 68, 67, go_on=lambda: next(answers)))
    assert [key for key, _ in found] == ["s0", "s1"]
    assert [line for line in ahead.log if line.startswith("launched")] == ["launched 70", "launched 69"]


def test_a_pack_that_is_too_long_ahead_is_cut_and_nothing_is_lost(
    tiny_models: dict[Kind, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = Bench(tiny_models["llama"], 1, monkeypatch)
    ahead.device.room = 110
    found = _streams(ahead.compute(30, 40, 35, 35, 20, 50))
    assert sorted(key for key, _ in found) == [f"s{number}" for number in range(6)]
    assert ahead.log[:4] == ["launched 70", "full 70", "taken 70", "launched 40"]
    assert ahead.said == ["memory_short"]
    assert ahead.backend.capture.budget_tokens == 35
    assert ahead.device.held == 0


def test_a_sample_that_fits_only_with_nothing_beside_it_is_not_refused(
    tiny_models: dict[Kind, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = Bench(tiny_models["llama"], 1, monkeypatch)
    ahead.device.room = 100
    computed = ahead.compute(60, 90, 120)
    assert [(sample.key, refusal) for sample, _, refusal in computed] == [
        ("s2", "120 tokens do not fit."),
        ("s1", None),
        ("s0", None),
    ]
    assert ahead.log == ["full 120", "launched 90", "full 60", "taken 90", "launched 60", "taken 60"]
    assert ahead.said == []


def test_a_sample_whose_streams_are_not_finite_is_refused_and_its_neighbours_are_not(
    tiny_models: dict[Kind, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = Bench(tiny_models["llama"], 1, monkeypatch)
    plain = ahead.backend.capture._run

    def overflowing(ids: torch.Tensor, extra: dict[str, Any]) -> torch.Tensor:
        rows = plain(ids, extra)
        if len(ids) == 70:
            rows[35:37, 2] = float("inf")
        return rows

    monkeypatch.setattr(ahead.backend.capture, "_run", overflowing)
    computed = {sample.key: (states, refusal) for sample, states, refusal in ahead.compute(30, 40, 50)}
    assert computed["s1"] == (None, "2 of 40 rows are not finite; the dtype may be too narrow.")
    assert {key for key, (states, _) in computed.items() if states is not None} == {"s0", "s2"}
