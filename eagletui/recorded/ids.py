"""Read recorded token ids from a file: what `validate` and `import` take."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from eagletui.recorded.lines import problem, read_ids, read_objects, read_text
from eagletui.tokens.load import Tokenizer


@dataclass(frozen=True, slots=True)
class RecordedIds:
    """One line of the input."""

    id: str
    dataset: str
    output_ids: tuple[int, ...]
    finish_reason: str | None


def read_recorded_ids(path: Path, tokenizer: Tokenizer) -> list[RecordedIds]:
    """Read a file of recorded ids: `output_ids`, or `input_ids` with a `loss_mask` as exports write them.

    A loss mask with several runs of ones holds several answers; each is compared by itself, named `ID#1`, `ID#2`, ...

    Raises:
        InputError: the first line that is not what the contract asks for, with its field.
    """
    found: list[RecordedIds] = []
    for number, value in read_objects(path):
        sample_id = read_text(path, number, "id", value.get("id"))
        dataset, finish = value.get("dataset"), value.get("finish_reason")
        if dataset is not None:
            read_text(path, number, "dataset", dataset)
        if finish is not None and not isinstance(finish, str):
            raise problem(path, number, "finish_reason", finish, "a text such as stop or length")
        answers = _answers(path, number, value, tokenizer)
        for place, ids in enumerate(answers, 1):
            name = sample_id if len(answers) == 1 else f"{sample_id}#{place}"
            found.append(RecordedIds(name, dataset or path.stem, ids, finish if place == len(answers) else None))
    return found


def _answers(path: Path, number: int, value: Mapping[str, Any], tokenizer: Tokenizer) -> list[tuple[int, ...]]:
    """The sampled ids of a line."""
    if "output_ids" not in value and ("input_ids" in value or "loss_mask" in value):
        ids = read_ids(path, number, "input_ids", value.get("input_ids"), tokenizer)
        mask = value.get("loss_mask")
        if not isinstance(mask, list) or len(mask) != len(ids):
            shown = f"{len(mask)} numbers" if isinstance(mask, list) else mask
            raise problem(path, number, "loss_mask", shown or "nothing", f"{len(ids)} of 0 and 1, as many as input_ids")
        odd = next((place for place, one in enumerate(mask) if type(one) is not int or one not in (0, 1)), None)
        if odd is not None:
            raise problem(path, number, f"loss_mask[{odd}]", mask[odd], "0 or 1")
        runs = groupby(zip(ids, mask, strict=True), key=lambda pair: pair[1])
        answers = [tuple(token_id for token_id, _ in run) for sampled, run in runs if sampled]
        if not answers:
            raise problem(path, number, "loss_mask", "no 1", "a 1 on every sampled token")
        return answers
    if value.get("output_ids") is None:
        expected = "a list of token ids, or input_ids with a loss_mask"
        raise problem(path, number, "output_ids", "nothing" if "output_ids" not in value else "null", expected)
    return [read_ids(path, number, "output_ids", value["output_ids"], tokenizer)]
