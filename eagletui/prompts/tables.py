"""Read prompts from Parquet files and from Hugging Face data sets on disk: rows are read as JSON lines would be.

A data set on disk is a folder: what `Dataset.save_to_disk` writes (`state.json` and Arrow streams), or a snapshot of a
repository (Parquet files, one split). Only pyarrow reads them, which comes with the `[data]` extra.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from eagletui.core.errors import InputError, Problem
from eagletui.prompts.fields import Fault
from eagletui.prompts.jsonl import PromptFile, PromptRecord, read_record

ROWS_AT_ONCE: Final = 1_000
_TABLES: Final = (".parquet", ".arrow")
_PIECE_BYTES: Final = 2**20


def open_prompts(path: Path, turns: Literal["last", "all"]) -> "PromptFile | PromptTable":
    """Return the reader of a prompt source, by what lies there: JSON lines, a table, or a folder of tables."""
    return PromptTable(path, turns) if path.suffix in _TABLES or path.is_dir() else PromptFile(path, turns)


@dataclass(slots=True)
class PromptTable:
    """A table of prompts, iterated once: records and problems in the order of the rows, which count as lines."""

    path: Path
    turns: Literal["last", "all"]
    sha256: str | None = field(default=None, init=False)
    """Hex digest of the files' bytes, once iterated to the end."""

    def __iter__(self) -> Iterator[PromptRecord | Problem]:
        """Read every row, whatever is wrong with single ones.

        Raises:
            InputError: pyarrow is not installed.
        """
        arrow = _require_pyarrow(self.path)
        digest = hashlib.sha256()
        number = 0
        try:
            files = _files(self.path)
            for file in files:
                for row in _rows(arrow, file):
                    number += 1
                    yield self._read(number, row)
                _take_bytes(digest, file)
        except Fault as fault:
            yield Problem(str(self.path), None, fault.field, fault.found, fault.expected)
            return
        except (OSError, arrow.ArrowException) as error:
            what = f"a table that cannot be read ({str(error).splitlines()[0][:120]})"
            yield Problem(str(self.path), None, None, what, "Parquet or Arrow")
            return
        if not number:
            yield Problem(str(self.path), None, None, "no rows", "one prompt a row")
        self.sha256 = digest.hexdigest()

    def _read(self, number: int, row: dict[str, Any]) -> PromptRecord | Problem:
        filled = {name: value for name, value in row.items() if value is not None}
        line = msgspec.json.encode(filled, enc_hook=str)
        try:
            return read_record(number, line, self.path.stem or self.path.name, self.turns)
        except Fault as fault:
            return Problem(str(self.path), number, fault.field, fault.found, fault.expected)


def _require_pyarrow(path: Path) -> Any:
    try:
        import pyarrow
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError as error:
        raise InputError(
            f"{path}: tables of prompts need pyarrow, which is not installed: pip install 'eagletui[data]'. "
            "Or give JSON lines."
        ) from error
    return pyarrow


def _files(path: Path) -> list[Path]:
    """Name the tables of a source, in their order."""
    if not path.is_dir():
        return [path]
    if (path / "dataset_dict.json").is_file():
        splits = json.loads((path / "dataset_dict.json").read_text(encoding="utf-8")).get("splits", [])
        raise Fault(None, f"a data set with the splits {', '.join(map(str, splits))}", "the folder of one split")
    if (path / "state.json").is_file():
        state = json.loads((path / "state.json").read_text(encoding="utf-8"))
        return [path / str(file["filename"]) for file in state["_data_files"]]
    found = sorted(path.rglob("*.parquet"))
    splits = sorted({file.name.split("-")[0] for file in found if "-of-" in file.name})
    if not found:
        raise Fault(None, "a folder without tables", "Parquet files, or what Dataset.save_to_disk wrote")
    if len(splits) > 1:
        raise Fault(None, f"a folder with the splits {', '.join(splits)}", "the files of one split in [prompts] path")
    return found


def _rows(arrow: Any, file: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table, a few at a time in memory."""
    if file.suffix == ".parquet":
        with arrow.parquet.ParquetFile(file) as table:
            for batch in table.iter_batches(ROWS_AT_ONCE):
                yield from batch.to_pylist()
        return
    with arrow.memory_map(str(file)) as source:
        try:
            reader = arrow.ipc.open_stream(source)
            batches = iter(reader)
        except arrow.ArrowInvalid:
            whole = arrow.ipc.open_file(source)
            batches = (whole.get_batch(index) for index in range(whole.num_record_batches))
        for batch in batches:
            for start in range(0, batch.num_rows, ROWS_AT_ONCE):
                yield from batch.slice(start, ROWS_AT_ONCE).to_pylist()


def _take_bytes(digest: Any, file: Path) -> None:
    with file.open("rb") as opened:
        while piece := opened.read(_PIECE_BYTES):
            digest.update(piece)
