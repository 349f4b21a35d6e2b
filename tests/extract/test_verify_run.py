"""Features of a run are held to its ledger: which one that is, and what it says of the folder."""

import json
from dataclasses import replace
from pathlib import Path

from eagletui.core.checks import Verdict
from eagletui.extract.manifest import SHARD_LIST, read_manifest, read_shard_list, write_manifest, write_shard_list
from eagletui.extract.verify import verify
from eagletui.runs.folder import RunFolder
from tests.extract.small_run import answer_samples, create_run
from tests.extract.test_file_run import _extract_ids, _write_ids
from tests.extract.test_run_features import _ids, _run_here
from tests.tiny_models import Kind, random_samples


def _checks(verdict: Verdict) -> dict[str, tuple[bool, str]]:
    return {check.name: (check.ok, check.detail) for check in verdict.checks}


def _made(tmp_path: Path, model: Path) -> RunFolder:
    folder = create_run(tmp_path / "run", model)
    answer_samples(folder, _ids(15))
    _run_here(folder)
    return folder


def test_a_features_folder_that_is_a_link_is_held_to_the_run_s_ledger(
    tmp_path: Path, tiny_models: dict[Kind, Path]
) -> None:
    folder = _made(tmp_path, tiny_models["llama"])
    (tmp_path / "disk").mkdir()
    folder.features_dir.rename(tmp_path / "disk" / "large")
    folder.features_dir.symlink_to(tmp_path / "disk" / "large")
    answer_samples(folder, _ids(20, 30), first=1)
    ledger = _checks(verify(folder.features_dir, tiny_models["llama"], device="cpu"))["ledger"]
    assert ledger == (True, "ids and masks are those of the ledger; 2 of the run's samples have no features yet")


def test_a_folder_of_a_file_within_a_run_is_not_held_to_the_run_s_ledger(
    tmp_path: Path, tiny_models: dict[Kind, Path]
) -> None:
    folder = _made(tmp_path, tiny_models["llama"])
    ids = _write_ids(folder.path / "ids.jsonl", random_samples((12, 30)))
    _extract_ids(ids, tiny_models["llama"], folder.path / "ids-features", dtype="float32")
    verdict = verify(folder.path / "ids-features", tiny_models["llama"], device="cpu")
    assert verdict.ok
    assert (verdict.samples, "ledger" in _checks(verdict)) == (2, False)


def test_a_list_that_is_not_the_ledger_s_copy_asks_for_a_look(tmp_path: Path, tiny_models: dict[Kind, Path]) -> None:
    folder, model = _made(tmp_path, tiny_models["llama"]), tiny_models["llama"]
    features = folder.features_dir
    assert _checks(verify(features, model, device="cpu"))["list"][0]
    (shard,) = read_shard_list(features)
    write_shard_list(features, [replace(shard, xxh3="00")])
    verdict = verify(features, model, device="cpu")
    said = f"{shard.path} is another in shards.jsonl; the next extract writes it anew from the ledger"
    assert (verdict.ok, _checks(verdict)["list"]) == (True, (False, said))
    (features / SHARD_LIST).unlink()
    assert "is missing from shards.jsonl" in _checks(verify(features, model, device="cpu"))["list"][1]
    (features / SHARD_LIST).write_text(json.dumps({"path": 5}) + "\n")
    assert "shards.jsonl:1: field path: found 5" in _checks(verify(features, model, device="cpu"))["list"][1]


def test_a_manifest_that_names_another_served_model_is_a_fault(tmp_path: Path, tiny_models: dict[Kind, Path]) -> None:
    features = _made(tmp_path, tiny_models["llama"]).features_dir
    write_manifest(features, replace(read_manifest(features), served_model="other"))
    found = _checks(verify(features, tiny_models["llama"], device="cpu"))["manifest"]
    assert found == (False, "served_model is 'other', found 'tiny/random'")
