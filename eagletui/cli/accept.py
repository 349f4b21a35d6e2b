"""`eagletui accept`: a person signs for a data set."""

import difflib
import getpass
import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Annotated, Any

import typer

from eagletui.cli.output import print_json, print_pairs
from eagletui.core.errors import InputError
from eagletui.core.fidelity import PROVED
from eagletui.core.text import clean_line
from eagletui.core.verdicts import Basis, Difference, Doubtful, basis
from eagletui.ledger.filters import SampleFilter
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.reader_counts import CountsReader
from eagletui.ledger.reader_samples import page_end
from eagletui.ledger.writer import LedgerWriter
from eagletui.runs import RunFolder, find

PAGE = 500
NO_CLAIM = ("inferred", "canonical", "conflict")
"""Evidence that neither proves ids nor finds a count that agrees."""

WORDS: dict[Difference, str] = {
    "same_bytes": "proved ids that cut the same text otherwise than re-encoding it does",
    "other_text": "proved ids that stand for another text",
    "unproved": "segmentation not proved, and no count speaks for it",
}


def accept(
    run: Annotated[str, typer.Argument(help="A run's name, folder or ledger.", metavar="RUN")],
    dataset: Annotated[str, typer.Option("--dataset", help="The data set.", metavar="D")],
    rule: Annotated[str, typer.Option("--rule", help="What is accepted, in your words.", metavar="RULE")],
    by: Annotated[str | None, typer.Option("--by", help="Who signs; left out: the user name.", metavar="NAME")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Sign a verdict on a data set: its mismatched samples are known, counted and accepted.

    The verdict is stored in the run and goes out with every export. It changes no sample.
    """
    folder = find(run)
    words, name = clean_line(rule.strip()), clean_line((by or getpass.getuser()).strip())
    if not words:
        raise InputError("--rule: found nothing, expected what is accepted, such as: same bytes, other cut.")
    found = read_basis(folder, dataset)
    detail = detail_of(found)
    with LedgerWriter(folder.ledger_path) as writer, writer.transaction(durable=True):
        number = writer.accept(
            dataset,
            words,
            name,
            mismatched=found.mismatched,
            samples=found.samples,
            detail_json=json.dumps(detail),
        )
        sentence = f"{found.mismatched:,} of {found.samples:,} samples of {dataset} accepted by {name}: {words}"
        writer.event("info", "ctl", "accept", sentence)
    if json_:
        signed = {"run": folder.name, "verdict": number, "dataset": dataset, "rule": words, "accepted_by": name}
        print_json({**signed, "samples": found.samples, "mismatched": found.mismatched, **detail})
    else:
        print_pairs(_pairs(found))
        print(f"\nSigned: {clean_line(sentence)}")
    return 0


def read_basis(folder: RunFolder, dataset: str) -> Basis:
    """Sum up a data set of a run.

    Raises:
        InputError: the run has no such data set, or nothing of it is answered.
    """
    with ExitStack() as stack:
        reader = stack.enter_context(LedgerReader(folder.ledger_path))
        stack.enter_context(reader.moment())
        names = [figures.name for figures in reader.snapshot().datasets]
        if dataset not in names:
            near = difflib.get_close_matches(dataset, names, n=1)
            hint = f"Did you mean {clean_line(near[0], 60)}?" if near else f"There are: {clean_line(', '.join(names))}."
            raise InputError(f"--dataset: run {folder.name} has no data set {clean_line(dataset, 60)}. {hint}")
        groups = stack.enter_context(CountsReader(folder.ledger_path)).evidence_of(dataset)
        if not groups:
            raise InputError(f"--dataset: no sample of {clean_line(dataset, 60)} is answered yet.")
        return basis(
            samples=sum(group.samples for group in groups),
            proved=sum(group.samples for group in groups if group.evidence in PROVED),
            counted=sum(group.samples for group in groups if group.evidence == "counted"),
            output_tokens=sum(group.output_tokens for group in groups),
            doubtful=_doubtful(reader, dataset),
        )


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


def _doubtful(reader: LedgerReader, dataset: str) -> Iterator[Doubtful]:
    of_dataset = SampleFilter(states=("tokenized",), datasets=(dataset,))
    differing = SampleFilter(states=of_dataset.states, datasets=of_dataset.datasets, preset="mismatched")
    page = reader.page(differing, None, PAGE)
    while page:
        for row in page:
            sample = reader.sample(row.sample_key)
            assert sample is not None
            assert sample.tokens is not None
            yield Doubtful(sample.tokens.evidence, sample.tokens.spans, row.drift_tokens)
        page = reader.page(differing, page_end(page[-1], differing), PAGE)
    unproved = SampleFilter(states=of_dataset.states, datasets=of_dataset.datasets, evidence=NO_CLAIM)
    page = reader.page(unproved, None, PAGE)
    while page:
        yield from (Doubtful(row.evidence or "", (), row.drift_tokens) for row in page if not row.spans)
        page = reader.page(unproved, page_end(page[-1], unproved), PAGE)


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
