"""What a run's ledger says now about the rows of a file of ids."""

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec

from eagletui.export.rows import ALSO_POSSIBLE, DEFAULT_SET, Census, TrainingRow, training_rows
from eagletui.ledger.reader import LedgerReader


class _Digests(NamedTuple):
    number: int
    """Place in the order of an export."""
    ids: bytes
    rest: bytes
    usability: str


class LedgerRows:
    """The training set of a run, as digests by sample."""

    def __init__(self, ledger: Path, also: Sequence[str]) -> None:
        """Read the ledger.

        Args:
            ledger: of the run.
            also: usabilities that the export includes beyond the default set.

        Raises:
            LedgerError: it cannot be read.
        """
        wanted = (*also, *(usability for usability in ALSO_POSSIBLE if usability not in also))
        self._included = (*DEFAULT_SET, *also)
        self._rows: dict[str, _Digests] = {}
        self._last = {False: -1, True: -1}
        self._found = 0
        with LedgerReader(ledger) as reader, reader.moment():
            self.tokenizer_hash = reader.run().tokenizer_hash
            for number, row in enumerate(training_rows(reader, Census(), wanted)):
                self._rows[row.id] = _digests(number, row)
        self._in_set = sum(row.usability in self._included for row in self._rows.values())

    @property
    def more(self) -> int:
        """Samples of the set that no row was asked about."""
        return self._in_set - self._found

    def faults(self, row: TrainingRow, is_held_out: bool | None) -> Iterator[str]:
        """Yield what differs from the ledger; rows are given in the order of the file.

        Args:
            row: of the file.
            is_held_out: it is one to validate on; rows of either side follow the ledger's order. None: in a selection,
                which has its own.
        """
        known = self._rows.get(row.id)
        if known is None:
            yield f"{row.id} is no sample of this run's that can be exported now: export again"
            return
        self._found += known.usability in self._included
        here = _digests(known.number, row)
        if here.ids != known.ids:
            yield f"{row.id} has other ids than the ledger: export again"
        elif known.usability not in self._included:
            yield f"{row.id} is {known.usability} in the ledger now, and not to train on: export again"
        elif here.rest != known.rest:
            yield f"{row.id} has other evidence, usability or origin than the ledger: export again"
        if is_held_out is not None:
            if known.number < self._last[is_held_out]:
                yield f"{row.id} stands behind rows that come after it in the ledger"
            self._last[is_held_out] = max(self._last[is_held_out], known.number)


def _digests(number: int, row: TrainingRow) -> _Digests:
    ids = hashlib.blake2b(array("q", row.input_ids).tobytes(), digest_size=16).digest()
    rest = msgspec.json.encode(replace(row, input_ids=(), loss_mask=()))
    return _Digests(number, ids, hashlib.blake2b(rest, digest_size=16).digest(), row.usability)
