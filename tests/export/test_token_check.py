"""What `verify` finds in files of ids, also where size and hash were made to agree with a fault."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import torch

from eagletui.core.row_order import joins_validation
from eagletui.ledger.orders import TokensResult
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.writer import LedgerWriter
from eagletui.runs.folder import RunFolder
from tests.export.exported_run import command
from tests.extract.small_run import answer_samples, create_run

Lines = list[bytes]
Change = Callable[[Lines], Lines]

TORCHSPEC: Final = ("--model", "named/target", "--max-length", "64", "--chat-template", "qwen")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """40 samples of 5 tokens; no test changes it."""
    run = create_run(tmp_path_factory.mktemp("original") / "run", None)
    answer_samples(run, [((1, 2), (3, 4, number)) for number in range(40)])
    return run


@pytest.fixture(scope="module")
def exports(original: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("exports")
    command("export", str(original.path), "--to", "jsonl", "--out", str(out / "jsonl"), "--json")
    return out


@pytest.fixture
def copied(exports: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exports / "jsonl", tmp_path / "jsonl"))


def _verify(out: Path, *args: str, code: int = 0) -> dict[str, str]:
    """Check files of ids and return what does not hold, with its details."""
    verdict = command("verify", str(out), *args, "--json", code=code)
    return {check["name"]: check["detail"] for check in verdict["checks"] if not check["ok"]}


def _rewrite(out: Path, change: Change, *, covered: bool) -> None:
    """Change the rows; with `covered`, let the manifest's size and hash agree, as a faulty writer would."""
    data = out / "train.jsonl"
    data.write_bytes(b"".join(change(data.read_bytes().splitlines(keepends=True))))
    if covered:
        _state(out, bytes=data.stat().st_size, sha256=hashlib.sha256(data.read_bytes()).hexdigest())


def _state(out: Path, **fields: object) -> None:
    manifest = out / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **fields}))


def _row(**fields: object) -> Change:
    """Change fields of the first row."""
    return lambda lines: [json.dumps({**json.loads(lines[0]), **fields}).encode() + b"\n", *lines[1:]]


def _without(name: str) -> Change:
    def change(lines: Lines) -> Lines:
        first: dict[str, Any] = json.loads(lines[0])
        first.pop(name)
        return [json.dumps(first).encode() + b"\n", *lines[1:]]

    return change


def test_what_was_exported_holds_without_a_model_and_with_one(exports: Path, tmp_path: Path) -> None:
    assert _verify(exports / "jsonl") == {}
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"vocab_size": 512, "max_position_embeddings": 1024}))
    assert _verify(exports / "jsonl", "--model", str(tmp_path)) == {}
    config.write_text(json.dumps({"text_config": {"vocab_size": 30, "max_position_embeddings": 4}}))
    found = _verify(exports / "jsonl", "--model", str(tmp_path), code=1)
    assert found["ids"].startswith("s30 holds an id outside the vocabulary")
    assert found["positions"] == "40 rows are longer than the 4 positions of the target"


@pytest.mark.parametrize(
    ("change", "check", "said"),
    [
        (lambda lines: lines[:-1], "counts", "samples is 40 in the manifest, and 39 in the rows"),
        (lambda lines: [*lines, lines[0]], "ids", "s0 is there twice"),
        (lambda lines: [lines[1], lines[0], *lines[2:]], "ledger", "s0 stands behind rows that come after it"),
        (lambda lines: [lines[-1], *lines[:-1]], "split", "lies with the rows to train on, and its prompt is one to"),
        (lambda lines: [lines[0][:30] + b"\n", *lines[1:]], "layout", "train.jsonl:1:"),
        (_row(input_ids=[1, 2, 3, 4, 9]), "ledger", "s0 has other ids than the ledger: export again"),
        (_row(evidence="logprobs"), "ledger", "s0 has other evidence, usability or origin than the ledger"),
        (_row(id="s99"), "ledger", "s99 is no sample of this run's"),
        (_row(input_ids=None), "layout", "Expected `array`, got `null`"),
        (_row(input_ids=[1, 2, 3, 4.0, 0]), "layout", "Expected `int`, got `float`"),
        (_row(loss_mask=[0, 0, True, 1, 1]), "layout", "Expected `int`, got `bool`"),
        (_row(loss_mask=[0, 1, 1, 1, 1]), "ids", "s0 has a mask that does not mark its answer and nothing else"),
        (_row(loss_mask=[0, 0, 0, 0, 0], prompt_tokens=5, output_tokens=0), "ids", "s0 has a mask that does not mark"),
        (_row(loss_mask=[0, 0, 1, 1]), "ids", "s0 has 5 ids and a mask of 4"),
        (_row(input_ids=[1, 2, 3, 4, -1]), "ids", "s0 holds an id outside the vocabulary"),
        (_without("loss_mask"), "layout", "missing required field `loss_mask`"),
        (_row(usability="unusable"), "counts", "unusable rows are there, which were not asked for"),
    ],
)
def test_rows_that_were_changed_are_found_by_their_hash_and_without_it(
    copied: Path, change: Change, check: str, said: str
) -> None:
    _rewrite(copied, change, covered=False)
    assert "train.jsonl" in _verify(copied, code=1)["files"]
    _rewrite(copied, lambda lines: lines, covered=True)
    assert said in _verify(copied, code=1)[check]


