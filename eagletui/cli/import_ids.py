"""`eagletui import`: answers whose ids a local server recorded."""

from pathlib import Path
from typing import Annotated

import typer

from eagletui.cli.output import counted, print_json, say
from eagletui.ledger.locks import RoleLock
from eagletui.runs.find import find
from eagletui.runs.merged import refuse_merged


def import_(
    run: Annotated[str, typer.Argument(help="Name, folder or ledger of a run.", metavar="RUN")],
    ids: Annotated[Path, typer.Argument(help="JSON lines with id and output_ids.", metavar="IDS.jsonl")],
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Take answers into a run whose exact ids your own server recorded: evidence `served`, no money.

    One object a line: {"id", "output_ids", "finish_reason"?, "prompt_ids"?, "dataset"?} and, unless the id is that of a
    sample that waits in the run, the conversation ("prompt", "messages" or "conversations", and "tools"). Every line is
    checked before the first is taken; samples that have an answer already keep it. No engine may be at work.
    """
    from eagletui.config.run_config import load_config
    from eagletui.import_ids import import_file
    from eagletui.ledger.writer import LedgerWriter
    from eagletui.run_ids import RunIds
    from eagletui.tokens.formats import load_format
    from eagletui.tokens.load import load_tokenizer

    folder = find(run)
    refuse_merged(folder)
    config = load_config(folder.config_path)
    run_ids = RunIds(config, load_tokenizer(folder.tokenizer_dir), load_format(config.model.format))
    with RoleLock(folder.path, "engine"), LedgerWriter(folder.ledger_path) as writer:
        made = import_file(ids.expanduser(), writer, run_ids)
    if json_:
        print_json({"run": folder.name, "imported": made.imported, "new": made.new, "known": made.known})
        return 0
    had = f"; {counted(made.known, 'sample')} had an answer already" if made.known else ""
    say(f"Imported {counted(made.imported, 'answer')} into {folder.name}, {made.new:,} of them new samples{had}.")
    return 0
