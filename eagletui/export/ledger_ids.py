"""What the ledger says about the ids of an exported set now."""

from array import array
from pathlib import Path

from eagletui.export.gathered import ids_digest
from eagletui.export.rows import ALSO_POSSIBLE, Census, training_rows
from eagletui.ledger.reader import LedgerReader


def ledger_digests(path: Path, run: str) -> dict[str, str] | None:
    """Map each sample of a run with ids to their digest; None where the ledger is not there any more.

    Args:
        path: where the ledger was when the set was exported.
        run: the run's name then.
    """
    if not path.is_file():
        return None
    with LedgerReader(path) as reader, reader.moment():
        if reader.run().name != run:
            return None
        rows = training_rows(reader, Census(), ALSO_POSSIBLE)
        return {row.id: ids_digest(array("i", row.input_ids)) for row in rows}
