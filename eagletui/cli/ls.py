"""`eagletui ls`: the runs."""

from typing import Annotated, Any

import typer

from eagletui.cli.output import print_json, print_table
from eagletui.cli.standing import has_engine, standing
from eagletui.core.errors import LedgerError
from eagletui.core.money import format_usd, limit_text, pico_to_usd_string, usd_to_pico
from eagletui.ledger.reader import LedgerReader
from eagletui.runs.find import list_runs
from eagletui.runs.folder import RunFolder, runs_root


def ls(json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False) -> int:
    """List the runs, the youngest first."""
    found = sorted((_row(folder) for folder in list_runs()), key=lambda row: row["created_at"] or 0, reverse=True)
    if json_:
        print_json({"runs": found})
    elif not found:
        print(f"No runs in {runs_root()}. Start one: eagletui demo, or eagletui run CONFIG")
    else:
        print_table(
            ("run", "state", "samples", "answered", "settled", "stop-at", "engine"),
            [_cells(row) for row in found],
            right=(2, 3, 4, 5),
        )
    return 0


def _row(folder: RunFolder) -> dict[str, Any]:
    row: dict[str, Any] = {
        "run": folder.name,
        "path": str(folder.path),
        "state": None,
        "pause_reason": None,
        "created_at": None,
        "samples": None,
        "answered": None,
        "settled_usd": None,
        "stop_at_usd": None,
        "engine_alive": None,
        "error": None,
    }
    try:
        with LedgerReader(folder.ledger_path) as reader:
            snapshot = reader.snapshot()
    except LedgerError as error:
        return row | {"error": str(error)}
    books = snapshot.spend.books
    return row | {
        "state": snapshot.run.state,
        "pause_reason": snapshot.run.pause_reason,
        "created_at": snapshot.run.created_at,
        "samples": snapshot.samples,
        "answered": snapshot.answered,
        "settled_usd": pico_to_usd_string(books.settled_pico),
        "stop_at_usd": pico_to_usd_string(books.stop_at_pico),
        "engine_alive": has_engine(snapshot),
    }


def _cells(row: dict[str, Any]) -> list[str]:
    if row["error"] is not None:
        return [row["run"], f"unreadable: {row['error']}", "-", "-", "-", "-", "-"]
    return [
        row["run"],
        standing(row["state"], row["pause_reason"], has_engine=row["engine_alive"]),
        f"{row['samples']:,}",
        f"{row['answered']:,}",
        format_usd(usd_to_pico(row["settled_usd"])),
        limit_text(usd_to_pico(row["stop_at_usd"])),
        "alive" if row["engine_alive"] else "-",
    ]
