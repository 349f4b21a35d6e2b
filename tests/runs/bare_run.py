"""A run with an empty ledger."""

from eagletui.ledger.create import create_ledger
from eagletui.runs.folder import RunFolder, create_folder


def bare_run(name: str) -> RunFolder:
    """Make a run that holds nothing."""
    folder = create_folder(name)
    create_ledger(
        folder.ledger_path,
        name=name,
        config_json="{}",
        model_id="m",
        format="smollm2",
        stop_at_pico=1,
        cap_pico=1,
        max_in_flight=1,
    )
    return folder
