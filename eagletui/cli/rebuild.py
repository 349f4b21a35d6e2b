"""`eagletui rebuild`: a run's ids again from its stored replies, for $0."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eagletui.cli.output import counted, print_json, print_pairs, print_table, say
from eagletui.cli.reconstruct import print_findings
from eagletui.cli.steps import steps
from eagletui.core.fidelity import EVIDENCE, USABILITY
from eagletui.core.text import clean_line
from eagletui.ledger.reader import LedgerReader
from eagletui.runs.find import find

if TYPE_CHECKING:
    from eagletui.rebuild.report import Rebuild

INCOMPLETE = 1
SHOWN = 10
"""Shards and samples that get a line each."""
NAMED = 4
"""Samples with other ids that are named as examples."""


def rebuild(
    run: Annotated[str, typer.Argument(help="A run's name, folder or ledger.", metavar="RUN")],
    fmt: Annotated[
        str | None, typer.Option("--format", help="Output format from now on, or a .toml file.", metavar="F")
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option("--profile", help="What the server strips: SERVER, SERVER@VERSION or auto.", metavar="P"),
    ] = None,
    drop_inferred: Annotated[
        bool,
        typer.Option("--drop-inferred", help="Take back what arbitrate decided; else it stays while the text does."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what would change and write nothing.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Rebuild every id of a run from the replies it has kept. Nothing is asked of the provider, so it costs nothing.

    A format or a profile given here stays the run's. The run's engine must not be running, unless with --dry-run.
    Ends with exit code 1 when a reply could not be rebuilt; its sample stays as it was.
    """
    from eagletui.rebuild.job import rebuild_run

    folder = find(run)
    with LedgerReader(folder.ledger_path) as reader:
        answered = reader.snapshot().answered
    with steps("rebuilding", answered) as progress:
        made = rebuild_run(
            folder, output_format=fmt, profile=profile, dry_run=dry_run, keep_inferred=not drop_inferred, step=progress
        )
    if json_:
        print_json(rebuild_object(made))
    else:
        _print(made)
    for trouble in made.troubles[:SHOWN]:
        say(f"not rebuilt: {clean_line(trouble.sample_key, 80)}: {trouble.why}")
    return INCOMPLETE if made.troubles else 0


def rebuild_object(made: "Rebuild") -> dict[str, Any]:
    """Return a rebuild as JSON values."""
    from eagletui.core.json_objects import finding_object

    return {
        "run": made.run,
        "dry_run": made.dry_run,
        "format": made.format,
        "profiles": {
            endpoint: {"profile": choice.profile.name, "reason": choice.reason}
            for endpoint, choice in made.profiles.items()
        },
        "samples": made.samples,
        "changed_ids": made.ids_changed,
        "changed_examples": list(made.examples),
        "changed_labels": made.labels_changed,
        "not_rebuilt": [{"id": trouble.sample_key, "reason": trouble.why} for trouble in made.troubles],
        "evidence": {
            "before": _in_order(made.figures(made.evidence, 0), EVIDENCE),
            "after": _in_order(made.figures(made.evidence, 1), EVIDENCE),
            "moved": [
                {"from": old, "to": new, "samples": samples}
                for (old, new), samples in sorted(made.evidence.items())
                if old != new
            ],
        },
        "usability": {
            "before": _in_order(made.figures(made.usability, 0), USABILITY),
            "after": _in_order(made.figures(made.usability, 1), USABILITY),
        },
        "offsets": {endpoint: {"offset": cause.offset, "cause": cause.name} for endpoint, cause in made.causes.items()},
        "stale_shards": [{"path": share.path, "samples": share.samples, "of": share.of} for share in made.stale],
        "findings": [finding_object(finding) for finding in made.findings],
        "processes": made.processes,
        "seconds": round(made.seconds, 2),
    }


def _in_order(figures: Mapping[str, int], order: tuple[str, ...]) -> dict[str, int]:
    named = {kind: figures[kind] for kind in order if figures.get(kind)}
    return named | {"none": figures["-"]} if figures.get("-") else named


def _print(made: "Rebuild") -> None:
    from eagletui.core.json_objects import finding_object

    before, after = made.figures(made.evidence, 0), made.figures(made.evidence, 1)
    kinds = [kind for kind in (*EVIDENCE, "-") if before[kind] or after[kind]]
    rows = [(kind if kind != "-" else "none yet", f"{before[kind]:,}", f"{after[kind]:,}") for kind in kinds]
    print_table(("evidence", "before", "now" if not made.dry_run else "would be"), rows, right=(1, 2))
    print()
    pairs = [
        ("samples", f"{made.samples:,} rebuilt in {made.seconds:.1f} s, {_rate(made)} a second"),
        ("other ids", counted(made.ids_changed, "sample") + _named(made.examples)),
        ("other label or text", counted(made.labels_changed, "sample")),
        ("stale shards", _stale(made)),
        ("format", clean_line(made.format)),
    ]
    for endpoint, choice in made.profiles.items():
        pairs.append((f"profile of {clean_line(endpoint)}", f"{choice.profile.name}: {choice.reason}"))
    for endpoint, cause in made.causes.items():
        pairs.append((f"offset of {clean_line(endpoint)}", f"{cause.offset:+d}, {cause.name}"))
    print_pairs(pairs)
    for share in made.stale[:SHOWN]:
        print(f"stale: {clean_line(share.path)}: {share.samples:,} of its {counted(share.of, 'sample')}")
    print_findings([finding_object(finding) for finding in made.findings])
    if made.dry_run:
        print("\nNothing was written.")


def _named(examples: Sequence[str]) -> str:
    if not examples:
        return ""
    more = ", ..." if len(examples) > NAMED else ""
    return f": {', '.join(clean_line(key, 40) for key in examples[:NAMED])}{more}"


def _rate(made: "Rebuild") -> str:
    return f"{made.samples / made.seconds:,.0f}" if made.seconds else "-"


def _stale(made: "Rebuild") -> str:
    if not made.stale:
        return "none"
    features = sum(share.samples for share in made.stale)
    return f"{len(made.stale):,}, with features of {counted(features, 'sample')} over other ids"
