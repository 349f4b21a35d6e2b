"""The engine's side of the ledger: every write it makes, in one object."""

from eagletui.ledger.create import create_ledger
from eagletui.ledger.writer_bulk import BulkWriter
from eagletui.ledger.writer_control import ControlWriter
from eagletui.ledger.writer_engine import AttemptWriter
from eagletui.ledger.writer_import import ImportWriter
from eagletui.ledger.writer_ingest import IngestWriter
from eagletui.ledger.writer_settle import SettleWriter
from eagletui.ledger.writer_watch import WatchWriter

__all__ = ["LedgerWriter", "create_ledger"]


class LedgerWriter(IngestWriter, ImportWriter, AttemptWriter, SettleWriter, ControlWriter, BulkWriter, WatchWriter):
    """Ingestion, imports, attempts, settling, steering and watching over one connection; see `Writer` for threads.

    Hold the engine's `RoleLock` while using it: one engine per run.
    """
