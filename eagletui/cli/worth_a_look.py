"""The samples of a run that a person should look at, and why: what `eagletui inspect RUN` lists."""

from typing import Final

from eagletui.cli.output import counted, print_json, print_table
from eagletui.core.text import clean_line
from eagletui.ledger.filters import FAILED, SampleFilter
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.rows import SampleRow
from eagletui.runs.folder import RunFolder

MOST: Final = 50
"""Of each kind; the samples screen lists them all."""
WHY_CHARACTERS: Final = 72

KINDS: Final = (
    SampleFilter(states=FAILED),
    SampleFilter(evidence=("conflict",)),
    SampleFilter(preset="drifting"),
    SampleFilter(preset="mismatched"),
)


def print_worth_a_look(folder: RunFolder, reader: LedgerReader, *, json_: bool) -> int:
    """List the samples, oldest first."""
    found = {row.id: row for kind in KINDS for row in reader.page(kind, None, MOST)}
    rows = [found[number] for number in sorted(found)]
    if json_:
        print_json(
            {
                "run": folder.name,
                "samples": [
                    {
                        "id": row.sample_key,
                        "state": row.state,
                        "evidence": row.evidence,
                        "usability": row.usability,
                        "drift": row.drift_tokens,
                        "spans": row.spans,
                        "why": why(row),
                    }
                    for row in rows
                ],
            }
        )
        return 0
    if not rows:
        print(f"Nothing failed, drifts or differs. All samples: eagletui attach {folder.argument}")
        return 0
    print_table(
        ("sample", "state", "evidence", "usability", "why"),
        [
            (row.sample_key, row.state, row.evidence or "-", row.usability or "-", clean_line(why(row), WHY_CHARACTERS))
            for row in rows
        ],
    )
    first = clean_line(rows[0].sample_key)
    print(f"\n{counted(len(rows), 'sample')}. One in full: eagletui inspect {folder.argument} {first}")
    if any(len(reader.page(kind, None, MOST + 1)) > MOST for kind in KINDS):
        print(f"There are more: eagletui attach {folder.argument}, then 2 and f")
    return 0


def why(row: SampleRow) -> str:
    """Say in one phrase what there is to see."""
    if row.state in FAILED:
        return f"{row.failure_kind or 'no answer'}: {row.failure_detail or '-'}"
    said = []
    if row.drift_tokens:
        said.append(f"{row.drift_tokens:+,} tokens billed against counted")
    if row.spans:
        said.append(f"re-encoding its text gives other ids in {counted(row.spans, 'place')}")
    return "; ".join(said) or "the bill and the count of its tokens differ"
