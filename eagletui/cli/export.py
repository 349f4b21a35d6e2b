"""`eagletui export`: write training data of a run."""

from pathlib import Path
from typing import Annotated

import typer

from eagletui.cli.output import bytes_text, print_json, print_pairs
from eagletui.core.errors import InputError
from eagletui.core.text import clean_line
from eagletui.export.jsonl import Exported, census_object, export_jsonl
from eagletui.export.rows import ALSO_POSSIBLE
from eagletui.runs import find

WRITTEN = ("jsonl",)


def export(
    run: Annotated[str, typer.Argument(help="A run's name, folder or ledger.", metavar="RUN")],
    to: Annotated[str, typer.Option("--to", help="Form of the data: jsonl.", metavar="FORM")],
    out: Annotated[Path, typer.Option("--out", help="Folder for the files.", metavar="DIR")],
    include: Annotated[
        list[str] | None,
        typer.Option(
            "--include",
            metavar="USABILITY",
            help=f"Also these samples, beside usable and resegmented ones: {', '.join(ALSO_POSSIBLE)}.",
        ),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Write training data: exact ids, their loss mask, and the evidence for them.

    The files appear whole or not at all. SpecForge (online) and speculators (prepare-data) read the JSONL as it is.
    """
    if to not in WRITTEN:
        raise InputError(
            f"--to: found {clean_line(to, 40)}, expected {', '.join(WRITTEN)}. SpecForge (online) and speculators "
            "(prepare-data) read the JSONL without tokenizing again."
        )
    wrong = [name for name in include or () if name not in ALSO_POSSIBLE]
    if wrong:
        raise InputError(f"--include: found {clean_line(wrong[0], 40)}, expected {', '.join(ALSO_POSSIBLE)}.")
    folder = find(run)
    exported = export_jsonl(folder, out, also=tuple(dict.fromkeys(include or ())))
    if json_:
        print_json(
            {
                "run": folder.name,
                "to": to,
                "file": str(exported.file),
                "manifest": str(exported.manifest),
                "bytes": exported.bytes,
                "sha256": exported.sha256,
                **census_object(exported.census),
            }
        )
    else:
        print_pairs(_pairs(exported))
    return 0


def _pairs(exported: Exported) -> list[tuple[str, str]]:
    census = exported.census
    left_out = ", ".join(f"{samples:,} {reason.replace('_', ' ')}" for reason, samples in census.left_out.items())
    return [
        ("samples", f"{census.samples:,}, {census.tokens:,} tokens, {census.sampled_tokens:,} of them sampled"),
        ("evidence", ", ".join(f"{samples:,} {name}" for name, samples in census.evidence.most_common())),
        ("left out", left_out or "nothing"),
        ("file", f"{exported.file} ({bytes_text(exported.bytes)})"),
        ("manifest", str(exported.manifest)),
    ]
