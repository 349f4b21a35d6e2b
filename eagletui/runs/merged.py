"""The mark of a run whose samples belong to another one."""

import json
import time
from pathlib import Path

from eagletui.core.errors import RunError
from eagletui.files.replacement import replace_text
from eagletui.runs.folder import RunFolder


def mark_merged(folder: RunFolder, into: RunFolder) -> None:
    """Note in a run's folder that its samples belong to another run from now on."""
    content = json.dumps({"into": str(into.path.resolve()), "at": time.time()})
    replace_text(folder.merged_path, content + "\n")


def refuse_merged(folder: RunFolder) -> None:
    """Refuse to work on a run whose samples belong to another one: what it bought would be bought twice.

    Raises:
        RunError: names the other run; one that was never finished or is gone does not count.
    """
    try:
        into = RunFolder(Path(json.loads(folder.merged_path.read_text(encoding="utf-8"))["into"]))
    except FileNotFoundError:
        return
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{folder.merged_path} cannot be read; expected the run this one was merged into.") from error
    if into.ledger_path.is_file():
        raise RunError(
            f"Run {folder.name} was merged into {into.path}: go on there, so that nothing is bought or counted twice. "
            f"If that run is to be given up, remove it first."
        )
