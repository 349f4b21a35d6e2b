"""`eagletui merge`: runs that were bought apart become one."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from eagletui.cli.output import counted, print_json, print_pairs, say, short_path
from eagletui.cli.rebuild import rebuild_object
from eagletui.cli.steps import steps
from eagletui.config.sections import RUN_NAME
from eagletui.core.errors import InputError
from eagletui.core.money import format_usd, pico_to_usd_string
from eagletui.core.text import clean_line
from eagletui.runs.find import find

if TYPE_CHECKING:
    from eagletui.merge import Merged

INCOMPLETE = 1


def merge(
    runs: Annotated[list[str], typer.Argument(help="Names, folders or ledgers of two or more runs.", metavar="RUN...")],
    out: Annotated[str, typer.Option("--out", help="Name of the new run.", metavar="NAME")],
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Join runs into one new run with all their samples, evidence, verdicts, features and money.

    The parts of `run --part` keep the order of the whole. The runs stay as they are, and are not gone on with while
    the new one is there. Refused: runs that share a sample, a prompt or a generation, that were made with another
    tokenizer, format or sampling, that are at work, or that have requests whose cost is not known yet. At the end the
    ids are rebuilt, so that labels and findings are those of the whole; this costs nothing.
    """
    from eagletui.merge import merge_runs
    from eagletui.rebuild.job import rebuild_run

    if not RUN_NAME.fullmatch(out):
        raise InputError(f"--out: found {clean_line(out, 60)}, expected letters, digits, dots, dashes, underscores.")
    made = merge_runs([find(run) for run in runs], out)
    say(f"Joined {', '.join(made.parts)} in {short_path(made.folder.path)}; now the labels of the whole.")
    with steps("rebuilding", made.samples) as progress:
        rebuilt = rebuild_run(made.folder, step=progress)
    if json_:
        print_json(merged_object(made) | {"rebuild": rebuild_object(rebuilt)})
    else:
        _print(made)
        changed = f"{rebuilt.ids_changed:,} have other ids, {rebuilt.labels_changed:,} another label"
        say(f"Of {counted(rebuilt.samples, 'answer')}, {changed}.")
    for trouble in rebuilt.troubles:
        say(f"not rebuilt: {clean_line(trouble.sample_key, 80)}: {trouble.why}")
    return INCOMPLETE if rebuilt.troubles else 0


def merged_object(made: "Merged") -> dict[str, Any]:
    """Return a merge as JSON values."""
    return {
        "run": made.folder.name,
        "parts": list(made.parts),
        "missing_parts": list(made.missing_parts),
        "samples": made.samples,
        "attempts": made.attempts,
        "shards": made.shards,
        "spend_usd": {
            "settled": pico_to_usd_string(made.settled_pico),
            "unattributed": pico_to_usd_string(made.unattributed_pico),
            "stop_at": pico_to_usd_string(made.stop_at_pico),
            "cap": pico_to_usd_string(made.cap_pico),
        },
    }


def _print(made: "Merged") -> None:
    pairs = [
        ("run", f"{made.folder.name}, of {', '.join(made.parts)}"),
        ("samples", f"{made.samples:,}, with {counted(made.attempts, 'request')}"),
        ("shards", f"{made.shards:,}"),
        (
            "dollars",
            f"{format_usd(made.settled_pico, 6)} settled, {format_usd(made.unattributed_pico, 6)} unattributed; "
            f"stop-at {format_usd(made.stop_at_pico)}, cap {format_usd(made.cap_pico)}",
        ),
    ]
    if made.missing_parts:
        pairs.append(("missing", f"part {', '.join(made.missing_parts)}: merge it with this run when it is there"))
    print_pairs(pairs)
