"""Record in a run's ledger what a check of its features found."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from eagletui.core.features import FAULTY_FEATURES
from eagletui.ledger.writer import LedgerWriter
from eagletui.ledger.writer_extract import ExtractorWriter


def record_verification(
    path: Path,
    shards: Sequence[str],
    failed: str,
    samples: int,
    *,
    to_look_at: Sequence[str] = (),
    clock: Callable[[], float] = time.time,
) -> None:
    """Mark the shards that were read, and open or close the finding. May be done beside working workers.

    Args:
        path: the ledger file.
        shards: paths of those that were looked at. A live run may have sealed more since, and a trainer may have
            acknowledged others, which are deleted.
        failed: which checks did not hold, as one sentence; '' where all did.
        samples: how many were read.
        to_look_at: names of the checks that only ask for a look.
        clock: Unix seconds.

    Raises:
        LedgerError: the ledger cannot be written.
    """
    with ExtractorWriter(path, clock) as writer_of_shards:
        writer_of_shards.mark_verified(shards, is_good=not failed)
    with LedgerWriter(path, clock) as writer, writer.transaction():
        if not failed:
            writer.close_finding(FAULTY_FEATURES)
            holds = (
                f"nothing is wrong, but {' and '.join(to_look_at)} should be looked at"
                if to_look_at
                else "every check holds"
            )
            writer.event("info", "extractor", "verified", f"Features of {samples:,} samples verified: {holds}.")
            return
        writer.finding(
            FAULTY_FEATURES,
            f"Features do not hold what they should: {failed}",
            affected=samples,
            examined=samples,
            action=f"Do not train on them; eagletui verify {path.parent} --model PATH names each fault.",
        )
        writer.event("error", "extractor", "verify_failed", f"Features failed their check: {failed}")
