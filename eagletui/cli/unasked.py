"""A run that never asked anything may be made anew: its config was wrong, and its name is not used up by that."""

from eagletui.config import RunConfig, load_config
from eagletui.config_changes import changed_fields, may_change
from eagletui.core.money import usd_to_pico
from eagletui.ledger.reader import LedgerReader
from eagletui.runs import RunFolder, is_alive, runs_root


def to_make_anew(folder: RunFolder, config: RunConfig) -> list[str]:
    """Name the frozen fields that differ where the run can be made anew for them; none where it goes on or is refused.

    Nothing may be lost by it: no request and no imported answer, no prompts beside the config's, no limit set since.
    """
    old = load_config(folder.config_path)
    frozen = [field for field in changed_fields(old, config) if not may_change(field)]
    in_place = folder.path.resolve() == (runs_root() / config.run.name).resolve()
    if not frozen or not in_place or old.run.part is not None or is_alive(folder, "engine") is not None:
        return []
    with LedgerReader(folder.ledger_path) as reader:
        snapshot, added = reader.snapshot(), {source.path for source in reader.sources()}
    limits = (snapshot.run.stop_at_pico, snapshot.run.cap_pico)
    is_untouched = (
        snapshot.run.state == "new"
        and not any(snapshot.attempts.values())
        and snapshot.states["queued"] == snapshot.samples
        and added <= {str(path) for path in old.prompts.path}
        and limits == (usd_to_pico(old.spend.stop_at_usd), usd_to_pico(old.spend.cap_usd))
    )
    return frozen if is_untouched else []
