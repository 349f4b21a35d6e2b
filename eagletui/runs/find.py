"""Find runs by name, folder or ledger."""

import difflib
import os
from pathlib import Path

from eagletui.core.errors import RunError
from eagletui.runs.folder import ROOT_VARIABLE, RunFolder, runs_root
from eagletui.runs.setting_aside import restore


def list_runs() -> list[RunFolder]:
    """List the runs that have a ledger, by name; one that is being made has a name with a leading dot."""
    root = runs_root()
    if not root.is_dir():
        return []
    paths = sorted(path for path in root.iterdir() if not path.name.startswith("."))
    return [RunFolder(path) for path in paths if RunFolder(path).ledger_path.is_file()]


def find(run: str) -> RunFolder:
    """Find a run by its name, its folder or its ledger file; what has a slash in it is a folder first.

    Raises:
        RunError: there is none; the message names runs of similar names.
    """
    if run and run == Path(run).name:
        restore(RunFolder(runs_root() / run))
    given = Path(run).expanduser().resolve()
    if given.name == RunFolder(given.parent).ledger_path.name and given.is_file():
        return RunFolder(given.parent)
    here, there = RunFolder(runs_root() / run), RunFolder(given)
    for folder in (there, here) if os.sep in run else (here, there):
        if run and folder.ledger_path.is_file():
            return folder
    names = [folder.name for folder in list_runs()]
    near = difflib.get_close_matches(run, names, n=3, cutoff=0.5)
    if near:
        advice = f"Did you mean {' or '.join(near)}?"
    elif names:
        advice = f"There are: {', '.join(names[:10])}{', ...' if len(names) > 10 else ''}."
    else:
        advice = f"There are no runs in {runs_root()} (set {ROOT_VARIABLE} to look elsewhere)."
    raise RunError(f"No run named {run!r}. {advice}")
