"""Read prompt files: JSON lines in any of the known shapes, one pass, one record in memory at a time."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec

from eagletui.core.chat import Message, Prompt
from eagletui.core.errors import Problem
from eagletui.core.text import clean_line
from eagletui.prompts.fields import Fault, find_lone_surrogate, found, one_of, take_text
from eagletui.prompts.key import content_key, given_key
from eagletui.prompts.messages import NO_PREFILL, read_messages
from eagletui.prompts.plain import read_plain
from eagletui.prompts.sampling import read_sampling
from eagletui.prompts.sharegpt import read_sharegpt
from eagletui.prompts.turns import place_turns

MAX_LINE_BYTES: Final = 64 * 1024 * 1024

SHAPES: Final[Mapping[str, Callable[[Mapping[str, object]], tuple[Message, ...]]]] = {
    "messages": lambda record: read_messages(record["messages"], "messages"),
    "conversations": read_sharegpt,
    "prompt": read_plain,
}
"""By the key that tells the shape. A record with several (`prompt` beside `messages`) is read by the first."""

_PREFILLED: Final[Mapping[str, object]] = {"continue_final_message": True, "add_generation_prompt": False}
"""Fields of a record that ask a server to go on with a given beginning of the answer."""

_FOREIGN: Final = (
    (b"\x1f\x8b", "a gzip file", "JSON lines: unpack it first with gunzip"),
    (b"\x28\xb5\x2f\xfd", "a zstd file", "JSON lines: unpack it first with unzstd"),
    (b"BZh", "a bzip2 file", "JSON lines: unpack it first with bunzip2"),
    (b"\xfd7zXZ\x00", "an xz file", "JSON lines: unpack it first with unxz"),
    (b"PK\x03\x04", "a zip file", "JSON lines: unpack it first with unzip"),
    (b"PAR1", "a Parquet file", "its name to end in .parquet"),
    (b"\xff\xfe", "text in UTF-16", "JSON lines in UTF-8: iconv -f UTF-16 -t UTF-8"),
    (b"\xfe\xff", "text in UTF-16", "JSON lines in UTF-8: iconv -f UTF-16 -t UTF-8"),
)
"""First bytes of files that are given for prompts, what they are, and what is expected."""

_RECORD = msgspec.json.Decoder(dict[str, object])
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_VALUE = msgspec.json.Decoder()


class PromptRecord(NamedTuple):
    """One line of a prompt file; a tuple, as a million of them may pass."""

    line: int
    """1-based."""
    key: str
    """The given id, else a hash of the content."""
    has_id: bool
    dataset: str
    prompt: Prompt
    """Up to where the last turn to answer begins."""
    turns: tuple[int, ...]
    """Turns to answer; see `prompts.turns`."""
    dropped: int
    """Given answers that are generated anew."""


@dataclass(slots=True)
class PromptFile:
    """One prompt file, iterated once: records and problems in file order."""

    path: Path
    turns: Literal["last", "all"]
    sha256: str | None = field(default=None, init=False)
    """Hex digest of the file's bytes, once iterated to the end."""

    def __iter__(self) -> Iterator[PromptRecord | Problem]:
        """Read the file to its end, whatever is wrong with single lines."""
        digest = hashlib.sha256()
        stem = self.path.name.split(".")[0] or self.path.name
        records = False
        try:
            with self.path.open("rb") as file:
                if (other := foreign_format(self.path.name, file.peek(8))) is not None:
                    yield self._problem(None, None, *other)
                    return
                number = 0
                while line := file.readline(MAX_LINE_BYTES):
                    number += 1
                    digest.update(line)
                    if number == 1:
                        line = line.removeprefix(b"\xef\xbb\xbf")
                    if not line.strip():
                        continue
                    records = True
                    yield self._read(number, line, stem)
                    if len(line) == MAX_LINE_BYTES:
                        return
        except OSError as error:
            yield self._problem(None, None, f"a file that cannot be read ({error.strerror})", "JSON lines")
            return
        if not records:
            yield self._problem(None, None, "an empty file", "one JSON object a line")
        self.sha256 = digest.hexdigest()

    def _read(self, number: int, line: bytes, stem: str) -> PromptRecord | Problem:
        try:
            return read_record(number, line, stem, self.turns)
        except Fault as fault:
            return self._problem(number, fault.field, fault.found, fault.expected)

    def _problem(self, line: int | None, name: str | None, what: str, expected: str) -> Problem:
        return Problem(str(self.path), line, name, what, expected)


