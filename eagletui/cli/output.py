"""What the commands print: one JSON object on stdout, tables for people, progress on stderr."""

import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from eagletui.core.text import clean_block, clean_line


def print_json(value: object) -> None:
    """Print the one JSON object of a command, in ASCII: names that are not UTF-8 and control bytes come as escapes."""
    print(json.dumps(value))


def say(text: str) -> None:
    """Print progress, cleaned here, to stderr at once."""
    print(clean_block(text), file=sys.stderr, flush=True)


def on_terminal() -> bool:
    """Tell whether a person sits at a terminal that can show the app."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def print_pairs(pairs: Iterable[tuple[str, str]]) -> None:
    """Print names and values in two columns."""
    rows = list(pairs)
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
    """Print columns.

    Args:
        header: column names.
        rows: cells, cleaned here.
        right: indices of columns that are aligned to the right.
    """
    cells = [list(header), *([clean_line(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    for row in cells:
        aligned = [
            cell.rjust(widths[column]) if column in right else cell.ljust(widths[column])
            for column, cell in enumerate(row)
        ]
        print("  ".join(aligned).rstrip())


def short_path(path: Path) -> str:
    """Write a path from the current folder where it lies inside, else whole."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except (ValueError, OSError):  # it lies elsewhere, or the current folder was removed
        return str(path)


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Write a number with its noun: `1 sample`, `24 samples`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def bytes_text(number: int) -> str:
    """Write a size for people: `812 B`, `4.1 MiB`."""
    size = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def duration_text(seconds: float) -> str:
    """Show a duration in its two largest units: `45 s`, `3 min 20 s`, `5 h 10 min`, `2 d 3 h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{max(whole, 1)} s"
    for size, unit, below, smaller in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // below} {smaller}"
    raise AssertionError("every duration of a minute or more has a unit")
