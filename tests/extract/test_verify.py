import json
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save

from eagletui.cli.app import main
from eagletui.core.checks import Verdict
from eagletui.core.features import feature_layers, row_bytes
from eagletui.core.gauges import read_detail
from eagletui.extract.capture import Capture
from eagletui.extract.manifest import ListedShard, read_manifest, read_shard_list, write_manifest, write_shard_list
from eagletui.extract.shards import hash_file
from eagletui.extract.verify import features_folder, verify
from eagletui.ledger.orders import TokensResult
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.writer import LedgerWriter
from eagletui.models.load import TargetModel, load_target
from eagletui.runs.folder import RunFolder
from tests.extract.small_run import answer_samples, create_run
from tests.extract.test_file_run import _extract, _write_ids
from tests.extract.test_run_features import _ids, _run_here
from tests.tiny_models import HIDDEN, Kind, random_samples, save_tiny_model

Tensors = dict[str, torch.Tensor]
Change = Callable[[Tensors, Capture], None]
FeaturesOf = Callable[..., Path]


@pytest.fixture(scope="module")
def features_of(tmp_path_factory: pytest.TempPathFactory) -> FeaturesOf:
    """Extract the samples of `tests.extract.test_file_run` by a model, once; no test changes them."""

    @cache
    def features(model: Path, dtype: str = "float32") -> Path:
        folder = tmp_path_factory.mktemp("features")
        done = _extract(folder, model, dtype=dtype)
        assert (done.samples, done.rows) == (6, 276)
        return folder / "out"

    return features


def _failed(verdict: Verdict) -> dict[str, str]:
    return {check.name: check.detail for check in verdict.checks if not check.ok and check.level == "error"}


def _change(out: Path, change: Change, capture: Capture, *, cover: bool = True) -> None:
    """Change a shard's tensors; with `cover`, also make the shard list agree, as a faulty writer would have."""
    (shard,) = read_shard_list(out)
    file = out / shard.path
    with safe_open(file, framework="pt") as opened:
        metadata = opened.metadata()
        tensors = {name: opened.get_tensor(name).clone() for name in opened.keys()}
    change(tensors, capture)
    size = file.stat().st_size
    content = save({name: tensor.contiguous() for name, tensor in tensors.items()}, metadata=metadata)
    header_end, spaces = 8 + int.from_bytes(content[:8], "little"), size - len(content)
    length = (header_end - 8 + spaces).to_bytes(8, "little")
    file.write_bytes(length + content[8:header_end] + b" " * spaces + content[header_end:])
    assert file.stat().st_size == size
    if cover:
        covered = ListedShard(shard.path, shard.samples, shard.rows, file.stat().st_size, hash_file(file))
        write_shard_list(out, [covered])


@cache
def _target(model: Path, dtype: str = "float32") -> TargetModel:
    return load_target(model, dtype="bfloat16" if dtype == "bfloat16" else "float32", device="cpu")


def _streams(capture: Capture, tensors: Tensors, entering: tuple[int, int, int]) -> torch.Tensor:
    other = Capture(capture.target, feature_layers(capture.target.num_layers, entering))
    offsets = tensors["offsets"].tolist()
    parts = [other.one_by_one(tensors["token_ids"][low:high]) for low, high in pairwise(offsets)]
    other.close()
    return torch.cat(parts)


def _layers_one_off(tensors: Tensors, capture: Capture) -> None:
    tensors["hidden_states"] = _streams(capture, tensors, (3, 5, 6))


def _last_after_the_norm(tensors: Tensors, capture: Capture) -> None:
    with torch.inference_mode():
        tensors["hidden_states"][:, 3] = capture.target.norm(tensors["hidden_states"][:, 3])


def _last_from_the_layer_before(tensors: Tensors, capture: Capture) -> None:
    tensors["hidden_states"][:, 3] = _streams(capture, tensors, (1, 2, 7))[:, 2]


def _one_id_changed(tensors: Tensors, _capture: Capture) -> None:
    tensors["token_ids"][120] = (tensors["token_ids"][120] + 1) % 512


