"""The samples of a run as training rows: exact ids, their mask, and why they are believed."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from eagletui.core.features import sampled_mask
from eagletui.core.fidelity import CANARIES
from eagletui.core.tokdiff import is_hidden_tail
from eagletui.export.selection import Selection, unknown
from eagletui.ledger.filters import SampleFilter
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.reader_samples import StoredTokens, page_end
from eagletui.ledger.rows import SampleRow

DEFAULT_SET: Final = ("usable", "resegmented")
"""Usabilities that are trained on unless more are asked for."""

ALSO_POSSIBLE: Final = ("text_suspect", "model_suspect", "unusable")
"""Usabilities that a person can add."""

_PAGE: Final = 256


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One sample: the prompt's ids and what the model sampled after them."""

    id: str
    input_ids: tuple[int, ...]
    """Prompt, then output with its sampled stop token; length T."""
    loss_mask: tuple[int, ...]
    """1 on sampled tokens, not shifted; length T."""
    evidence: str
    """Why the ids are believed."""
    usability: str
    finish_reason: str | None
    dataset: str
    endpoint: str | None
    """The provider behind the router that answered."""
    prompt_tokens: int
    output_tokens: int
    resegmented_spans: int
    """Places where the proved ids differ from re-encoding the text; as the ledger counts them, without a hidden tail,
    which no text has."""
    tail_trimmed: bool
    """The token limit cut inside a character; the ids end before it."""


@dataclass(slots=True)
class Census:
    """What went into a training set, and what did not."""

    samples: int = 0
    tokens: int = 0
    sampled_tokens: int = 0
    evidence: Counter[str] = field(default_factory=Counter)
    usability: Counter[str] = field(default_factory=Counter)
    finish_reason: Counter[str] = field(default_factory=Counter)
    dataset: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    """Answered samples that are not in the set, by reason."""

    def add(self, row: TrainingRow) -> None:
        """Count a row in."""
        self.samples += 1
        self.tokens += len(row.input_ids)
        self.sampled_tokens += row.output_tokens
        self.evidence[row.evidence] += 1
        self.usability[row.usability] += 1
        self.finish_reason[row.finish_reason or "unknown"] += 1
        self.dataset[row.dataset] += 1


def selected_rows(
    reader: LedgerReader, census: Census, also: Sequence[str], selection: Selection
) -> Iterator[TrainingRow]:
    """Read the picked samples that belong to a training set, in the order they were picked.

    Raises:
        InputError: an id is not one of the run's.
    """
    for number, key in selection.lines:
        detail = reader.sample(key)
        if detail is None:
            raise unknown(selection, number, key, reader.run().name)
        if detail.tokens is None or detail.row.state != "tokenized":
            census.left_out[detail.row.state] += 1
        elif detail.row.dataset == CANARIES or detail.row.usability not in (*DEFAULT_SET, *also):
            census.left_out[detail.row.usability or "unknown"] += 1
        else:
            yield from _made(detail.row, detail.tokens, census)


def training_rows(reader: LedgerReader, census: Census, also: Sequence[str] = ()) -> Iterator[TrainingRow]:
    """Read a run's training set: the default set by ingest order, then what else is asked for.

    Args:
        reader: of the run's ledger.
        census: counts rows as they are read, and what is left out once all are.
        also: further usabilities, out of `ALSO_POSSIBLE`.
    """
    after = 0
    while page := reader.to_export(after, _PAGE):
        for item in page:
            after = item.row.id
            yield from _made(item.row, item.tokens, census)
    for usability in also:
        yield from _others(reader, SampleFilter(states=("tokenized",), usability=(usability,)), census)
    snapshot = reader.snapshot()
    for usability, samples in snapshot.usability.items():
        if usability not in (*DEFAULT_SET, *also) and samples:
            census.left_out[usability] += samples
    if snapshot.states["quarantined"]:
        census.left_out["quarantined"] = snapshot.states["quarantined"]


def _others(reader: LedgerReader, wanted: SampleFilter, census: Census) -> Iterator[TrainingRow]:
    page = reader.page(wanted, None, _PAGE)
    while page:
        for row in page:
            detail = reader.sample(row.sample_key)
            if detail is not None and detail.tokens is not None and row.dataset != CANARIES:
                yield from _made(row, detail.tokens, census)
        page = reader.page(wanted, page_end(page[-1], wanted), _PAGE)


def _made(sample: SampleRow, tokens: StoredTokens, census: Census) -> Iterator[TrainingRow]:
    if not tokens.prompt_ids or not tokens.output_ids:
        census.left_out["no_prompt_ids" if tokens.output_ids else "no_output_ids"] += 1
        return
    prompt, output = tokens.prompt_ids, tokens.output_ids
    row = TrainingRow(
        id=sample.sample_key,
        input_ids=(*prompt, *output),
        loss_mask=sampled_mask(len(prompt), len(output)),
        evidence=tokens.evidence,
        usability=sample.usability or "unknown",
        finish_reason=sample.finish_reason,
        dataset=sample.dataset,
        endpoint=sample.endpoint,
        prompt_tokens=len(prompt),
        output_tokens=len(output),
        resegmented_spans=sum(not is_hidden_tail(span, tokens.raw) for span in tokens.spans),
        tail_trimmed=tokens.tail_trimmed,
    )
    census.add(row)
    yield row
