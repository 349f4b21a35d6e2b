"""What the screens of one run show at a time: one read of the ledger, kept until the next."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from eagletui.core.hints import for_run
from eagletui.ledger.reader import Attention
from eagletui.ledger.rows import EventRow, TickRow
from eagletui.ledger.snapshot import Snapshot
from eagletui.runs.folder import RunFolder

EVENTS_KEPT = 500


@dataclass(frozen=True, slots=True)
class RunView:
    """One read."""

    folder: RunFolder
    snapshot: Snapshot
    attention: tuple[Attention, ...]
    """What needs a person, worst first."""
    events: tuple[EventRow, ...]
    """The newest, oldest first."""
    ticks: tuple[TickRow, ...]
    """The last minutes, oldest first."""
    free_bytes: int | None
    """Free space on the disk below the features; None when the disk does not tell."""
    network_disk: str | None
    """The network file system the ledger lies on; None on a local disk."""
    last_words: str
    """The error that a dead engine wrote into its log file; '' while it lives or when it was killed."""
    read_at: float
    """When the ledger was last looked at; it had not changed since the snapshot."""

    @property
    def restart_command(self) -> str:
        """What starts the workers of this run from a shell."""
        return f"eagletui run {self.folder.argument} --detach"

    @property
    def extract_command(self) -> str:
        """What computes the features that are missing, from a shell."""
        return f"eagletui extract {self.folder.argument} --model PATH"

    def looked_at(self, now: float) -> "RunView":
        """The same figures, known to be current."""
        return replace(self, read_at=now)


def own_events(events: Iterable[EventRow], argument: str) -> tuple[EventRow, ...]:
    """Name the run in the commands of events."""
    return tuple(replace(event, message=for_run(event.message, argument)) for event in events)


def own_attention(items: Iterable[Attention], argument: str) -> tuple[Attention, ...]:
    """Name the run in the commands of what needs a person."""
    return tuple(
        replace(item, text=for_run(item.text, argument), action=for_run(item.action, argument)) for item in items
    )


def own_snapshot(snapshot: Snapshot, argument: str) -> Snapshot:
    """Name the run in what there is to do about its pause."""
    run = snapshot.run
    if run.pause_detail is None:
        return snapshot
    return replace(snapshot, run=replace(run, pause_detail=for_run(run.pause_detail, argument)))