def test_an_export_is_stale_once_its_run_was_rebuilt_or_a_sample_left_the_set(
    original: RunFolder, tmp_path: Path
) -> None:
    run = RunFolder(Path(shutil.copytree(original.path, tmp_path / "run")))
    out = tmp_path / "out"
    command("export", str(run.path), "--to", "jsonl", "--out", str(out), "--json")
    answer_samples(run, [((1,), (2,))], first=40)
    ledger = {check["name"]: check for check in command("verify", str(out), "--json")["checks"]}["ledger"]
    assert ledger["ok"]
    assert ledger["detail"].endswith("; 1 more samples are there now")
    changed = (("s3", (3, 4, 9), "served", "usable"), ("s5", (3, 4, 5), "served", "text_suspect"))
    with LedgerWriter(run.ledger_path) as writer, LedgerReader(run.ledger_path) as reader:
        for key, output, evidence, usability in changed:
            detail = reader.sample(key)
            assert detail is not None
            writer.store_tokens(detail.row.id, TokensResult(output, "text", evidence, usability, prompt_ids=(1, 2)))
    said = _verify(out, code=1)["ledger"]
    assert "s3 has other ids than the ledger: export again" in said
    assert "s5 is text_suspect in the ledger now, and not to train on: export again" in said
    shutil.rmtree(run.path)
    assert "no ledger of run run is at" in _verify(out)["ledger"]


def test_a_run_that_was_moved_with_its_export_is_found(original: RunFolder, tmp_path: Path) -> None:
    run = RunFolder(Path(shutil.copytree(original.path, tmp_path / "run")))
    command("export", str(run.path), "--to", "jsonl", "--json")
    run.path.rename(tmp_path / "moved")
    out = tmp_path / "moved" / "exports" / "jsonl"
    assert _verify(out) == {}
    _rewrite(out, _row(input_ids=[1, 2, 3, 4, 9]), covered=True)
    assert "s0 has other ids than the ledger" in _verify(out, code=1)["ledger"]


def test_figures_and_a_file_of_another_export_are_found(copied: Path) -> None:
    _state(copied, by_evidence={"logprobs": 40}, tokenizer_hash="ff")
    (copied / "validation.jsonl").write_bytes(b"")
    found = _verify(copied, code=1)
    assert found["counts"] == "by_evidence is {'logprobs': 40} in the manifest, and {'served': 40} in the rows"
    assert found["files"].startswith("validation.jsonl is of another export")
    assert found["ledger"] == "the manifest names another tokenizer than the ledger"
    (copied / "train.jsonl").unlink()
    assert "train.jsonl is missing" in _verify(copied, code=1)["files"]


def test_a_selection_keeps_its_own_order_and_has_no_sides(original: RunFolder, tmp_path: Path) -> None:
    picked = tmp_path / "picked.txt"
    held_out = next(f"s{number}" for number in range(40) if joins_validation(f"s{number}", 10))
    picked.write_text(f"s9\n{held_out}\ns2\n")
    out = tmp_path / "out"
    command("export", str(original.path), "--to", "jsonl", "--out", str(out), "--only", str(picked), "--json")
    assert _verify(out) == {}


def test_the_cache_of_torchspec_is_held_to_its_key_its_rows_and_its_config(original: RunFolder, tmp_path: Path) -> None:
    out = tmp_path / "out"
    printed = command("export", str(original.path), "--to", "torchspec", "--out", str(out), *TORCHSPEC, "--json")
    assert _verify(out) == {}
    (validation,) = (entry for entry in out.glob("cache/*/*.pt") if entry.stem != printed["key"])
    entry = Path(printed["cache_file"])
    kept = entry.read_bytes()
    shutil.copy(validation, entry)
    assert "holds another sample 0 than train.jsonl" in _verify(out, code=1)["cache"]
    entry.write_bytes(kept[:100])
    assert "cannot be read" in _verify(out, code=1)["cache"]
    torch.save(7, entry)
    assert "holds int, expected the list of train.jsonl's samples" in _verify(out, code=1)["cache"]
    entry.write_bytes(kept)
    config = out / "torchspec.yaml"
    stated = json.loads(config.read_text())
    config.write_text(json.dumps({**stated, "training": {**stated["training"], "max_seq_length": 32}}))
    assert "training.max_seq_length is 32, the cache was made for 64" in _verify(out, code=1)["config"]
    elsewhere = Path(shutil.copytree(out, tmp_path / "elsewhere"))
    moved = _verify(elsewhere, code=1)["paths"]
    assert f"dataset.train_data_path is {out / 'train.jsonl'}, which is not {elsewhere / 'train.jsonl'}" in moved
    os.utime(out / "train.jsonl", (1, 1))
    assert "has no entry under the key that TorchSpec looks for" in _verify(out, code=1)["cache"]


def test_features_need_the_model_and_files_of_ids_no_forward(original: RunFolder, exports: Path) -> None:
    said = command("verify", str(original.path), "--json", code=2)["error"]
    assert said.startswith("--model: found nothing, expected the target model")
    said = command("verify", str(exports / "jsonl"), "--samples", "3", "--json", code=2)["error"]
    assert said.startswith("--samples does not go with files of ids")