def _states_zeroed(tensors: Tensors, _capture: Capture) -> None:
    tensors["hidden_states"][17:20] = 0


def _one_stream_zeroed(tensors: Tensors, _capture: Capture) -> None:
    tensors["hidden_states"][17, 2] = 0


def _one_state_not_finite(tensors: Tensors, _capture: Capture) -> None:
    tensors["hidden_states"][3, 0, 5] = float("nan")


def _rows_shifted(tensors: Tensors, _capture: Capture) -> None:
    tensors["hidden_states"] = tensors["hidden_states"].roll(1, dims=0)


def _mask_out_of_range(tensors: Tensors, _capture: Capture) -> None:
    tensors["loss_mask"][0] = 2


def _id_out_of_vocabulary(tensors: Tensors, _capture: Capture) -> None:
    tensors["token_ids"][0] = 512


MUTATIONS: list[tuple[Change, str, str]] = [
    (_layers_one_off, "streams", "the low stream is the input of layer 3 instead of the input of layer 2"),
    (_last_after_the_norm, "streams", "the last stream is the output of the final norm instead of"),
    (_last_from_the_layer_before, "streams", "the last stream is the input of layer 7 instead of"),
    (_one_id_changed, "streams", "an id or a row was changed"),
    (_states_zeroed, "values", "rows with a stream of zeros, the first is"),
    (_one_stream_zeroed, "values", "1 rows with a stream of zeros"),
    (_one_state_not_finite, "values", "s0 in shards/000000.safetensors has states that are not finite"),
    (_rows_shifted, "streams", "fit no layer of this model"),
    (_mask_out_of_range, "ids", "has a mask that is not of 0 and 1"),
    (_id_out_of_vocabulary, "ids", "holds an id outside the vocabulary"),
]


