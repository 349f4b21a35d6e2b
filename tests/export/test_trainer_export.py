"""SpecForge's folder, which needs no package beyond those of extraction; both trainers' are in tests/conformance."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from eagletui.cli.app import main
from eagletui.core.draft_vocabulary import read_vocabulary
from eagletui.core.errors import InputError, LockedError, ModelError, RunError
from eagletui.export import feature_files
from eagletui.export.config_check import check_configs
from eagletui.export.trainer_export import Asked, export_for_trainer
from eagletui.export.trainer_folder import alone, find_trainer_manifest, read_rows, write_trainer_manifest
from eagletui.export.trainer_target import target_if_known, target_of_features
from eagletui.export.vocabulary import load_vocabulary, vocabulary_digest
from eagletui.ledger.orders import TokensResult
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.writer import LedgerWriter
from eagletui.models.checkpoint import read_checkpoint
from eagletui.runs.folder import RunFolder
from tests.export.exported_run import ExportedRun, add_samples, command, export, make_run, verify
from tests.export.mutations import FAULTS, Fault, damage, make_vocabulary_stale, truncate
from tests.extract.small_run import create_run
from tests.tiny_models import save_tiny_model, streams_of_transformers

ASKED = Asked("specforge", vocabulary_size=64)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> ExportedRun:
    """A run that no test changes."""
    return make_run(tmp_path_factory.mktemp("shared"))


@pytest.fixture(scope="module")
def exported(shared: ExportedRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its export, that no test changes."""
    out = tmp_path_factory.mktemp("exported") / "specforge"
    export(shared, "specforge", out, "--draft-vocab-size", "64")
    return out


@pytest.fixture
def copied(exported: Path, tmp_path: Path) -> Path:
    shutil.copytree(exported, tmp_path / "specforge")
    return tmp_path / "specforge"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> ExportedRun:
    """A small run that no test changes."""
    return make_run(tmp_path_factory.mktemp("small"), (17, 9, 21))


@pytest.fixture
def made(small: ExportedRun, tmp_path: Path) -> ExportedRun:
    """A copy of it, to change."""
    run = RunFolder(Path(shutil.copytree(small.run.path, tmp_path / "own" / "run")))
    return ExportedRun(run, small.model, dict(small.samples))


def _files(out: Path) -> dict[str, bytes]:
    return {str(file.relative_to(out)): file.read_bytes() for file in out.rglob("*") if file.is_file()}


def _feature_ids(out: Path) -> dict[str, tuple[int, ...]]:
    found = {}
    for file in out.rglob("*.ckpt"):
        found[str(file.relative_to(out))] = tuple(torch.load(file, weights_only=True)["input_ids"].tolist())
    return found


def test_files_hold_transformers_own_streams_and_post_norm_states(shared: ExportedRun, exported: Path) -> None:
    rows = read_rows(exported)
    assert [row.sample for row in rows] == list(shared.samples)
    for number, row in enumerate(rows):
        prompt, output = shared.samples[row.sample]
        ids = (*(prompt or ()), *output)
        content = torch.load(exported / f"rows_0-2000/data_{number}.ckpt", weights_only=True)
        aux, post = streams_of_transformers(shared.model, ids, dtype=torch.bfloat16)
        assert sorted(content) == ["aux_hidden_state", "hidden_state", "input_ids", "loss_mask"]
        assert content["input_ids"].tolist() == list(ids)
        assert content["loss_mask"].tolist() == [0] * len(prompt or ()) + [1] * len(output)
        assert torch.equal(content["aux_hidden_state"], aux.reshape(1, len(ids), -1))
        assert torch.equal(content["hidden_state"], post[None])


def test_nothing_but_features_ends_like_features_and_every_file_is_private(exported: Path) -> None:
    names = sorted(str(file.relative_to(exported)) for file in exported.rglob("*") if file.is_file())
    assert [name for name in names if not name.endswith(".ckpt")] == [
        "draft_config.json",
        "manifest.json",
        "rows.jsonl",
        "specforge.json",
        "vocab_mapping/vocab_mapping.pt",
    ]
    assert {file.stat().st_mode & 0o777 for file in exported.rglob("*") if file.is_file()} == {0o600}


