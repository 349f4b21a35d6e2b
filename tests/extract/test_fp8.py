"""States in eight bits with a scale per token."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors import safe_open

from eagletui.core.errors import RunError
from eagletui.core.features import feature_layers, row_bytes
from eagletui.extract import fp8
from eagletui.extract.capture import Capture
from eagletui.extract.computing import Computed
from eagletui.extract.gather import Gatherer
from eagletui.extract.manifest import read_manifest
from eagletui.extract.open_shard import LostInFp8, ShardKind
from eagletui.extract.shard_writer import ShardWriter
from eagletui.extract.shards import IdsSample, ShardReader
from eagletui.extract.space import DiskSpace
from eagletui.extract.verify import verify
from eagletui.models.load import load_target
from tests.extract.test_file_run import _extract_ids, _write_ids
from tests.extract.test_verify import (
    Change,
    _change,
    _failed,
    _last_after_the_norm,
    _layers_one_off,
    _one_id_changed,
)
from tests.tiny_models import Kind, random_samples, streams_of_transformers

LENGTHS = (150, 64, 33)


def test_a_token_s_scale_is_its_largest_magnitude_over_448_and_numbers_keep_three_bits() -> None:
    states = torch.tensor([[[448.0, -1.0], [0.0, 17.0], [2.0, 3.0], [0.3, 4.0]]]).repeat(2, 1, 1)
    states[1] *= 10
    quantized = fp8.quantize(states)
    assert quantized.states.dtype == torch.float8_e4m3fn
    assert quantized.scales.flatten().tolist() == [1.0, 10.0]
    # e4m3 between 16 and 32 steps by 2, between 0.25 and 0.5 by 1/32.
    expected = [[448.0, -1.0], [0.0, 16.0], [2.0, 3.0], [0.3125, 4.0]]
    assert fp8.restore(quantized, torch.float32)[0].tolist() == expected


def test_no_number_of_usual_size_moves_by_more_than_a_sixteenth() -> None:
    states = (
        torch.randn(3000, 4, 32, generator=torch.Generator().manual_seed(7)) * torch.tensor([1.0, 5, 9, 20])[:, None]
    )
    restored = fp8.restore(fp8.quantize(states), torch.float32)
    usual = states.abs() > states.abs().amax(dim=(1, 2), keepdim=True) / 448 * 2**-6
    assert float(((restored - states).abs() / states.abs())[usual].max()) <= 1 / 16
    assert 0.02 < float((restored - states).norm() / states.norm()) < 0.03


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_rows_are_rounded_alike_in_parts_and_at_once(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    states = torch.randn(5, 4, 9, generator=torch.Generator().manual_seed(7)).to(dtype)
    states[1] = -states[1].abs()
    states[2] = 0.0
    before = states.clone()
    scales = (states.float().abs().amax(dim=(1, 2), keepdim=True) / 448).clamp_min(1e-12)
    for at_once in (1, 2 * 36, 10**6):
        monkeypatch.setattr(fp8, "_NUMBERS_AT_ONCE", at_once)
        found = fp8.quantize(states)
        assert torch.equal(found.scales, scales)
        assert torch.equal(found.states.float(), (states.float() / scales).to(fp8.TYPE).float())
    assert torch.equal(states, before)


def test_a_stream_of_zeros_of_either_sign_is_lost_beside_a_larger_one() -> None:
    states = torch.ones(3, 4, 2)
    states[1, 2] = torch.tensor([1e-9, -1e-9])
    states[2, 2, 0] = 1e-9
    assert fp8.lost_rows(fp8.quantize(states)) == 1


def test_features_in_fp8_take_half_the_disk_read_back_in_the_computed_type_and_verify(
    tmp_path: Path, tiny_models: dict[Kind, Path]
) -> None:
    ids = _write_ids(tmp_path / "ids.jsonl", random_samples(LENGTHS))
    out = tmp_path / "out"
    done = _extract_ids(ids, tiny_models["llama"], out, dtype="fp8")
    assert (done.dtype, done.stored, done.samples) == ("float32", "fp8", 3)
    manifest = read_manifest(out)
    assert (manifest.dtype, manifest.stored) == ("float32", "fp8")
    assert done.rows * row_bytes(64, "fp8") < done.bytes < done.rows * row_bytes(64, "bfloat16") * 0.6
    file = out / "shards" / "000000.safetensors"
    with safe_open(file, framework="pt") as opened:
        assert opened.get_slice("hidden_states").get_dtype() == "F8_E4M3"
        scales = opened.get_tensor("hidden_states_scales")
        assert (scales.dtype, tuple(scales.shape)) == (torch.float32, (sum(LENGTHS), 1, 1))
    with ShardReader(file) as reader:
        for position, sample in enumerate(random_samples(LENGTHS)):
            states = reader.record(position).hidden_states[:, :3]
            aux, _ = streams_of_transformers(tiny_models["llama"], sample)
            assert states.dtype == torch.float32
            assert 0 < float((states - aux).norm() / aux.norm()) < 0.04
    assert verify(out, tiny_models["llama"], device="cpu").ok


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (_layers_one_off, "the low stream is the input of layer 3 instead of the input of layer 2"),
        (_last_after_the_norm, "the last stream is the output of the final norm instead of"),
        (_one_id_changed, "an id or a row was changed"),
    ],
)
def test_faults_are_found_in_fp8_too(
    tmp_path: Path, tiny_models: dict[Kind, Path], change: Change, sentence: str
) -> None:
    ids = _write_ids(tmp_path / "ids.jsonl", random_samples(LENGTHS))
    _extract_ids(ids, tiny_models["llama"], tmp_path / "out", dtype="fp8")
    capture = Capture(load_target(tiny_models["llama"], device="cpu"), feature_layers(8))

    def rounded(tensors: dict[str, torch.Tensor], capture: Capture) -> None:
        whole = fp8.Quantized(tensors["hidden_states"], tensors["hidden_states_scales"])
        tensors["hidden_states"] = fp8.restore(whole, torch.float32)
        change(tensors, capture)
        tensors["hidden_states"], tensors["hidden_states_scales"] = fp8.quantize(tensors["hidden_states"])

    _change(tmp_path / "out", rounded, capture)
    assert sentence in _failed(verify(tmp_path / "out", tiny_models["llama"], device="cpu"))["streams"]


def test_a_folder_in_fp8_is_not_added_to_in_another_type(tmp_path: Path, tiny_models: dict[Kind, Path]) -> None:
    ids = _write_ids(tmp_path / "ids.jsonl", random_samples(LENGTHS))
    _extract_ids(ids, tiny_models["llama"], tmp_path / "out", dtype="fp8")
    with pytest.raises(RunError, match="stored is 'fp8' there and 'float32' now"):
        _extract_ids(ids, tiny_models["llama"], tmp_path / "out", dtype="float32")


def test_streams_that_eight_bits_with_one_scale_cannot_hold_are_refused_and_the_others_are_kept(
    tmp_path: Path, tiny_models: dict[Kind, Path]
) -> None:
    states = torch.ones(2, 4, 64)
    states[1, 0] = 1e-6
    kind = ShardKind(64, "float32", "fp8", 10)
    sample = IdsSample("faint", (1, 2), (0, 1))
    with pytest.raises(LostInFp8, match="in fp8 1 of 2 rows lose a whole stream"):
        kind.encode(sample, states)
    facts = load_target(tiny_models["llama"], device="cpu").facts
    computed = [Computed(sample, states, None), Computed(IdsSample("plain", (1,), (1,)), states[:1], None)]
    backend = SimpleNamespace(facts=facts, compute=lambda _samples, _go_on: iter(computed))
    said: list[str] = []
    gatherer = Gatherer(backend, lambda *event: said.append(event[2]))
    with ShardWriter(tmp_path, 0, kind, DiskSpace(tmp_path, 0), lambda _: None, lambda *_: None) as writer:
        gatherer.add([one.sample for one in computed], writer, lambda: True)
    assert (gatherer.progress.samples, gatherer.progress.refused) == (1, 1)
    assert said == ["faint gets no features: in fp8 1 of 2 rows lose a whole stream beside a larger one."]
    with ShardReader(tmp_path / "shards" / "000000.safetensors") as reader:
        assert list(reader.keys) == ["plain"]
