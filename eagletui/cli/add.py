"""`eagletui add`: more prompts for a run."""

from pathlib import Path
from typing import Annotated

import typer

from eagletui.cli.output import counted, print_json, say
from eagletui.core.errors import RunError
from eagletui.runs.find import find
from eagletui.runs.merged import refuse_merged
from eagletui.runs.workers import is_alive


def add(
    run: Annotated[str, typer.Argument(help="Name, folder or ledger of a run.", metavar="RUN")],
    prompts: Annotated[list[Path], typer.Argument(help="Prompt files, in any shape that [prompts] takes.")],
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Add prompts to a run, also while it works; it asks them with its own sampling, answers and turns.

    Every line is checked before the first is added. A prompt that the run has already, by its id or its content, stays
    as it is, so the same file can be added again after it has grown.
    """
    from eagletui.cli.unasked import made_at
    from eagletui.config.run_config import load_config
    from eagletui.ingest.adding import add_to
    from eagletui.ledger.writer_ingest import IngestWriter

    folder = find(run)
    refuse_merged(folder)
    config = load_config(folder.config_path)
    if config.run.part is not None:
        raise RunError(
            f"{folder.name} is part {config.run.part} of a run, whose prompts are numbered over all parts: "
            "merge the parts first, then add."
        )
    paths = [path.expanduser().resolve() for path in prompts]
    section = config.prompts.model_copy(update={"path": paths, "limit": None, "pick": "first"})
    expected_at = made_at(folder)
    with IngestWriter(folder.ledger_path) as writer:
        census, added = add_to(section, writer)
    if made_at(folder) != expected_at:
        raise RunError(f"Run {folder.name} was made anew while prompts were added, without them: add them again.")
    known = census.samples - added
    if json_:
        by_dataset = dict(census.by_dataset)
        print_json({"run": folder.name, "added": added, "known": known, "by_dataset": by_dataset})
        return 0
    for sentence in census.sentences():
        say(sentence)
    had = f"; {counted(known, 'sample')} it had already" if known else ""
    say(f"Added {counted(added, 'sample')} to {folder.name}{had}.")
    if added and is_alive(folder, "engine") is None:
        say(f"Ask them: eagletui run {folder.argument}")
    return 0
