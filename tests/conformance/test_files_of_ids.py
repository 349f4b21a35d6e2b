"""Parquet is readable by Arrow and holds the columns that TorchSpec reads as ids."""

import hashlib
import json
import shlex
from pathlib import Path

import pytest

from tests.export.exported_run import ExportedRun, export, verify

pytestmark = pytest.mark.conformance


def test_parquet_holds_ids_masks_and_their_run_lengths(made: ExportedRun, tmp_path: Path) -> None:
    from pyarrow import parquet

    printed = export(made, "parquet", tmp_path / "out")
    table = parquet.read_table(printed["file"])
    held_out = parquet.read_table(printed["validation_file"])
    assert (len(table), len(held_out)) == (printed["train_rows"], printed["validation_rows"])
    rows = {row["data_id"]: row for row in [*table.to_pylist(), *held_out.to_pylist()]}
    words = shlex.split(printed["command"])
    config = json.loads(Path(words[words.index("--config") + 1]).read_text())
    assert config["dataset"]["train_data_path"] == printed["file"]
    assert config["dataset"]["eval_data_path"] == printed["validation_file"]
    assert set(rows) == set(made.samples)
    for key, (prompt, output) in made.samples.items():
        prompt = prompt or ()
        row = rows[key]
        assert row["input_ids"] == [*prompt, *output]
        assert row["loss_mask"] == [0] * len(prompt) + [1] * len(output)
        assert [int(run) for run in row["packed_loss_mask"].split(",")] == [len(prompt), len(output)]
        assert (row["seq_len"], row["loss_tokens"]) == (len(row["input_ids"]), len(output))
    assert str(table.schema.field("input_ids").type.value_type) == "int64"
    assert printed["loaders"][0]["changed"] == 0


def test_parquet_that_was_cut_or_changed_is_found_also_where_size_and_hash_agree(
    made: ExportedRun, tmp_path: Path
) -> None:
    from pyarrow import parquet

    out = tmp_path / "out"
    printed = export(made, "parquet", out)
    assert verify(made, out, code=0) == {}
    config = out / "torchspec.yaml"
    stated = json.loads(config.read_text())
    config.write_text(json.dumps({**stated, "training": {"max_seq_length": 63}}))
    assert verify(made, out, code=1)["limit"].startswith("a row has 64 tokens, and training.max_seq_length is 63")
    config.write_text(json.dumps(stated))
    file = Path(printed["file"])
    table = parquet.read_table(file)
    columns = table.to_pydict()
    columns["packed_loss_mask"][0] = "1,2"
    changed = type(table).from_pydict(columns, schema=table.schema)
    for other, check in (
        (table.slice(1), "counts"),
        (changed, "layout"),
        (table.drop_columns(["loss_mask"]), "layout"),
    ):
        parquet.write_table(other, file)
        assert {"files", check} <= set(verify(made, out, code=1))
        content = file.read_bytes()
        stated = json.loads((out / "manifest.json").read_text())
        stated |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        (out / "manifest.json").write_text(json.dumps(stated))
        found = verify(made, out, code=1)
        assert check in found
        assert "files" not in found
    file.write_bytes(file.read_bytes()[:-20])
    assert "cannot be read" in verify(made, out, code=1)["layout"]
