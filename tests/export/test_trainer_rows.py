"""The rows that a trainer reads itself: what `verify` finds in them."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eagletui.export.trainer_folder import find_trainer_manifest, write_trainer_manifest
from eagletui.ledger.orders import TokensResult
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.writer import LedgerWriter
from eagletui.runs.folder import RunFolder
from tests.export.exported_run import ExportedRun, add_samples, command, export, verify
from tests.extract.small_run import create_run
from tests.tiny_models import save_tiny_model


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> ExportedRun:
    """A run without features that no test changes."""
    folder = tmp_path_factory.mktemp("made")
    model = save_tiny_model(folder / "model", "qwen3")
    run = ExportedRun(create_run(folder / "run", model), model, {})
    add_samples(run, (17, 9), extracted=False)
    return run


@pytest.fixture(scope="module")
def exported(made: ExportedRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("exported") / "specforge"
    export(made, "specforge", out, "--online", "--draft-vocab-size", "64")
    return out


@pytest.fixture
def copied(exported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exported, tmp_path / "specforge"))


@pytest.mark.parametrize(
    ("changed", "check", "said"),
    [
        ({"input_ids": None, "loss_mask": None}, "layout", "row 0 and those behind it cannot be read"),
        ({"loss_mask": None}, "layout", "Expected `array`, got `null`"),
        ({"input_ids": [1.0] * 17}, "layout", "Expected `int`, got `float`"),
        ({"loss_mask": [False] * 5 + [True] * 12}, "layout", "Expected `int`, got `bool`"),
        ({"input_ids": [2**40] * 17}, "layout", "OverflowError"),
        ({"id": "s9"}, "ids", "row 0 is named s9 where the trainer reads it, not s0"),
    ],
)
def test_a_prompt_that_is_no_list_of_whole_numbers_or_of_another_sample_is_found(
    made: ExportedRun, copied: Path, changed: dict[str, Any], check: str, said: str
) -> None:
    prompts = copied / "prompts.jsonl"
    first, second = prompts.read_text().splitlines()
    prompts.write_text(f"{json.dumps(json.loads(first) | changed)}\n{second}\n")
    assert said in verify(made, copied, code=1)[check]


def test_a_prompt_without_a_mask_is_found(made: ExportedRun, copied: Path) -> None:
    prompts = copied / "prompts.jsonl"
    prompts.write_text(prompts.read_text().replace("loss_mask", "mask"))
    assert "missing required field `loss_mask`" in verify(made, copied, code=1)["layout"]


def test_a_manifest_that_counts_other_sampled_tokens_is_found(made: ExportedRun, copied: Path) -> None:
    assert verify(made, copied, code=0) == {}
    manifest = find_trainer_manifest(copied)
    assert manifest is not None
    write_trainer_manifest(copied, replace(manifest, sampled_tokens=1))
    assert "the manifest says 1 sampled tokens, the rows have 18" in verify(made, copied, code=1)["files"]


def test_a_run_config_that_names_another_target_is_told(made: ExportedRun, copied: Path) -> None:
    config = copied / "specforge.json"
    config.write_text(config.read_text().replace(str(made.model), "/elsewhere/model"))
    checks = command("verify", str(copied), "--model", str(made.model), "--json")["checks"]
    paths = next(check["detail"] for check in checks if check["name"] == "paths")
    assert 'model.target_model_path is "/elsewhere/model", which is not' in paths


def test_a_sample_that_left_the_training_set_and_a_label_that_changed_are_found(
    made: ExportedRun, exported: Path, tmp_path: Path
) -> None:
    run = RunFolder(Path(shutil.copytree(made.run.path, tmp_path / "run")))
    out = Path(shutil.copytree(exported, tmp_path / "specforge"))
    manifest = find_trainer_manifest(out)
    assert manifest is not None
    write_trainer_manifest(out, replace(manifest, ledger=str(run.ledger_path)))
    own = ExportedRun(run, made.model, made.samples)
    assert verify(own, out, code=0) == {}

    def label(evidence: str, usability: str) -> dict[str, str]:
        with LedgerWriter(run.ledger_path) as writer, LedgerReader(run.ledger_path) as reader:
            detail = reader.sample("s1")
            assert detail is not None
            prompt, output = made.samples["s1"]
            writer.store_tokens(detail.row.id, TokensResult(output, "text", evidence, usability, prompt_ids=prompt))
        checks = command("verify", str(out), "--model", str(made.model), "--json", code=usability != "usable")["checks"]
        return {check["name"]: check["detail"] for check in checks if not check["ok"]}

    counted = "evidence is {'served': 2} in the manifest and {'served': 1, 'counted': 1} in the ledger now"
    found = label("counted", "usable")
    assert counted in found["labels"]
    assert "ledger" not in found
    found = label("served", "text_suspect")
    assert found["ledger"].startswith("s1 in row 1 is text_suspect in the ledger now, and not to train on")
