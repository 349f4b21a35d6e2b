"""What the ledger says about the samples of an exported set now."""

from array import array
from pathlib import Path
from typing import NamedTuple

from eagletui.export.gathered import ids_digest
from eagletui.export.rows import ALSO_POSSIBLE, Census, training_rows
from eagletui.ledger.reader import LedgerReader
from eagletui.runs.folder import RunFolder


class LedgerSample(NamedTuple):
    """One sample that could be exported now."""

    ids_digest: str
    evidence: str
    usability: str


def find_ledger(folder: Path, stated: str | None, run: str) -> Path | None:
    """Return the ledger that an export came from; None where it is not there any more.

    Args:
        folder: the exported folder. Where it lies in its run, as it does without --out, the two may have been moved.
        stated: where the ledger was; None: the manifest does not say.
        run: the run's name then.

    Raises:
        LedgerError: it is there and cannot be read.
    """
    folder = folder.absolute()
    if stated is not None and Path(stated).is_file():
        with LedgerReader(Path(stated)) as reader:
            if reader.run().name == run:
                return Path(stated)
    inside = RunFolder(folder.parent.parent)
    return inside.ledger_path if folder.parent == inside.exports_dir and inside.ledger_path.is_file() else None


def ledger_samples(ledger: Path) -> dict[str, LedgerSample]:
    """Read each sample of a run with ids."""
    with LedgerReader(ledger) as reader, reader.moment():
        return {
            row.id: LedgerSample(ids_digest(array("i", row.input_ids)), row.evidence, row.usability)
            for row in training_rows(reader, Census(), ALSO_POSSIBLE)
        }
