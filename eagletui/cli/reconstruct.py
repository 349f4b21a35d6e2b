"""`eagletui reconstruct`: exact ids from recorded API replies."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from eagletui.cli.output import counted, print_json, print_pairs, say
from eagletui.cli.steps import steps
from eagletui.core.errors import InputError
from eagletui.core.text import clean_line


def reconstruct(
    source: Annotated[Path, typer.Argument(help="Recorded replies, one JSON object a line.", metavar="IN.jsonl")],
    out: Annotated[Path, typer.Argument(help="Where the rebuilt lines go.", metavar="OUT.jsonl")],
    fmt: Annotated[str, typer.Option("--format", help="Output format of the model, or a .toml file.", metavar="F")],
    tokenizer: Annotated[
        Path | None,
        typer.Option("--tokenizer", help="Tokenizer folder; without it only texts are rebuilt.", metavar="DIR"),
    ] = None,
    profile: Annotated[
        str, typer.Option("--profile", help="What the server strips: SERVER or SERVER@VERSION.", metavar="P")
    ] = "auto",
    json_: Annotated[bool, typer.Option("--json", help="Print the summary as one JSON object.")] = False,
) -> int:
    """Rebuild the ids a model generated from what an API returned, with the evidence for each answer.

    A line is {"id", "request"?, "response"} with a whole API body, or {"id", "request"?, "events": [...]} with the
    decoded objects of a stream. Nothing is written when a line cannot be read.
    """
    from eagletui.recorded.lines import write_lines
    from eagletui.recorded.reconstruct import prepare, reconstruct_file
    from eagletui.recorded.replies import read_recorded
    from eagletui.tokens.formats import load_format
    from eagletui.tokens.load import load_tokenizer

    output_format = load_format(fmt)
    if not out.parent.is_dir():
        raise InputError(f"{out}: found no folder {out.parent}, expected one to write into")
    loaded = load_tokenizer(tokenizer) if tokenizer is not None else None
    for note in loaded.notes if loaded else ():
        say(f"note: {note}")
    records = read_recorded(source, loaded)
    job = prepare(records, loaded, output_format, profile)
    for note in job.notes:
        say(f"note: {note}")
    for endpoint, choice in job.profiles.items():
        say(f"note: {clean_line(endpoint) or 'profile'}: {choice.reason}")
    with steps("rebuilding", len(records)) as progress:
        outcome = reconstruct_file(records, job, progress)
    write_lines(out, outcome.lines)
    if json_:
        print_json(outcome.summary)
    else:
        _print(outcome.summary, out)
    return 0


def _print(summary: Mapping[str, Any], out: Path) -> None:
    by_evidence = ", ".join(f"{kind} {number:,}" for kind, number in summary["by_evidence"].items())
    rows = [
        ("samples", f"{summary['samples']:,}"),
        ("evidence", by_evidence),
        ("usability", ", ".join(f"{kind} {number:,}" for kind, number in summary["by_usability"].items())),
        ("profile", ", ".join(sorted(set(summary["profiles"].values())))),
        ("other ids", counted(summary["resegmented"], "sample")),
        ("drift", f"{summary['drift_total']:+,} tokens"),
    ]
    for endpoint, offset in summary["offsets"].items():
        rows.append(("offset", f"{clean_line(endpoint) or 'the server'}: {offset['offset']:+d}, {offset['cause']}"))
    if summary["exact"] or summary["mismatched"]:
        rows.append(("against truth", f"{summary['exact']:,} exact, {summary['mismatched']:,} not"))
        shares = summary["exact_by_evidence"]
        rows.append(("exact of each", ", ".join(f"{k} {n} of {summary['by_evidence'][k]}" for k, n in shares.items())))
    rows.append(("written", str(out)))
    print_pairs(rows)
    print_findings(summary["findings"])


def print_findings(findings: Sequence[Mapping[str, Any]]) -> None:
    """Print findings for people: the sentence, an example, what to do."""
    for finding in findings:
        print(f"\nfinding: {clean_line(finding['sentence'])}")
        print(
            f"  {finding['affected']:,} of {finding['examined']:,}, for example {clean_line(finding['example'] or '-')}"
        )
        print(f"  {clean_line(finding['action'])}")
    if not findings:
        print("\nno findings")
