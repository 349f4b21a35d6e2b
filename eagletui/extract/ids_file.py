"""Read token ids from a JSONL file: one pass to check every line, a second to hand out the samples.

Lines are `{"id", "input_ids", "loss_mask"}`, as `export --to jsonl` writes them, or
`{"id", "prompt_ids", "output_ids"}`, with an optional `dataset`. Other keys are ignored. Nothing but line positions
and lengths is kept, so memory stays flat.
"""

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from eagletui.core.errors import InputError, Problem
from eagletui.core.features import sampled_mask
from eagletui.core.text import clean_line
from eagletui.extract.shards import IdsSample

MAX_PROBLEMS: Final = 20
_SHOWN: Final = 60


@dataclass(frozen=True, slots=True)
class IdsFile:
    """A checked file of ids."""

    path: Path
    sha256: str
    starts: "array[int]"
    """Byte position of each sample's line."""
    lengths: "array[int]"
    """Tokens of each sample."""
    max_id: int
    """The largest id in the file."""

    @property
    def rows(self) -> int:
        """Tokens of all samples."""
        return sum(self.lengths)

    def samples(self, wanted: Sequence[int]) -> Iterator[IdsSample]:
        """Read samples by their place in the file, from 0."""
        with self.path.open("rb") as stream:
            for index in wanted:
                stream.seek(self.starts[index])
                sample = _parse(str(self.path), index + 1, stream.readline(), None)
                if isinstance(sample, Problem):
                    raise InputError(f"{self.path} was changed while it was read: {sample}")
                yield sample


def check_ids_file(path: Path, vocab_size: int | None = None) -> IdsFile:
    """Read the whole file and check every line.

    Args:
        path: the JSONL file.
        vocab_size: ids must be below; None where the model is not known yet.

    Raises:
        InputError: with the first 20 problems, each naming file, line, field, found and expected.
    """
    problems: list[Problem] = []
    total = 0
    starts, lengths = array("q"), array("q")
    seen: dict[str, int] = {}
    digest = hashlib.sha256()
    max_id = -1
    try:
        with path.open("rb") as stream:
            position = 0
            for number, line in enumerate(stream, 1):
                digest.update(line)
                start, position = position, position + len(line)
                if not line.strip():
                    continue
                sample = _parse(str(path), number, line, vocab_size)
                if isinstance(sample, IdsSample) and sample.key in seen:
                    expected = f"ids that appear once; line {seen[sample.key]} has it too"
                    sample = Problem(str(path), number, "id", _shown(sample.key), expected)
                if isinstance(sample, Problem):
                    total += 1
                    problems += [sample] if total <= MAX_PROBLEMS else []
                    continue
                seen[sample.key] = number
                starts.append(start)
                lengths.append(len(sample.token_ids))
                max_id = max(max_id, *sample.token_ids)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    if not seen and not problems:
        problems, total = [Problem(str(path), None, None, "no lines", "one JSON object per line")], 1
    if problems:
        lines = [str(problem) for problem in problems]
        lines += [f"... and {total - len(problems)} more"] if total > len(problems) else []
        raise InputError("\n".join([*lines, "Nothing was written."]))
    return IdsFile(path, digest.hexdigest(), starts, lengths, max_id)


def _parse(path: str, number: int, line: bytes, vocab_size: int | None) -> IdsSample | Problem:
    """Make a sample of one line, or say what is wrong with it."""

    def problem(field: str | None, found: str, expected: str) -> Problem:
        return Problem(path, number, field, found, expected)

    try:
        value = msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        return problem(None, f"broken JSON ({clean_line(str(error), _SHOWN)})", "one JSON object")
    except UnicodeDecodeError:
        return problem(None, "bytes that are not UTF-8", "one JSON object")
    if not isinstance(value, dict):
        return problem(None, _shown(value), "one JSON object")
    key = value.get("id")
    if not isinstance(key, str | int) or isinstance(key, bool) or key == "":
        return problem("id", _given(value, "id"), "a string that names the sample")
    dataset = value.get("dataset")
    named = dataset if isinstance(dataset, str) else ""
    whole = "input_ids" in value or "loss_mask" in value
    fields = ("input_ids", "loss_mask") if whole else ("prompt_ids", "output_ids")
    for field in fields:
        wrong = _wrong_ids(value.get(field), None if field == "loss_mask" else vocab_size)
        if wrong is not None and field in value and value[field] is not None:
            return problem(f"{field}{wrong.where}", wrong.found, wrong.expected)
        if wrong is not None:
            why = "; the states of an answer depend on its prompt" if field == "prompt_ids" else ""
            return problem(field, _given(value, field), f"a list of ints{why}")
    first, second = value[fields[0]], value[fields[1]]
    if not whole:
        return IdsSample(str(key), (*first, *second), sampled_mask(len(first), len(second)), dataset=named)
    if len(second) != len(first):
        return problem("loss_mask", f"{len(second)} numbers", f"{len(first)}, as many as input_ids")
    if not {0, 1}.issuperset(second):
        return problem("loss_mask", _shown(next(n for n in second if n not in (0, 1))), "0 or 1")
    if not any(second):
        return problem("loss_mask", f"{len(second)} zeros", "at least one 1: a token to train on")
    return IdsSample(str(key), tuple(first), tuple(second), dataset=named)


@dataclass(frozen=True, slots=True)
class _Wrong:
    where: str
    found: str
    expected: str


def _wrong_ids(ids: Any, vocab_size: int | None) -> _Wrong | None:
    if not isinstance(ids, list):
        return _Wrong("", _shown(ids), "a list of ints")
    if not ids:
        return _Wrong("", "an empty list", "at least one int")
    if set(map(type, ids)) != {int}:
        place = next(index for index, item in enumerate(ids) if type(item) is not int)
        return _Wrong(f"[{place}]", _shown(ids[place]), "an int")
    if min(ids) < 0:
        place = next(index for index, item in enumerate(ids) if item < 0)
        return _Wrong(f"[{place}]", str(ids[place]), "an int of at least 0")
    if vocab_size is not None and max(ids) >= vocab_size:
        place = next(index for index, item in enumerate(ids) if item >= vocab_size)
        return _Wrong(f"[{place}]", str(ids[place]), f"an id below {vocab_size}, the model's vocabulary")
    return None


def _given(value: dict[str, Any], field: str) -> str:
    return _shown(value[field]) if field in value else "nothing"


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode("utf-8", "replace")
    return clean_line(text, _SHOWN)
