"""Write a run's training set as JSONL: one object a line with `id`, `input_ids`, `loss_mask` and their evidence.

SpecForge (online) and speculators (`prepare-data`) read these lines without tokenizing anything again; keys beyond
`input_ids` and `loss_mask` are ignored there.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from eagletui.export.rows import TrainingRow
from eagletui.export.selection import Selection
from eagletui.export.token_file import CountedStream, Exported, export_tokens
from eagletui.export.token_folder import only_writer
from eagletui.runs.folder import RunFolder

FORMAT: Final = "eagletui-tokens-1"
DATA_FILE: Final = "train.jsonl"
VALIDATION_FILE: Final = "validation.jsonl"


def export_jsonl(
    folder: RunFolder,
    out: Path,
    *,
    also: Sequence[str] = (),
    only: Selection | None = None,
    validation_apart: bool = False,
) -> Exported:
    """Write the training set of a run and a manifest beside it.

    Both files appear whole or not at all; an earlier export of the same name is replaced only then.

    Args:
        folder: the run.
        out: the folder for both files; made if needed.
        also: usabilities beyond the default set.
        only: of these samples alone.
        validation_apart: rows to validate on go into a file of their own.

    Raises:
        RunError: there is nothing to export, or the folder cannot be written, as where another export writes into it.
        InputError: a picked id is not one of the run's.
    """
    with only_writer(out):
        return write_jsonl(folder, out, also=also, only=only, validation_apart=validation_apart)


def write_jsonl(
    folder: RunFolder,
    out: Path,
    *,
    also: Sequence[str] = (),
    only: Selection | None = None,
    validation_apart: bool = False,
) -> Exported:
    """Write as `export_jsonl` into a folder of which the caller is the only writer."""
    validation = VALIDATION_FILE if validation_apart else None
    return export_tokens(folder, out, DATA_FILE, FORMAT, _Lines, also=also, only=only, validation_name=validation)


class _Lines:
    """One JSON object a line."""

    def __init__(self, stream: CountedStream) -> None:
        self._stream = stream

    def add(self, row: TrainingRow) -> None:
        self._stream.write(msgspec.json.encode(row) + b"\n")

    def finish(self) -> None:
        """Nothing is held back."""
