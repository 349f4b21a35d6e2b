"""Read back the rows of a file of ids as a trainer finds them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from eagletui.core.checks import Faults
from eagletui.core.loss_mask import packed_mask
from eagletui.export import parquet
from eagletui.export.rows import TrainingRow


def rows_of_lines(path: Path, faults: Faults) -> Iterator[TrainingRow]:
    """Read the rows of a JSONL file; a line that is none is a fault, and the next one is read.

    Raises:
        OSError: the file cannot be read.
    """
    decoder = msgspec.json.Decoder(TrainingRow)
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                row = decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                faults.add(f"{path.name}:{number}: {error}")
                continue
            yield row


def rows_of_parquet(path: Path, faults: Faults) -> Iterator[TrainingRow]:
    """Read the rows of a Parquet file; one that is none is a fault, and the next one is read.

    Raises:
        OSError: the file cannot be read.
        InputError: pyarrow is not installed.
    """
    arrow = parquet.require_pyarrow()
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path) as file:
            if not file.schema_arrow.equals(parquet.schema(arrow)):
                faults.add(f"{path.name} has other columns than TorchSpec reads as ids, or of other types")
                return
            number = 0
            for batch in file.iter_batches(batch_size=256):
                for content in batch.to_pylist():
                    yield from _row(f"{path.name}, row {number}", content, faults)
                    number += 1
    except arrow.ArrowInvalid as error:
        faults.add(f"{path.name} cannot be read: {error}")


def _row(where: str, content: dict[str, Any], faults: Faults) -> Iterator[TrainingRow]:
    fields = {
        **content,
        "id": content["data_id"],
        "output_tokens": content["loss_tokens"],
    }
    try:
        row = msgspec.convert(fields, TrainingRow)
    except msgspec.ValidationError as error:
        faults.add(f"{where}: {error}")
        return
    if content["seq_len"] != len(row.input_ids):
        faults.add(f"{where}: seq_len is {content['seq_len']}, and there are {len(row.input_ids)} ids")
    if content["packed_loss_mask"] != packed_mask(row.prompt_tokens, row.output_tokens):
        faults.add(f"{where}: packed_loss_mask is {content['packed_loss_mask']!r}, which is another mask")
    yield row
