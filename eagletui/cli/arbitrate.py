"""`eagletui arbitrate`: the target model decides between the ways to cut an answer into tokens."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from eagletui.cli.output import counted, print_json, print_pairs, print_table, say
from eagletui.cli.steps import steps
from eagletui.core.errors import InputError
from eagletui.core.text import clean_line
from eagletui.runs.find import find
from eagletui.runs.folder import RunFolder

REFUSED: Final = 1


def arbitrate(
    source: Annotated[
        str,
        typer.Argument(help="A run, or a file of recorded replies, one JSON object a line.", metavar="RUN|IN.jsonl"),
    ],
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            help="Target model: a folder of safetensors or a .gguf file; a run's config may name it.",
            metavar="PATH",
        ),
    ] = None,
    tokenizer: Annotated[
        Path | None, typer.Option("--tokenizer", help="Tokenizer folder, for a file; a run has its own.", metavar="DIR")
    ] = None,
    fmt: Annotated[
        str | None,
        typer.Option("--format", help="Output format of the model, or a .toml file; for a file.", metavar="F"),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile", help="What the server strips: SERVER or SERVER@VERSION; for a file. Else auto.", metavar="P"
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Where the lines of a file go.", metavar="OUT.jsonl")
    ] = None,
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
    are wrong as they are. Below that its ids and its label stay. In a run, the ledger keeps every opinion: a second
    call asks only what has none, and an endpoint whose answers are not the model's is not asked about (exit 1). The
    run's engine must not be running.
    """
    file = Path(source).expanduser()
    of_file = {"--tokenizer": tokenizer, "--format": fmt, "--profile": profile, "--out": out}
    if file.suffix == ".jsonl" or (file.is_file() and file.suffix not in (".sqlite", ".db")):
        if not file.is_file():
            raise InputError(f"{source}: no such file; expected recorded replies, or a run.")
        if model is None or tokenizer is None or fmt is None:
            given = {"--model": model, "--tokenizer": tokenizer, "--format": fmt}
            missing = " and ".join(name for name, value in given.items() if value is None)
            raise InputError(f"{missing}: found nothing, expected a value, because {source} is a file and no run.")
        return _of_file(_FileJob(file, model, tokenizer, fmt, profile or "auto", out, not ignore_count, threads), json_)
    folder = find(source)
    foreign = [name for name, value in of_file.items() if value is not None]
    if foreign:
        raise InputError(f"{foreign[0]} does not go with a run: it has its own, and what is decided goes into it.")
    return _of_run(folder, model, not ignore_count, threads, json_)


class _FileJob(NamedTuple):
    source: Path
    model: Path
    tokenizer: Path
    fmt: str
    profile: str
    out: Path | None
    use_count: bool
    threads: int | None


def _of_file(job: _FileJob, json_: bool) -> int:
    from eagletui.arbitration.asking import Arbitration, load_arbiter
    from eagletui.arbitration.of_file import arbitrate_file
    from eagletui.recorded.lines import write_lines
    from eagletui.recorded.reconstruct import prepare, reconstruct_file
    from eagletui.recorded.replies import read_recorded
    from eagletui.tokens.formats import load_format
    from eagletui.tokens.load import load_tokenizer

    output_format = load_format(job.fmt)
    if job.out is not None and not job.out.parent.is_dir():
        raise InputError(f"{job.out}: found no folder {job.out.parent}, expected one to write into")
    loaded = load_tokenizer(job.tokenizer)
    records = read_recorded(job.source, loaded)
    prepared = prepare(records, loaded, output_format, job.profile)
    for note in (*loaded.notes, *prepared.notes):
        say(f"note: {note}")
    with steps("rebuilding", len(records)) as progress:
        outcome = reconstruct_file(records, prepared, progress)
    say("loading the target model")
    session = Arbitration(load_arbiter(job.model, loaded.vocabulary, threads=job.threads), loaded.vocabulary)
    with steps("asking the target model", len(records)) as progress:
        done = arbitrate_file(records, outcome, prepared, session, use_count=job.use_count, progress=progress)
    if job.out is not None:
        write_lines(job.out, done.lines)
    if json_:
        print_json(done.summary)
    else:
        _print(done.summary)
    return 0


def _of_run(folder: RunFolder, model: Path | None, use_count: bool, threads: int | None, json_: bool) -> int:
    from eagletui.arbitration.of_run import arbitrate_run

    with steps("asking the target model", None) as progress:
        summary = arbitrate_run(folder, model, use_count=use_count, threads=threads, progress=progress, note=say)
    if json_:
        print_json(summary)
    else:
        _print(summary)
        if summary["changed"]:
            say(f"Look: eagletui inspect {folder.argument} {summary['changed_examples'][0]}")
    return REFUSED if any(finding["kind"] == "impostor" for finding in summary["findings"]) else 0


def _print(summary: Mapping[str, Any]) -> None:
    from eagletui.cli.reconstruct import print_findings

    before = f", {summary['asked_before']:,} before" if summary.get("asked_before") else ""
    rows = [
        ("samples", f"{summary['samples']:,}, {summary['asked']:,} asked about{before}"),
        ("changed", f"{summary['changed']:,}"),
        ("inferred", f"{summary['inferred']:,}"),
        ("evidence", ", ".join(f"{kind} {number:,}" for kind, number in summary["by_evidence"].items())),
        ("billed count", "used" if summary["used_count"] else "ignored"),
        (
            "pace",
            f"{summary['seconds_per_sample']:.2f} s a sample, {summary['slowest_s']:.2f} s the slowest; CPU "
            f"{summary['cpu_s_per_sample']:.2f} s, {summary['cpu_s_slowest']:.2f} s the slowest",
        ),
    ]
    rows += [("skipped", f"{number:,}: {clean_line(reason)}") for reason, number in summary["skipped"].items()]
    for share in summary.get("stale_shards", ()):
        rows.append(("stale", f"{clean_line(share['path'])}: {share['samples']:,} of {counted(share['of'], 'sample')}"))
    for endpoint, found in summary["likelihood"].items():
        rows.append((f"likelihood {'of ' + clean_line(endpoint, 40) if endpoint != '-' else ''}".strip(), _nats(found)))
    if "exact" in summary:
        figures = f"{summary['exact_before']:,} exact before, {summary['exact']:,} now, {summary['broken']:,} broken"
        rows.append(("against truth", figures))
    print_pairs(rows)
    if summary.get("calibration"):
        print()
        table = [(f"{row['stated']:.3f}", f"{row['observed']:.3f}", f"{row['n']:,}") for row in summary["calibration"]]
        print_table(("stated", "observed", "answers"), table, right=(0, 1, 2))
    print_findings(summary["findings"])


def _nats(found: Mapping[str, Any]) -> str:
    return (
        f"{found['nats_per_token']:.3f} nats a token over {found['tokens']:,}, expected {found['expected']:.3f} "
        f"({found['standard_errors']:+.1f} standard errors)"
    )
