"""`eagletui accept`: a person signs for a data set."""

import getpass
import json
from typing import Annotated, Any

import typer

from eagletui.cli.output import print_json, print_pairs
from eagletui.core.errors import InputError
from eagletui.core.text import clean_line
from eagletui.core.verdicts import WORDS, Basis
from eagletui.ledger.verdict_basis import read_basis
from eagletui.ledger.writer import LedgerWriter
from eagletui.runs.find import find


def accept(
    run: Annotated[str, typer.Argument(help="A run's name, folder or ledger.", metavar="RUN")],
    dataset: Annotated[str, typer.Option("--dataset", help="The data set.", metavar="D")],
    rule: Annotated[
        str, typer.Option("--rule", help="Why, in your words: kept as text, it picks no samples.", metavar="RULE")
    ],
    by: Annotated[str | None, typer.Option("--by", help="Who signs; left out: the user name.", metavar="NAME")] = None,
    refuse: Annotated[bool, typer.Option("--refuse", help="Sign that the data set is not accepted, and why.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Sign a verdict on a data set: all its mismatched samples are known, counted and accepted, or refused.

    The rule says why and is text alone: it picks none of them. The verdict is stored in the run and goes out with every
    export. It changes no sample.
    """
    folder = find(run)
    words, name = clean_line(rule.strip()), clean_line((by or getpass.getuser()).strip())
    if not words:
        raise InputError("--rule: found nothing, expected what is accepted, such as: same bytes, other cut.")
    found = read_basis(folder.ledger_path, dataset)
    detail = detail_of(found) | ({"refused": True} if refuse else {})
    with LedgerWriter(folder.ledger_path) as writer, writer.transaction(durable=True):
        number = writer.accept(
            dataset,
            words,
            name,
            mismatched=found.mismatched,
            samples=found.samples,
            detail_json=json.dumps(detail),
        )
        did = "refused" if refuse else "accepted"
        mismatched = f"all {found.mismatched:,} mismatched of {found.samples:,} samples"
        sentence = f"{mismatched} of {dataset} {did} by {name}: {words}"
        writer.event("info", "ctl", "accept", sentence)
    if json_:
        signed = {"run": folder.name, "verdict": number, "dataset": dataset, "rule": words, "accepted_by": name}
        print_json({**signed, "samples": found.samples, "mismatched": found.mismatched, **detail})
    else:
        print_pairs(_pairs(found))
        print(f"\nSigned: {clean_line(sentence)}")
    return 0


def detail_of(found: Basis) -> dict[str, Any]:
    """Return what a verdict rests on as JSON values."""
    return {
        "by_kind": found.by_kind,
        "proved": found.proved,
        "counted": found.counted,
        "cost": {
            "samples_percent": round(found.samples_percent, 4),
            "tokens": found.tokens_differ,
            "output_tokens": found.output_tokens,
            "tokens_percent": round(found.tokens_percent, 4),
            "is_lower_bound": found.is_lower_bound,
        },
    }


def _pairs(found: Basis) -> list[tuple[str, str]]:
    at_least = "at least " if found.is_lower_bound else ""
    return [
        ("samples", f"{found.samples:,}: {found.proved:,} with proved ids, {found.counted:,} whose count agrees"),
        ("mismatched", f"{found.mismatched:,} ({found.samples_percent:.2f} % of the samples)"),
        *((kind.replace("_", " "), f"{number:,}: {WORDS[kind]}") for kind, number in found.by_kind.items()),
        (
            "cost",
            f"{at_least}{found.tokens_differ:,} of {found.output_tokens:,} output tokens differ "
            f"({found.tokens_percent:.3f} %)",
        ),
    ]