@pytest.mark.parametrize("kind", ["llama", pytest.param("deepseek_v3", marks=pytest.mark.slow)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_good_features_pass(features_of: FeaturesOf, tiny_models: dict[Kind, Path], kind: Kind, dtype: str) -> None:
    verdict = verify(features_of(tiny_models[kind], dtype), tiny_models[kind], device="cpu")
    assert _failed(verdict) == {}
    assert (verdict.ok, verdict.samples, verdict.rows, verdict.compared) == (True, 6, 276, 6)


@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("change", "name", "sentence"), MUTATIONS, ids=[change.__name__[1:] for change, *_ in MUTATIONS]
)
def test_every_fault_is_found_even_where_the_hash_was_made_to_agree(
    features_of: FeaturesOf,
    tmp_path: Path,
    tiny_models: dict[Kind, Path],
    change: Change,
    name: str,
    sentence: str,
    dtype: str,
) -> None:
    out = Path(shutil.copytree(features_of(tiny_models["qwen3"], dtype), tmp_path / "out"))
    with closing(Capture(_target(tiny_models["qwen3"], dtype), feature_layers(8))) as capture:
        _change(out, change, capture)
    failed = _failed(verify(out, tiny_models["qwen3"], device="cpu"))
    assert name in failed
    assert sentence in failed[name]


def test_any_change_of_a_file_breaks_its_hash(
    features_of: FeaturesOf, tmp_path: Path, tiny_models: dict[Kind, Path]
) -> None:
    out = Path(shutil.copytree(features_of(tiny_models["llama"]), tmp_path / "out"))

    def nudge(tensors: Tensors, _capture: Capture) -> None:
        tensors["hidden_states"][5, 1, 3] *= 1.0001

    with closing(Capture(_target(tiny_models["llama"]), feature_layers(8))) as capture:
        _change(out, nudge, capture, cover=False)
    assert _failed(verify(out, tiny_models["llama"], device="cpu")) == {
        "files": "shards/000000.safetensors was changed after it was sealed: its hash differs"
    }


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        ("cut", "bytes instead of"),
        ("removed", "000000.safetensors is missing"),
        ("added", "000009.safetensors is not listed"),
    ],
)
def test_cut_missing_and_foreign_files_are_named(
    features_of: FeaturesOf, tmp_path: Path, tiny_models: dict[Kind, Path], damage: str, sentence: str
) -> None:
    out = Path(shutil.copytree(features_of(tiny_models["llama"]), tmp_path / "out"))
    file = out / "shards" / "000000.safetensors"
    content = file.read_bytes()
    match damage:
        case "cut":
            file.write_bytes(content[: len(content) // 2])
        case "removed":
            file.unlink()
        case _:
            file.with_name("000009.safetensors").write_bytes(content)
    verdict = verify(out, tiny_models["llama"], device="cpu")
    assert not verdict.ok
    assert sentence in _failed(verdict)["files"]


def test_another_model_and_another_convention_are_refused(
    features_of: FeaturesOf, tmp_path: Path, tiny_models: dict[Kind, Path]
) -> None:
    out = Path(shutil.copytree(features_of(tiny_models["llama"]), tmp_path / "out"))
    other = save_tiny_model(tmp_path / "other", "llama", seed=8)
    failed = _failed(verify(out, other, device="cpu"))
    assert {"model", "streams", "head"} <= set(failed)
    manifest = read_manifest(out)
    write_manifest(out, replace(manifest, last_hidden_norm="post"))
    assert set(_failed(verify(out, tiny_models["llama"], device="cpu"))) == {"conventions"}


def test_a_run_is_checked_against_its_ledger(tmp_path: Path, tiny_models: dict[Kind, Path]) -> None:
    folder = create_run(tmp_path / "run", tiny_models["llama"])
    answer_samples(folder, _ids(150, 40))
    _run_here(folder)
    features = features_folder(folder.path)
    assert _failed(verify(features, tiny_models["llama"], device="cpu")) == {}
    manifest = read_manifest(features)
    write_manifest(features, replace(manifest, vocab_size=600, source="file a sha256 0", tokenizer_hash="x"))
    failed = _failed(verify(features, tiny_models["llama"], device="cpu"))
    assert set(failed) == {"manifest"}
    for sentence in (
        "vocab_size is 600, found 512",
        "source is 'file a sha256 0', found",
        "tokenizer_hash is 'x'",
    ):
        assert sentence in failed["manifest"]
    write_manifest(features, manifest)
    with closing(Capture(_target(tiny_models["llama"]), feature_layers(8))) as capture:
        _change(features, _one_id_changed, capture)
    failed = _failed(verify(features, tiny_models["llama"], compared=1, device="cpu"))
    assert failed["ledger"] == "s0 has other ids than the ledger"
    assert "its hash differs" in failed["files"]


def test_a_renamed_run_is_verified_and_gone_on_with(tmp_path: Path, tiny_models: dict[Kind, Path]) -> None:
    folder = create_run(tmp_path / "run", tiny_models["llama"])
    answer_samples(folder, _ids(15))
    _run_here(folder)
    renamed = RunFolder(folder.path.rename(tmp_path / "renamed"))
    write_manifest(renamed.features_dir, replace(read_manifest(renamed.features_dir), source="run as it was before"))
    assert _failed(verify(renamed.features_dir, tiny_models["llama"], device="cpu")) == {}
    answer_samples(renamed, _ids(30), first=1)
    assert _run_here(renamed).progress.samples == 1


def test_features_of_a_run_without_its_ledger_say_that_ids_were_not_checked(
    tmp_path: Path, tiny_models: dict[Kind, Path]
) -> None:
    folder = create_run(tmp_path / "run", tiny_models["llama"])
    answer_samples(folder, _ids(15))
    _run_here(folder)
    moved = folder.features_dir.rename(tmp_path / "moved")
    verdict = verify(moved, tiny_models["llama"], device="cpu")
    assert verdict.ok
    assert "ledger" in verdict.to_look_at
    assert [check.detail for check in verdict.checks if check.name == "ledger"] == [
        "no ledger of run run lies beside this folder: ids were held to no other record of them"
    ]


def test_samples_with_newer_ids_are_named_and_replaced_ones_are_not_counted_twice(
    tmp_path: Path, tiny_models: dict[Kind, Path]
) -> None:
    folder = create_run(tmp_path / "run", tiny_models["llama"])
    answer_samples(folder, _ids(15, 40))
    _run_here(folder)
    with LedgerReader(folder.ledger_path) as reader, LedgerWriter(folder.ledger_path) as writer:
        detail = reader.sample("s0")
        assert detail is not None
        writer.store_tokens(detail.row.id, TokensResult((5, 6, 7), "new", "served", "usable", prompt_ids=(1, 2)))
    verdict = verify(folder.features_dir, tiny_models["llama"], device="cpu")
    assert {check.name: check.detail for check in verdict.checks}[
        "stale"
    ] == "s0 has got other ids since: extract again"
    assert verdict.ok
    _run_here(folder)
    verdict = verify(folder.features_dir, tiny_models["llama"], device="cpu")
    assert (verdict.ok, verdict.samples, verdict.shards) == (True, 2, 2)
    assert all(check.ok for check in verdict.checks if check.name != "sampled")


def _run(*args: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(args)
    assert isinstance(end.value.code, int)
    return end.value.code


def test_the_commands_extract_and_verify_a_file(
    tmp_path: Path, tiny_models: dict[Kind, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    ids = _write_ids(tmp_path / "ids.jsonl", random_samples((12, 30)))
    model = str(tiny_models["llama"])
    assert _run("extract", str(ids), "--model", model, "--dtype", "float32", "--json") == 0
    captured = capsys.readouterr()
    printed: dict[str, Any] = json.loads(captured.out)
    assert (printed["samples"], printed["rows"], printed["refused"]) == (2, 42, 0)
    assert printed["out"] == str(tmp_path / "ids-features")
    assert "2 samples, 42 tokens to compute." in captured.err
    assert _run("verify", printed["out"], "--model", model, "--json") == 0
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["ok"] is True
    (tmp_path / "ids-features" / "shards" / "000000.safetensors").write_bytes(b"")
    assert _run("verify", printed["out"], "--model", model, "--json") == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False


def test_the_command_extracts_what_waits_in_a_run(
    tmp_path: Path, tiny_models: dict[Kind, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = create_run(tmp_path / "run", None)
    answer_samples(folder, _ids(15, 40))
    model = str(tiny_models["llama"])
    assert _run("extract", str(folder.path), "--model", model, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["samples"], printed["rows"], printed["shards"], printed["computed"]) == (2, 55, 1, 2)
    with LedgerReader(folder.ledger_path) as reader:
        (beat,) = reader.heartbeats()
        told = read_detail(beat.detail_json)
        assert told is not None
        assert told.row_bytes == row_bytes(HIDDEN, "float32")
        assert told.machine.cores
        assert _run("verify", str(folder.path), "--model", model) == 0
        assert reader.shards()[0].verified_at is not None
        said = "Features of 2 samples verified: nothing is wrong, but sampled should be looked at."
        assert reader.last_events(1)[0].message == said
        (folder.features_dir / "shards" / "000000.safetensors").write_bytes(b"")
        assert _run("verify", str(folder.path), "--model", model) == 1
        assert reader.shards()[0].verified_at is None
        (finding,) = reader.snapshot().findings
        assert finding.sentence.startswith("Features do not hold what they should: files: shards/000000.safetensors")
        assert reader.last_events(1)[0].kind == "verify_failed"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("absent.jsonl", "--model", "m"), "absent.jsonl: no such file"),
        (("ids.jsonl",), "--model is missing"),
        (("ids.jsonl", "--model", "m", "--engine", "vllm"), "No model at m"),
        (("ids.jsonl", "--model", "m", "--engine", "ray"), "--engine ray, --address and --storage go with a run"),
        (("ids.jsonl", "--model", "m", "--engine", "abacus"), "'abacus' is not one of"),
        (("ids.jsonl", "--model", "nowhere"), "No model at nowhere"),
    ],
)
def test_bad_usage_exits_2_and_writes_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    args: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    _write_ids(tmp_path / "ids.jsonl", random_samples((12,)))
    assert _run("extract", *args) == 2
    assert message in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["ids.jsonl"]
