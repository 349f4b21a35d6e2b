"""What the ledger says about the samples of an exported set now."""

from array import array
from pathlib import Path
from typing import NamedTuple

from eagletui.export.gathered import ids_digest
from eagletui.export.rows import ALSO_POSSIBLE, Census, training_rows
from eagletui.ledger.reader import LedgerReader


class LedgerSample(NamedTuple):
    """One sample that could be exported now."""

    ids_digest: str
    evidence: str
    usability: str


def ledger_samples(path: Path, run: str) -> dict[str, LedgerSample] | None:
    """Read each sample of a run with ids; None where the ledger is not there any more.

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
        return {
            row.id: LedgerSample(ids_digest(array("i", row.input_ids)), row.evidence, row.usability) for row in rows
        }