def foreign_format(name: str, head: bytes) -> tuple[str, str] | None:
    """Name the format of a file that holds no JSON lines as it is, and what to make of it; None where it may hold some.

    Args:
        name: of the file; tables in text are known by it, and by no brace at their beginning.
        head: the first bytes.
    """
    for mark, what, how in _FOREIGN:
        if head.startswith(mark):
            return what, how
    if name.lower().endswith((".csv", ".tsv")) and not head.lstrip().startswith(b"{"):
        return "a table of separated values", "JSON lines, such as its rows as objects, or Parquet"
    return None


def read_record(number: int, line: bytes, stem: str, mode: Literal["last", "all"]) -> PromptRecord:
    """Read one JSON object.

    Args:
        number: of its line.
        line: the bytes of the object.
        stem: names the data set where the record does not.
        mode: which turns are to be answered.

    Raises:
        Fault: what is wrong with it.
    """
    record = _decode_line(line)
    for shape in SHAPES:
        if shape in record:
            break
    else:
        keys = clean_line(", ".join(record), 60) or "none"
        raise Fault(None, f"an object with the keys {keys}", one_of(tuple(SHAPES)))
    for name in _PREFILLED:
        if name in record and record[name] == _PREFILLED[name]:
            raise Fault(name, found(_PREFILLED[name]), NO_PREFILL)
    tools_json = _tools(line) if "tools" in record else None
    sampling_json = read_sampling(record.get("sampling"))
    placed = place_turns(Prompt(SHAPES[shape](record), tools_json, sampling_json), mode, shape)
    given = record.get("id")
    return PromptRecord(
        line=number,
        key=content_key(placed.prompt) if given is None else given_key(given),
        has_id=given is not None,
        dataset=stem if record.get("dataset") is None else take_text(record["dataset"], "dataset"),
        prompt=placed.prompt,
        turns=placed.turns,
        dropped=placed.dropped,
    )


def _decode_line(line: bytes) -> dict[str, object]:
    if len(line) == MAX_LINE_BYTES:
        raise Fault(None, f"a line of more than {MAX_LINE_BYTES} bytes", "one JSON object a line")
    try:
        return _RECORD.decode(line)
    except msgspec.DecodeError as error:
        raise _what_is_broken(line, error) from error


def _what_is_broken(line: bytes, error: msgspec.DecodeError) -> Fault:
    """Name what keeps a line from being a JSON object in UTF-8."""
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as wrong:
        return Fault(None, f"a byte that is not UTF-8 at column {wrong.start + 1}", "JSON in UTF-8")
    if isinstance(error, msgspec.ValidationError):
        hint = ": turn the list into one object a line" if line.lstrip().startswith(b"[") else ""
        return Fault(None, f"JSON that is no object{hint}", "one JSON object a line")
    _name_lone_surrogate(line)
    return Fault(None, f"broken JSON ({error})", "one JSON object a line")


def _name_lone_surrogate(line: bytes) -> None:
    """Raise `Fault` where half of a surrogate pair is all that is wrong with a line: the decoder says other things."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return
    find_lone_surrogate(value, "")


def _tools(line: bytes) -> str | None:
    """Return the tool definitions as JSON text, byte for byte; ShareGPT files hold them as a string of JSON."""
    raw = bytes(_FIELDS.decode(line)["tools"])
    text = raw.decode("utf-8")
    value = _VALUE.decode(raw)
    if value is None or value == [] or value == "":
        return None
    if isinstance(value, str):
        text = value
        try:
            value = _VALUE.decode(value)
        except msgspec.DecodeError as error:
            raise Fault("tools", found(text), "a list of tool definitions") from error
        if value == []:
            return None
    if not isinstance(value, list) or not all(isinstance(tool, dict) for tool in value):
        raise Fault("tools", found(value), "a list of tool definitions")
    return text
