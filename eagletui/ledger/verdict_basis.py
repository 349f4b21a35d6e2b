"""Read what a verdict on a data set rests on."""

import difflib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from eagletui.core.errors import InputError
from eagletui.core.fidelity import PROVED
from eagletui.core.text import clean_line
from eagletui.core.tokdiff import is_hidden_tail
from eagletui.core.verdicts import Basis, Doubtful, basis
from eagletui.ledger.filters import SampleFilter
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.reader_counts import CountsReader
from eagletui.ledger.reader_samples import page_end

PAGE: Final = 500
NO_CLAIM: Final = ("inferred", "canonical", "conflict")
"""Evidence that neither proves ids nor finds a count that agrees."""


def read_basis(path: Path, dataset: str, step: Callable[[int], None] = lambda _: None) -> Basis:
    """Sum up a data set of a run.

    Args:
        path: the ledger.
        dataset: its name.
        step: told how many doubtful samples were read; may raise to end it.

    Raises:
        InputError: the run has no such data set, or nothing of it is answered.
    """
    with ExitStack() as stack:
        reader = stack.enter_context(LedgerReader(path))
        stack.enter_context(reader.moment())
        names = [figures.name for figures in reader.snapshot().datasets]
        if dataset not in names:
            near = difflib.get_close_matches(dataset, names, n=1)
            hint = f"Did you mean {clean_line(near[0], 60)}?" if near else f"There are: {clean_line(', '.join(names))}."
            raise InputError(f"--dataset: run {path.parent.name} has no data set {clean_line(dataset, 60)}. {hint}")
        groups = stack.enter_context(CountsReader(path)).evidence_of(dataset)
        if not groups:
            raise InputError(f"--dataset: no sample of {clean_line(dataset, 60)} is answered yet.")
        return basis(
            samples=sum(group.samples for group in groups),
            proved=sum(group.samples for group in groups if group.evidence in PROVED),
            counted=sum(group.samples for group in groups if group.evidence == "counted"),
            output_tokens=sum(group.output_tokens for group in groups),
            doubtful=_told(_doubtful(reader, dataset), step),
        )


def _told(samples: Iterator[Doubtful], step: Callable[[int], None]) -> Iterator[Doubtful]:
    for number, sample in enumerate(samples, start=1):
        step(number)
        yield sample


def _doubtful(reader: LedgerReader, dataset: str) -> Iterator[Doubtful]:
    differing = SampleFilter(states=("tokenized",), datasets=(dataset,), preset="mismatched")
    page = reader.page(differing, None, PAGE)
    while page:
        for row in page:
            sample = reader.sample(row.sample_key)
            assert sample is not None
            assert sample.tokens is not None
            spans = tuple(span for span in sample.tokens.spans if not is_hidden_tail(span, sample.tokens.raw))
            yield Doubtful(sample.tokens.evidence, spans, row.drift_tokens)
        page = reader.page(differing, page_end(page[-1], differing), PAGE)
    unproved = SampleFilter(states=("tokenized",), datasets=(dataset,), evidence=NO_CLAIM)
    page = reader.page(unproved, None, PAGE)
    while page:
        yield from (Doubtful(row.evidence or "", (), row.drift_tokens) for row in page if not row.spans)
        page = reader.page(unproved, page_end(page[-1], unproved), PAGE)
