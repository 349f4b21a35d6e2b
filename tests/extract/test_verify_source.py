"""Features of a file of ids are held to that file, for there is no ledger."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors import safe_open
from safetensors.torch import save

from eagletui.core.checks import Verdict
from eagletui.extract.acknowledged import AcknowledgedShard, write_acknowledged
from eagletui.extract.manifest import SHARD_LIST, read_shard_list
from eagletui.extract.shards import hash_file
from eagletui.extract.verify import verify
from tests.extract.test_file_run import _extract_ids, _write_ids
from tests.tiny_models import Kind, random_samples


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, tiny_models: dict[Kind, Path]) -> Path:
    """Extract two samples of one length, once; no test changes them."""
    folder = tmp_path_factory.mktemp("made")
    ids = _write_ids(folder / "ids.jsonl", random_samples((20, 20)))
    _extract_ids(ids, tiny_models["llama"], folder / "out", dtype="float32")
    return folder


def _copy(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "copy")
    return tmp_path / "copy" / "out"


def _cover(out: Path, **changed: object) -> None:
    """Make the shard list agree with the shard, as a faulty writer would have."""
    line = json.loads((out / SHARD_LIST).read_text())
    file = out / line["path"]
    line |= {"bytes": file.stat().st_size, "xxh3": hash_file(file), **changed}
    (out / SHARD_LIST).write_text(json.dumps(line) + "\n")


def _check(verdict: Verdict, name: str) -> tuple[bool, str]:
    (found,) = [(check.ok, check.detail) for check in verdict.checks if check.name == name]
    return found


def test_records_that_changed_places_are_found_where_every_hash_agrees(
    made: Path, tmp_path: Path, tiny_models: dict[Kind, Path]
) -> None:
    out = _copy(made, tmp_path)
    file = out / read_shard_list(out)[0].path
    with safe_open(file, framework="pt") as opened:
        metadata = opened.metadata()
        tensors = {name: opened.get_tensor(name).clone() for name in opened.keys()}
    for name in ("token_ids", "loss_mask", "hidden_states"):
        tensors[name] = tensors[name].roll(20, dims=0).contiguous()
    file.write_bytes(save(tensors, metadata=metadata))
    _cover(out)
    verdict = verify(out, tiny_models["llama"], device="cpu")
    ids = made / "ids.jsonl"  # where it was: the copy beside the folder is looked at after it
    assert not verdict.ok
    assert _check(verdict, "source") == (False, f"s0 has other ids than {ids}; s1 has other ids than {ids}")


def test_a_mask_that_is_no_int64_is_named_as_the_mask(
    made: Path, tmp_path: Path, tiny_models: dict[Kind, Path]
) -> None:
    out = _copy(made, tmp_path)
    file = out / read_shard_list(out)[0].path
    with safe_open(file, framework="pt") as opened:
        metadata = opened.metadata()
        tensors = {name: opened.get_tensor(name).clone() for name in opened.keys()}
    file.write_bytes(save({**tensors, "loss_mask": tensors["loss_mask"].bool()}, metadata=metadata))
    _cover(out)
    found = _check(verify(out, tiny_models["llama"], device="cpu"), "layout")
    assert found == (
        False,
        "s0 in shards/000000.safetensors has a mask of torch.bool, expected torch.int64; "
        "s1 in shards/000000.safetensors has a mask of torch.bool, expected torch.int64",
    )


def test_a_list_with_other_samples_than_its_shard_is_a_fault(
    made: Path, tmp_path: Path, tiny_models: dict[Kind, Path]
) -> None:
    out = _copy(made, tmp_path)
    _cover(out, sample_ids=["s0", "zzz"])
    assert _check(verify(out, tiny_models["llama"], device="cpu"), "layout") == (
        False,
        "shards.jsonl has other sample_ids than shards/000000.safetensors: "
        "sample 1 is 'zzz' there and 's1' in the shard",
    )


def test_a_file_that_is_no_shard_by_its_name_is_named_too(
    made: Path, tmp_path: Path, tiny_models: dict[Kind, Path]
) -> None:
    out = _copy(made, tmp_path)
    shutil.copy(out / "shards" / "000000.safetensors", out / "shards" / "copy of 000000.safetensors")
    found = _check(verify(out, tiny_models["llama"], device="cpu"), "files")
    assert found == (False, "shards/copy of 000000.safetensors is not listed")


def test_an_acknowledged_shard_that_is_still_there_is_not_called_deleted(
    made: Path, tmp_path: Path, tiny_models: dict[Kind, Path]
) -> None:
    out = _copy(made, tmp_path)
    write_acknowledged(out, [AcknowledgedShard("shards/000000.safetensors", 40, ("s0", "s1"))])
    ok, said = _check(verify(out, tiny_models["llama"], device="cpu"), "files")
    assert ok
    assert said.endswith("which are not checked and deleted but for 1, which the next extract deletes")


def test_samples_longer_than_the_model_has_positions_ask_for_a_look(
    made: Path, tmp_path: Path, tiny_models: dict[Kind, Path]
) -> None:
    model = Path(shutil.copytree(tiny_models["llama"], tmp_path / "model"))
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 19}))
    verdict = verify(made / "out", model, device="cpu")
    said = [f"s{number} has 20 tokens, and the model has 19 positions" for number in range(2)]
    assert "positions" in verdict.to_look_at  # the changed config itself makes it another model
    assert _check(verdict, "positions") == (False, "; ".join(said))


def test_the_file_is_looked_for_where_it_was_and_beside_the_folder(
    made: Path, tmp_path: Path, tiny_models: dict[Kind, Path]
) -> None:
    model = tiny_models["llama"]
    out = _copy(made, tmp_path)
    manifest = out / "manifest.json"
    manifest.write_text(manifest.read_text().replace(str(made), str(tmp_path / "gone")))
    beside = out.parent / "ids.jsonl"
    assert _check(verify(out, model, device="cpu"), "source") == (
        True,
        f"ids and masks of 2 of its 2 samples are those of {beside}",
    )
    beside.write_text(beside.read_text() + "\n")
    verdict = verify(out, model, device="cpu")
    unheld = "ids were held to no other record of them"
    assert verdict.ok
    assert _check(verdict, "source") == (False, f"{beside} was changed since, or is another file: {unheld}")
    beside.unlink()
    found = _check(verify(out, model, device="cpu"), "source")
    assert found == (False, f"ids.jsonl is neither where it was nor beside this folder: {unheld}")
