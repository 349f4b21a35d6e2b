"""Take answers into a run whose ids a local server recorded: the job behind `eagletui import`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from eagletui.core.chat import Prompt, until_turn
from eagletui.core.errors import Problem, PromptFileError
from eagletui.ledger.orders import NewPrompt, TokensResult
from eagletui.ledger.writer import LedgerWriter
from eagletui.prompts.jsonl import SHAPES, PromptFile, PromptRecord
from eagletui.prompts.preview import preview
from eagletui.recorded.ids import RecordedIds, read_recorded_ids
from eagletui.recorded.lines import problem, read_ids, read_objects
from eagletui.recorded.validate import compare
from eagletui.run_ids import RunIds

ENDPOINT: Final = "imported"
"""Stands where an endpoint's tag would."""


class Imported(NamedTuple):
    """What an import did."""

    imported: int
    new: int
    """Samples that the run did not have."""
    known: int
    """Samples that had an answer already, or were given up; they stay as they are."""


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    """1-based."""
    recorded: RecordedIds
    prompt_ids: tuple[int, ...] | None
    record: PromptRecord | None
    """The conversation, where the line has one."""


def import_file(path: Path, writer: LedgerWriter, ids: RunIds) -> Imported:
    """Add the recorded answers of a file to a ledger, all or nothing.

    Args:
        path: JSON lines.
        writer: of the ledger; the engine's lock is held.
        ids: the run's tokenizer and format.

    Raises:
        InputError: a line is not what it should be; nothing was taken.
    """
    lines = _read(path, ids)
    imported = new = known = 0
    with writer.transaction():
        source_id: int | None = None
        for line in lines:
            key = line.recorded.id
            waiting = writer.waiting_sample(key)
            if waiting is None and line.record is not None:
                if source_id is None:
                    source_id = writer.add_source(path, f"imported: {path}", 0)
                added = writer.add_prompts([_new_prompt(key, line.record)], source_id)
                new += added
                waiting = writer.waiting_sample(key)
            if waiting is None:
                if not writer.has_sample(key):
                    expected = "a conversation beside it, or the id of a sample of the run"
                    raise problem(path, line.number, "id", key, expected)
                known += 1
                continue
            tokens = _tokens(line, waiting.prompt, waiting.dataset, ids)
            writer.import_answer(waiting.id, ENDPOINT, line.recorded.finish_reason, tokens)
            imported += 1
    return Imported(imported, new, known)


def _read(path: Path, ids: RunIds) -> list[_Line]:
    values = read_objects(path)
    for number, value in values:
        if "output_ids" not in value:
            raise problem(path, number, "output_ids", "nothing", "a list of token ids")
    recorded = read_recorded_ids(path, ids.tokenizer)
    shaped = {number for number, value in values if any(shape in value for shape in SHAPES)}
    records = _conversations(path) if shaped else {}
    lines = []
    for one, (number, value) in zip(recorded, values, strict=True):
        given = value.get("prompt_ids")
        prompt_ids = None if given is None else read_ids(path, number, "prompt_ids", given, ids.tokenizer)
        lines.append(_Line(number, one, prompt_ids, records.get(number)))
    return lines


def _conversations(path: Path) -> dict[int, PromptRecord]:
    """Read the conversations of the lines that have one, by line number."""
    found: dict[int, PromptRecord] = {}
    wrong: list[Problem] = []
    for item in PromptFile(path, "last"):
        if isinstance(item, PromptRecord):
            found[item.line] = item
        elif item.field is not None:  # a line without any conversation is one of a waiting sample
            wrong.append(item)
    if wrong:
        raise PromptFileError(wrong[:20], len(wrong))
    return found


def _new_prompt(key: str, record: PromptRecord) -> NewPrompt:
    asked = until_turn(record.prompt, record.turns[-1])
    return NewPrompt(key, record.dataset, asked, preview(asked), turns=record.turns[-1:])


def _tokens(line: _Line, prompt: Prompt, dataset: str, ids: RunIds) -> TokensResult:
    """Return what the ledger keeps: the recorded ids, and where canonical text would have cut otherwise."""
    compared = compare(line.recorded, ids.tokenizer)
    output_ids = line.recorded.output_ids
    prompt_ids: Sequence[int] | None = line.prompt_ids
    if prompt_ids is None:
        prompt_ids = ids.prompt_ids(prompt, dataset)
    raw = ids.tokenizer.vocabulary.decode(output_ids).decode("utf-8", "replace")
    return TokensResult(
        output_ids=output_ids,
        raw=raw,
        evidence="served",
        usability="usable",
        prompt_ids=prompt_ids,
        spans=compared.spans,
        ended=line.recorded.finish_reason != "length",
    )
