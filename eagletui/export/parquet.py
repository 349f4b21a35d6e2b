"""A run's training set as Parquet files of token ids, rows to validate on apart.

Columns `data_id`, `input_ids`, `loss_mask`, `packed_loss_mask`, `seq_len` and `loss_tokens` are what TorchSpec, from
commit 601a44cf on, reads as ids without rendering anything; the others say where a sample comes from and why its ids
are believed.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from eagletui.core.errors import InputError
from eagletui.core.loss_mask import packed_mask
from eagletui.export.rows import TrainingRow
from eagletui.export.selection import Selection
from eagletui.export.token_file import CountedStream, Exported, export_tokens
from eagletui.export.token_folder import only_writer
from eagletui.runs.folder import RunFolder

FORMAT: Final = "eagletui-parquet-1"
DATA_FILE: Final = "train.parquet"
VALIDATION_FILE: Final = "validation.parquet"
_BATCH_TOKENS: Final = 1_000_000
"""Of a row group: large enough to read fast, small enough to hold."""


def export_parquet(
    folder: RunFolder, out: Path, *, also: Sequence[str] = (), only: Selection | None = None
) -> Exported:
    """Write the training set of a run as Parquet, and a manifest beside it.

    The files appear whole or not at all; an earlier export of the same name is replaced only then.

    Args:
        folder: the run.
        out: the folder for the files; made if needed.
        also: usabilities beyond the default set.
        only: of these samples alone.

    Raises:
        InputError: pyarrow is not installed, or a picked id is not one of the run's.
        RunError: there is nothing to export, or the folder cannot be written, as where another export writes into it.
    """
    require_pyarrow()
    with only_writer(out):
        return export_tokens(
            folder, out, DATA_FILE, FORMAT, _Groups, also=also, only=only, validation_name=VALIDATION_FILE
        )


def require_pyarrow() -> Any:
    """Return the package that reads and writes Parquet.

    Raises:
        InputError: it is not installed; names the command.
    """
    try:
        import pyarrow
    except ImportError as error:
        raise InputError(
            "Parquet needs the package pyarrow, which is not installed: pip install 'eagletui[data]'. "
            "Nothing was written."
        ) from error
    return pyarrow


def schema(arrow: Any) -> Any:
    """Return the columns of a file.

    Args:
        arrow: the package.
    """
    return arrow.schema(
        {
            "data_id": arrow.string(),
            "input_ids": arrow.list_(arrow.int64()),
            "loss_mask": arrow.list_(arrow.int64()),
            "packed_loss_mask": arrow.string(),
            "seq_len": arrow.int64(),
            "loss_tokens": arrow.int64(),
            "prompt_tokens": arrow.int64(),
            "evidence": arrow.string(),
            "usability": arrow.string(),
            "finish_reason": arrow.string(),
            "dataset": arrow.string(),
            "endpoint": arrow.string(),
            "resegmented_spans": arrow.int64(),
            "tail_trimmed": arrow.bool_(),
        }
    )


class _Groups:
    """Rows gathered into row groups."""

    def __init__(self, stream: CountedStream) -> None:
        self._arrow = require_pyarrow()
        from pyarrow.parquet import ParquetWriter

        self._file = self._arrow.PythonFile(stream, mode="w")
        self._writer = ParquetWriter(self._file, schema(self._arrow), compression="zstd")
        self._rows: list[dict[str, Any]] = []
        self._tokens = 0

    def add(self, row: TrainingRow) -> None:
        self._rows.append(
            {
                "data_id": row.id,
                "input_ids": row.input_ids,
                "loss_mask": row.loss_mask,
                "packed_loss_mask": packed_mask(row.prompt_tokens, row.output_tokens),
                "seq_len": len(row.input_ids),
                "loss_tokens": row.output_tokens,
                "prompt_tokens": row.prompt_tokens,
                "evidence": row.evidence,
                "usability": row.usability,
                "finish_reason": row.finish_reason,
                "dataset": row.dataset,
                "endpoint": row.endpoint,
                "resegmented_spans": row.resegmented_spans,
                "tail_trimmed": row.tail_trimmed,
            }
        )
        self._tokens += len(row.input_ids)
        if self._tokens >= _BATCH_TOKENS:
            self._write_group()

    def finish(self) -> None:
        self._write_group()
        self._writer.close()

    def _write_group(self) -> None:
        if self._rows:
            self._writer.write_table(self._arrow.Table.from_pylist(self._rows, schema=schema(self._arrow)))
        self._rows, self._tokens = [], 0
