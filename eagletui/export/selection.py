"""Which samples a person picked: a file with one sample id a line."""

from dataclasses import dataclass
from pathlib import Path

from eagletui.core.errors import InputError
from eagletui.core.text import clean_line


@dataclass(frozen=True, slots=True)
class Selection:
    """Samples to write, and where they were named."""

    path: Path
    lines: tuple[tuple[int, str], ...]
    """Line number and sample id, each id once, in the file's order."""


def read_selection(path: Path) -> Selection:
    """Read a file of sample ids; blank lines are skipped.

    Raises:
        InputError: the file cannot be read, is not UTF-8, or names nothing.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror or error}); expected one sample id a line."
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is not UTF-8; expected one sample id a line.") from error
    found: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            found.setdefault(line.strip(), number)
    if not found:
        raise InputError(f"{path}: found no sample id, expected one a line.")
    return Selection(path, tuple((number, key) for key, number in found.items()))


def unknown(selection: Selection, number: int, key: str, run: str) -> InputError:
    """Make the error for an id that the run does not have."""
    return InputError(
        f"{selection.path}:{number}: found {clean_line(key, 60)}, expected the id of a sample of run {run}."
    )
