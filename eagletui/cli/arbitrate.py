"""`eagletui arbitrate`: the target model decides between the ways to cut an answer into tokens."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from eagletui.cli.output import print_json, print_pairs, print_table, say
from eagletui.cli.steps import steps
from eagletui.core.errors import InputError
from eagletui.core.text import clean_line


def arbitrate(
    source: Annotated[Path, typer.Argument(help="Recorded replies, one JSON object a line.", metavar="IN.jsonl")],
    model: Annotated[
        Path, typer.Option("--model", help="Target model: a folder of safetensors or a .gguf file.", metavar="PATH")
    ],
    tokenizer: Annotated[Path, typer.Option("--tokenizer", help="Tokenizer folder.", metavar="DIR")],
    fmt: Annotated[str, typer.Option("--format", help="Output format of the model, or a .toml file.", metavar="F")],
    profile: Annotated[
        str, typer.Option("--profile", help="What the server strips: SERVER or SERVER@VERSION.", metavar="P")
    ] = "auto",
    out: Annotated[Path | None, typer.Option("--out", help="Where the lines go.", metavar="OUT.jsonl")] = None,
    ignore_count: Annotated[
        bool, typer.Option("--ignore-count", help="Do not use the billed count, to see what it is worth.")
    ] = False,
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, help="CPU threads; left out: half of the cores.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the summary as one JSON object.")] = False,
) -> int:
    """Ask the target model about answers whose ids are not proved. What it decides is labelled inferred, never more.

    An answer is relabelled from a posterior of 0.9 on, or 0.5 where its count disagrees with the bill, so that its ids
    are wrong as they are. Below that its ids and its label stay.
    """
    from eagletui.arbitrate_file import arbitrate_file
    from eagletui.arbitration import Arbitration, load_arbiter
    from eagletui.reconstruct import prepare, read_recorded, reconstruct_file, write_lines
    from eagletui.tokens.formats import load_format
    from eagletui.tokens.load import load_tokenizer

    if not source.is_file():
        raise InputError(f"{source}: found no file, expected recorded replies; runs are not asked about yet.")
    output_format = load_format(fmt)
    if out is not None and not out.parent.is_dir():
        raise InputError(f"{out}: found no folder {out.parent}, expected one to write into")
    loaded = load_tokenizer(tokenizer)
    records = read_recorded(source, loaded)
    job = prepare(records, loaded, output_format, profile)
    for note in (*loaded.notes, *job.notes):
        say(f"note: {note}")
    with steps("rebuilding", len(records)) as progress:
        outcome = reconstruct_file(records, job, progress)
    say("loading the target model")
    arbitration = Arbitration(load_arbiter(model, loaded.vocabulary, threads=threads), loaded.vocabulary)
    with steps("asking the target model", len(records)) as progress:
        done = arbitrate_file(records, outcome, job, arbitration, use_count=not ignore_count, progress=progress)
    if out is not None:
        write_lines(out, done.lines)
    if json_:
        print_json(done.summary)
    else:
        _print(done.summary)
    return 0


def _print(summary: Mapping[str, Any]) -> None:
    from eagletui.cli.reconstruct import print_findings

    rows = [
        ("samples", f"{summary['samples']:,}, {summary['asked']:,} asked about"),
        ("changed", f"{summary['changed']:,}"),
        ("inferred", f"{summary['inferred']:,}"),
        ("evidence", ", ".join(f"{kind} {number:,}" for kind, number in summary["by_evidence"].items())),
        ("billed count", "used" if summary["used_count"] else "ignored"),
        ("pace", f"{summary['seconds_per_sample']:.2f} s a sample, {summary['slowest_s']:.2f} s the slowest"),
    ]
    rows += [("skipped", f"{number:,}: {clean_line(reason)}") for reason, number in summary["skipped"].items()]
    if "exact" in summary:
        figures = f"{summary['exact_before']:,} exact before, {summary['exact']:,} now, {summary['broken']:,} broken"
        rows.append(("against truth", figures))
    print_pairs(rows)
    if summary.get("calibration"):
        print()
        table = [(f"{row['stated']:.3f}", f"{row['observed']:.3f}", f"{row['n']:,}") for row in summary["calibration"]]
        print_table(("stated", "observed", "answers"), table, right=(0, 1, 2))
    print_findings(summary["findings"])
