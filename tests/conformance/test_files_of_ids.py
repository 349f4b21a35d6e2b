"""Parquet is readable by Arrow and holds the columns that TorchSpec reads as ids."""

import json
import shlex
from pathlib import Path

import pytest

from tests.export.exported_run import ExportedRun, export

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
