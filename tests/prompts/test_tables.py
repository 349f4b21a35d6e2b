"""Tables of prompts: Parquet files and data sets on disk."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from eagletui.core.chat import Message
from eagletui.core.errors import InputError, Problem
from eagletui.prompts.jsonl import PromptFile, PromptRecord
from eagletui.prompts.tables import PromptTable, open_prompts

ROWS: list[dict[str, Any]] = [
    {"id": "a", "prompt": None, "messages": [{"role": "user", "content": "Hi", "name": None}]},
    {"id": "b", "prompt": None, "messages": [{"role": "robot", "content": "x", "name": None}]},
]


def test_json_lines_and_tables_are_told_apart(tmp_path: Path) -> None:
    assert isinstance(open_prompts(tmp_path / "p.jsonl", "last"), PromptFile)
    assert isinstance(open_prompts(tmp_path / "p.parquet", "last"), PromptTable)
    assert isinstance(open_prompts(tmp_path, "last"), PromptTable)


def test_without_pyarrow_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"p\.parquet: .* pip install 'eagletui\[data\]'\. Or give JSON lines\."):
        list(open_prompts(tmp_path / "p.parquet", "last"))


def judged(items: list[PromptRecord | Problem]) -> None:
    record, problem = items
    assert isinstance(record, PromptRecord)
    assert (record.key, record.line, record.prompt.messages) == ("a", 1, (Message("user", "Hi"),))
    assert isinstance(problem, Problem)
    assert (problem.line, problem.field) == (2, "messages[0].role")


def test_a_parquet_file_is_read_row_by_row(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.Table.from_pylist(ROWS), tmp_path / "p.parquet")
    table = PromptTable(tmp_path / "p.parquet", "last")
    judged(list(table))
    assert table.sha256 is not None


def test_a_saved_data_set_is_read_and_a_choice_of_splits_is_asked_for(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    folder = tmp_path / "train"
    folder.mkdir()
    table = arrow.Table.from_pylist(ROWS)
    with arrow.OSFile(str(folder / "data-00000-of-00001.arrow"), "wb") as sink:
        with arrow.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
    judged(list(PromptTable(folder, "last")))
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    (problem,) = PromptTable(tmp_path, "last")
    assert isinstance(problem, Problem)
    assert "the splits train, test" in problem.found
