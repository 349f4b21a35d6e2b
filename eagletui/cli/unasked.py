"""A run that never asked anything may be made anew: its config was wrong, and its name is not used up by that."""

from typing import Final

from eagletui.config.changes import changed_fields, may_change
from eagletui.config.run_config import RunConfig, load_config
from eagletui.core.errors import LockedError, RunError
from eagletui.core.lifecycle import WorkerRole
from eagletui.core.money import usd_to_pico
from eagletui.files.locked import is_locked
from eagletui.ledger.reader import LedgerReader
from eagletui.runs.claims import unclaimed
from eagletui.runs.folder import RunFolder, runs_root
from eagletui.runs.making import BeingMadeError
from eagletui.runs.workers import is_alive

_HELPERS: Final[tuple[WorkerRole, ...]] = ("provider", "watcher", "extractor")
"""Who may live while there is no engine yet: another command is just starting the run."""


def to_make_anew(folder: RunFolder, config: RunConfig) -> list[str]:
    """Name the frozen fields that differ where the run can be made anew for them; none where it goes on or is refused.

    Nothing may be lost by it: no request and no imported answer, no prompts beside the config's, nothing ordered since.

    Raises:
        LockedError: it could be, but a worker other than the engine lives, or a command is just starting it.
    """
    frozen = _frozen_changes(folder, config)
    in_place = folder.path.resolve() == (runs_root() / config.run.name).resolve()
    if not frozen or not in_place or is_alive(folder, "engine") is not None or not _is_unused(folder):
        return []
    if (role := _living_helper(folder)) is not None:
        raise LockedError(
            f"Run {folder.name} was made with other {', '.join(frozen)}, and its {role} works: another command may "
            "just be starting it. Wait until it ends to make the run anew, or use --name for a new run."
        )
    with unclaimed(folder):
        return frozen


def made_at(folder: RunFolder) -> float:
    """Return when a run was made, in Unix seconds, by which it is told from another one in its place."""
    with LedgerReader(folder.ledger_path) as reader:
        return reader.run().created_at


def refuse_used(folder: RunFolder, config: RunConfig, expected_at: float) -> None:
    """Refuse to remove a run that was used, or made anew, while the one for its place was made.

    Args:
        folder: the old run; the caller holds its engine's role.
        config: of the new one.
        expected_at: when the run to be removed was made.

    Raises:
        BeingMadeError: another run is in its place, or it has that config already.
        RunError: it was used.
    """
    if made_at(folder) != expected_at or not _frozen_changes(folder, config):
        raise BeingMadeError(f"Run {folder.name} was made anew by another process.")
    if not _is_unused(folder) or _living_helper(folder) is not None:
        raise RunError(
            f"Run {folder.name} was started or changed while it was to be made anew, so it stays as it is. "
            "Use --name for a new run."
        )


def _living_helper(folder: RunFolder) -> WorkerRole | None:
    return next((role for role in _HELPERS if is_locked(folder.lock_path(role))), None)


def _frozen_changes(folder: RunFolder, config: RunConfig) -> list[str]:
    return [field for field in changed_fields(load_config(folder.config_path), config) if not may_change(field)]


def _is_unused(folder: RunFolder) -> bool:
    """Tell whether nobody has asked, added, imported or ordered anything."""
    old = load_config(folder.config_path)
    with LedgerReader(folder.ledger_path) as reader:
        snapshot, added = reader.snapshot(), {source.path for source in reader.sources()}
        is_waited_for = bool(reader.commands_pending())
    limits = (snapshot.run.stop_at_pico, snapshot.run.cap_pico, snapshot.run.max_in_flight)
    return (
        old.run.part is None
        and not is_waited_for
        and snapshot.run.state == "new"
        and not any(snapshot.attempts.values())
        and snapshot.states["queued"] == snapshot.samples
        and added <= {str(path) for path in old.prompts.path}
        and limits == (usd_to_pico(old.spend.stop_at_usd), usd_to_pico(old.spend.cap_usd), old.pace.max_in_flight)
    )
