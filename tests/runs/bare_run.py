"""A run with an empty ledger."""

from eagletui.runs.folder import RunFolder, create_folder
from tests.empty_ledger import empty_ledger


def bare_run(name: str) -> RunFolder:
    """Make a run that holds nothing."""
    folder = create_folder(name)
    empty_ledger(folder.ledger_path, name=name)
    return folder