def test_a_slice_of_a_shard_is_stored_without_the_rest_of_the_shard(exported: Path) -> None:
    rows = read_rows(exported)
    for row in rows:
        assert row.feature is not None
        assert row.feature.bytes < row.tokens * (4 * 64 * 2 + 16) + 4096


def test_float32_features_become_bfloat16_files_that_hold(tmp_path: Path) -> None:
    made = make_run(tmp_path, (17, 40), dtype="float32")
    export(made, "specforge", tmp_path / "out")
    content = torch.load(tmp_path / "out/rows_0-2000/data_1.ckpt", weights_only=True)
    assert content["aux_hidden_state"].dtype == content["hidden_state"].dtype == torch.bfloat16
    assert verify(made, tmp_path / "out", code=0) == {}


def test_features_in_fp8_become_files_that_hold(tmp_path: Path) -> None:
    made = make_run(tmp_path, (17, 40), dtype="fp8")
    export(made, "specforge", tmp_path / "out")
    content = torch.load(tmp_path / "out/rows_0-2000/data_1.ckpt", weights_only=True)
    assert content["hidden_state"].dtype == torch.bfloat16
    assert verify(made, tmp_path / "out", code=0) == {}


def test_adding_samples_writes_only_theirs_and_keeps_the_vocabulary(made: ExportedRun, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = export(made, "specforge", out, "--draft-vocab-size", "32")
    before = _files(out)
    add_samples(made, (12, 30))
    second = export(made, "specforge", out)
    after = _files(out)
    assert (first["added"], second["added"], second["files_written"], second["samples"]) == (3, 2, 2, 5)
    kept = [name for name in before if name.endswith(".ckpt") or name.startswith("vocab_mapping")]
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    assert second["draft_vocabulary"]["chosen_by_export"] == 1
    assert verify(made, out, code=0) == {}
    third = export(made, "specforge", out, "--new-vocabulary", "--draft-vocab-size", "48")
    assert (third["draft_vocabulary"]["size"], third["draft_vocabulary"]["chosen_by_export"]) == (48, 2)
    assert third["files_written"] == 0
    assert verify(made, out, code=0) == {}


def test_a_sample_that_left_the_set_is_taken_out_and_no_file_is_written_anew(made: ExportedRun, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(made, "specforge", out, "--draft-vocab-size", "32")
    before = _feature_ids(out)
    prompt, output = made.samples["s1"]
    with LedgerReader(made.run.ledger_path) as reader, LedgerWriter(made.run.ledger_path) as writer:
        detail = reader.sample("s1")
        assert detail is not None
        writer.store_tokens(detail.row.id, TokensResult(output, "text", "served", "model_suspect", prompt_ids=prompt))
    with pytest.raises(InputError, match=r"s1 among them, .* --remove-gone takes them out"):
        export_for_trainer(made.run, out, Asked("specforge"))
    done = export(made, "specforge", out, "--remove-gone")
    assert (done["removed"], done["added"], done["samples"], done["files_written"]) == (1, 0, 2, 0)
    assert [row.sample for row in read_rows(out)] == ["s0", "s2"]
    assert _feature_ids(out) == {
        "rows_0-2000/data_0.ckpt": before["rows_0-2000/data_0.ckpt"],
        "rows_0-2000/data_1.ckpt": before["rows_0-2000/data_2.ckpt"],
    }
    assert verify(made, out, code=0) == {}
    again = export(made, "specforge", out)
    assert (again["removed"], again["files_written"]) == (0, 0)


def test_an_answer_that_comes_late_goes_behind_those_exported_before(made: ExportedRun, tmp_path: Path) -> None:
    out = tmp_path / "out"
    add_samples(made, (25,), extracted=False)
    export(made, "specforge", out)
    add_samples(made, (14,))
    export(made, "specforge", out)
    assert [row.sample for row in read_rows(out)] == ["s0", "s1", "s2", "s3", "s4"]
    assert [row.since for row in read_rows(out)] == [1, 1, 1, 2, 2]


def test_an_interrupted_export_says_so_and_goes_on_where_it_was(
    made: ExportedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"

    class Full(feature_files.SpecForgeFile):
        written = 0

        def content(self, record: Any, rounded: Any) -> bytes:
            if self.written == 2:
                raise OSError(28, "No space left on device")
            self.written += 1
            return super().content(record, rounded)

    with monkeypatch.context() as patched:
        patched.setattr("eagletui.export.trainer_export.SpecForgeFile", Full)
        with pytest.raises(RunError, match="cannot be written: No space left on device"):
            export_for_trainer(made.run, out, ASKED)
    manifest = find_trainer_manifest(out)
    assert manifest is not None
    assert manifest.complete is False
    (out / "rows_0-2000" / ".data_2.ckpt.1.tmp").write_bytes(b"half")
    done = export_for_trainer(made.run, out, ASKED)
    assert (done.files_written, done.manifest.samples) == (1, 3)
    assert not list(out.rglob("*.tmp"))
    assert not (out / "journal.jsonl").exists()
    assert verify(made, out, code=0) == {}


def test_changed_ids_are_written_again_in_their_row(made: ExportedRun, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(made, "specforge", out, "--draft-vocab-size", "32")
    with LedgerReader(made.run.ledger_path) as reader, LedgerWriter(made.run.ledger_path) as writer:
        detail = reader.sample("s1")
        assert detail is not None
        new = TokensResult((5, 6, 7, 8), "new", "served", "usable", prompt_ids=(1, 2))
        writer.store_tokens(detail.row.id, new)
    assert verify(made, out, code=1)["ledger"].startswith("s1 in row 1 has other ids than the ledger")
    assert export(made, "specforge", tmp_path / "fresh")["left_out"] == {"no_features": 1}
    with pytest.raises(InputError, match="1 of the 3 samples exported before, s1 among them"):
        export_for_trainer(made.run, out, Asked("specforge"))
    command("extract", str(made.run.path), "--model", str(made.model), "--json")
    done = export_for_trainer(made.run, out, Asked("specforge"))
    assert done.files_written == 1
    assert _feature_ids(out)["rows_0-2000/data_1.ckpt"] == (1, 2, 5, 6, 7, 8)
    assert done.manifest.vocabulary.ids_changed is True
    assert verify(made, out, code=0) == {}


def test_ids_alone_need_no_features(tmp_path: Path) -> None:
    made = ExportedRun(create_run(tmp_path / "run", None), save_tiny_model(tmp_path / "model", "qwen3"), {})
    add_samples(made, (12, 30), extracted=False)
    out = tmp_path / "out"
    with pytest.raises(RunError, match=r"Run run has no features: eagletui extract .*/run --model PATH makes them"):
        export_for_trainer(made.run, out, ASKED)
    with pytest.raises(InputError, match="--model: found nothing, expected the target model's folder"):
        export_for_trainer(made.run, out, Asked("specforge", online=True))
    assert not out.exists()
    printed = export(made, "specforge", out, "--online", "--model", str(made.model), "--draft-vocab-size", "64")
    lines = [json.loads(line) for line in (out / "prompts.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == ["s0", "s1"]
    assert [line["input_ids"] for line in lines] == [
        [*(prompt or ()), *output] for prompt, output in made.samples.values()
    ]
    assert (printed["layers_output"], printed["route"]) == ([1, 3, 4], "online")
    assert "'model.aux_hidden_state_layer_ids=[1,3,4]'" in printed["command"]
    config = json.loads((out / "specforge.json").read_text())
    assert config["data"]["prompts_path"] == str(out / "prompts.jsonl")
    assert config["model"]["sglang_context_length"] == config["data"]["max_length"] + 7
    assert verify(made, out, code=0) == {}
    (out / "prompts.jsonl").write_text((out / "prompts.jsonl").read_text().replace(":[", ":[3,", 1))
    assert "holds other ids than were exported" in verify(made, out, code=1)["ids"]


def test_the_limit_in_the_command_cuts_nothing_unless_one_is_given(shared: ExportedRun, tmp_path: Path) -> None:
    (free,) = export(shared, "specforge", tmp_path / "free")["loaders"]
    assert (free["max_length"], free["changed"], free["samples"]) == (2048, 0, 8)
    printed = export(shared, "specforge", tmp_path / "short", "--max-length", "33")
    (short,) = printed["loaders"]
    assert (short["truncated"], short["dropped"], short["changed"]) == (2, 0, 2)
    assert "data.max_length=33" in printed["command"]


@pytest.mark.parametrize(
    ("fault", "check", "cover"),
    [
        pytest.param(fault, check, cover, id=f"{fault.__name__}-{'covered' if cover else 'plain'}", marks=marks)
        for number, (fault, check) in enumerate(FAULTS)
        for cover, marks in ((True, ()), (False, pytest.mark.slow if number else ()))
    ],
)
def test_every_fault_of_a_row_is_found_even_where_the_hash_was_made_to_agree(
    shared: ExportedRun, copied: Path, fault: Fault, check: str, cover: bool
) -> None:
    damage(copied, shared.model, 1, fault, cover=cover)
    failed = verify(shared, copied, code=1)
    assert check in failed
    assert ("files" in failed) is not cover


def test_a_fault_is_named_in_words(shared: ExportedRun, copied: Path) -> None:
    damage(copied, shared.model, 1, FAULTS[0][0], cover=True)
    detail = verify(shared, copied, code=1)["streams"]
    assert (
        "the last stream is the last layer's output before the final norm instead of the output of the final norm"
        in detail
    )


def test_a_cut_a_missing_and_a_foreign_file_are_found(shared: ExportedRun, copied: Path) -> None:
    truncate(copied, 2)
    group = copied / "rows_0-2000"
    (group / "data_3.ckpt").rename(group / "data_33.ckpt")
    failed = verify(shared, copied, code=1)
    assert "data_2.ckpt has" in failed["files"]
    assert "data_3.ckpt is missing" in failed["files"]
    assert "data_33.ckpt is of no row" in failed["files"]
    assert "data_2.ckpt cannot be read" in failed["layout"]
    assert "vocabulary" not in failed, "what cannot be read says nothing against it"


def test_a_manifest_that_counts_otherwise_than_its_rows_is_found(shared: ExportedRun, copied: Path) -> None:
    manifest = find_trainer_manifest(copied)
    assert manifest is not None
    target, vocabulary = replace(manifest.target, vocab_size=7), replace(manifest.vocabulary, since=0)
    write_trainer_manifest(copied, replace(manifest, tokens=1, target=target, vocabulary=vocabulary))
    failed = verify(shared, copied, code=1)
    assert "the manifest says 7 target tokens, its draft vocabulary 512" in failed["files"]
    assert f"of 1 tokens, the rows are {manifest.samples} of {manifest.tokens}" in failed["files"]
    assert "the rows of export 0, and no row is of it" in failed["vocabulary"]


@pytest.mark.parametrize("name", ["copy/x.ckpt", "rows_0-2000/backup.ckpt", "rows_0-2000/data_0.ckpt.gz"])
def test_a_file_that_the_trainer_would_find_beside_the_rows_is_refused(
    shared: ExportedRun, copied: Path, name: str
) -> None:
    (copied / name).parent.mkdir(exist_ok=True)
    shutil.copy(copied / "rows_0-2000/data_0.ckpt", copied / name)
    assert f"{name} is of no row, and the trainer would train on it" in verify(shared, copied, code=1)["files"]
    with pytest.raises(RunError, match="no export made it"):
        export_for_trainer(shared.run, copied, Asked("specforge"))


def test_a_stale_vocabulary_is_found_even_where_the_manifest_was_made_to_agree(
    shared: ExportedRun, copied: Path
) -> None:
    make_vocabulary_stale(copied)
    assert "stale, or another folder's" in verify(shared, copied, code=1)["vocabulary"]
    manifest = find_trainer_manifest(copied)
    assert manifest is not None
    digest = vocabulary_digest(read_vocabulary(*load_vocabulary(copied, "specforge", 64)))
    write_trainer_manifest(copied, replace(manifest, vocabulary=replace(manifest.vocabulary, sha256=digest)))
    assert "the rows it was chosen from give another one: stale" in verify(shared, copied, code=1)["vocabulary"]
    write_trainer_manifest(copied, manifest)
    with pytest.raises(RunError, match=r"was changed since it was made\. Add --new-vocabulary"):
        export_for_trainer(shared.run, copied, Asked("specforge"))


@pytest.mark.parametrize(
    ("file", "change", "check", "sentence"),
    [
        ("specforge.json", {"model": {"aux_hidden_state_layer_ids": [2, 4, 5]}}, "config", "this data wants [1, 3, 4]"),
        ("specforge.json", {"data": {"max_length": 12}}, "config", "specforge.json: data.max_length is 12"),
        ("draft_config.json", {"draft_vocab_size": 32000}, "config", "draft_vocab_size is 32000, this data wants 64"),
        (
            "draft_config.json",
            {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 4, 5]}},
            "config",
            "eagle_config.eagle_aux_hidden_state_layer_ids is [2, 4, 5]",
        ),
        ("specforge.json", {"model": {"lm_head_key": "model.embed_tokens.weight"}}, "config", "model.lm_head_key is"),
        ("specforge.json", {"model": {"embedding_key": "lm_head.weight"}}, "config", "model.embedding_key is"),
        (
            "specforge.json",
            {"model": {"vocab_mapping_path": "/other.pt"}},
            "paths",
            'vocab_mapping_path is "/other.pt"',
        ),
    ],
)
def test_an_edited_config_that_would_train_wrong_is_found(
    shared: ExportedRun, copied: Path, file: str, change: dict[str, Any], check: str, sentence: str
) -> None:
    content = json.loads((copied / file).read_text())
    for name, value in change.items():
        content[name] = {**content.get(name, {}), **value} if isinstance(value, dict) else value
    (copied / file).write_text(json.dumps(content))
    manifest = find_trainer_manifest(copied)
    assert manifest is not None
    answers = check_configs(copied, manifest, read_checkpoint(shared.model))
    (found,) = [answer for answer in answers if answer.name == check]
    assert not found.ok
    assert sentence in found.detail


def test_what_a_person_may_change_in_a_config_is_no_fault(shared: ExportedRun, exported: Path) -> None:
    manifest = find_trainer_manifest(exported)
    assert manifest is not None
    path = exported / "specforge.json"
    before = path.read_text()
    path.write_text(json.dumps({**json.loads(before), "run_id": "mine", "training": {"strategy": "eagle3", "lr": 1}}))
    answers = [answer.ok for answer in check_configs(exported, manifest, read_checkpoint(shared.model))]
    path.write_text(before)
    assert answers == [True, True]


def test_another_model_where_the_target_lay_is_refused_for_either_trainer(tmp_path: Path) -> None:
    made = make_run(tmp_path / "own", (9,))
    shutil.rmtree(made.model)
    save_tiny_model(made.model, "qwen3", dtype=torch.bfloat16, seed=8)
    with LedgerReader(made.run.ledger_path) as reader:
        for computes in (False, True):
            with pytest.raises(ModelError, match="is not the model that the features of run run were made with"):
                target_of_features(made.run, reader, None, compute=computes)
        known = target_if_known(made.run, reader)
        assert known is not None
        assert known.facts.layers_output == (1, 3, 4)


def test_a_ledger_that_is_gone_is_said_and_not_passed_over(shared: ExportedRun, copied: Path, tmp_path: Path) -> None:
    manifest = find_trainer_manifest(copied)
    assert manifest is not None
    write_trainer_manifest(copied, replace(manifest, ledger=str(tmp_path / "moved.sqlite")))
    verdict = command("verify", str(copied), "--model", str(shared.model), "--samples", "1", "--json")
    (found,) = [check for check in verdict["checks"] if check["name"] == "ledger"]
    assert (found["ok"], found["level"]) == (False, "warn")
    assert found["detail"].startswith(f"no ledger of run run is at {tmp_path / 'moved.sqlite'} any more: ids were held")


def test_another_model_is_refused_and_found(shared: ExportedRun, copied: Path, tmp_path: Path) -> None:
    other = save_tiny_model(tmp_path / "other", "qwen3", dtype=torch.bfloat16, seed=8)
    with pytest.raises(ModelError, match="is not the model that the features of run run were made with"):
        export_for_trainer(shared.run, tmp_path / "out", Asked("specforge", model=other))
    failed = verify(replace(shared, model=other), copied, code=1)
    assert {"model", "streams"} <= set(failed)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--draft-vocab-size", "32"), "found 32, but"),
        (("--online",), "route is 'offline' there and 'online' now"),
        (("--validation", "10"), "--validation does not go with --to specforge; it is for speculators"),
        (("--model", "nowhere"), "--model: there is nothing at nowhere"),
    ],
)
def test_what_does_not_fit_the_folder_exits_2_and_changes_nothing(
    shared: ExportedRun, copied: Path, capsys: pytest.CaptureFixture[str], args: tuple[str, ...], message: str
) -> None:
    before = _files(copied)
    with pytest.raises(SystemExit) as end:
        main(["export", str(shared.run.path), "--to", "specforge", "--out", str(copied), *args])
    assert end.value.code == 2
    assert message in capsys.readouterr().err
    assert _files(copied) == before


def test_a_folder_of_something_else_is_left_alone(shared: ExportedRun, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(RunError, match="is not empty and is no export of a run for a trainer"):
        export_for_trainer(shared.run, tmp_path, ASKED)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]


def test_what_killed_exports_left_half_written_is_removed_on_both_routes_and_nothing_else(
    shared: ExportedRun, copied: Path, tmp_path: Path
) -> None:
    export(shared, "specforge", tmp_path / "online", "--online", "--model", str(shared.model))
    for out, args in ((copied, ()), (tmp_path / "online", ("--online", "--model", str(shared.model)))):
        (out / ".staging-4x7k" / "saved").mkdir(parents=True)
        (out / ".staging-4x7k" / "saved" / "data.arrow").write_bytes(b"all ids of the run")
        (out / ".prompts.jsonl.77.tmp").write_bytes(b"half")
        (out / "notes.tmp").write_text("mine")
        export(shared, "specforge", out, *args)
        assert not [path for path in out.iterdir() if path.name.startswith(".")]
        assert (out / "notes.tmp").read_text() == "mine"


def test_a_second_export_into_a_folder_that_is_written_is_refused(shared: ExportedRun, copied: Path) -> None:
    before = _files(copied)
    with alone(copied), pytest.raises(LockedError, match="Another export writes into"):
        export_for_trainer(shared.run, copied, Asked("specforge"))
    assert _files(copied) == before


def test_a_disk_that_is_too_small_is_named_before_anything_is_written(
    shared: ExportedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eagletui.extract.space.DiskSpace.free_bytes", lambda _space: 1000)
    with pytest.raises(InputError, match=r"The export needs .* has 1000 bytes to give"):
        export_for_trainer(shared.run, tmp_path / "out", ASKED)
    assert not (tmp_path / "out").exists()


def test_speculators_without_rows_to_validate_on_is_refused_before_anything_is_written(
    shared: ExportedRun, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="--validation: found 0, expected more: speculators refuses a set without"):
        export_for_trainer(shared.run, tmp_path / "out", Asked("speculators", validation_percent=0.0))
    assert not (tmp_path / "out").exists()


def test_a_missing_package_is_named_with_the_command_that_installs_it(
    shared: ExportedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r"needs the package datasets.*pip install 'eagletui\[data\]'"):
        export_for_trainer(shared.run, tmp_path / "out", Asked("speculators"))
    assert not (tmp_path / "out").exists()
