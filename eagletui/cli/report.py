"""`eagletui report`: a run as one page to share."""

import os
import time
from pathlib import Path
from typing import Annotated, Final

import typer

from eagletui.cli.output import bytes_text, print_json, short_path
from eagletui.cli.standing import standing_line
from eagletui.core.errors import InputError
from eagletui.core.text import clean_line
from eagletui.files.replacement import Replacement
from eagletui.runs.find import find

_HEAD_BYTES: Final = 2_048


def report(
    run: Annotated[str, typer.Argument(help="A run's name, folder or ledger.", metavar="RUN")],
    html: Annotated[Path, typer.Option("--html", help="Where to; an older report is replaced.", metavar="FILE")],
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Write a run as one self-contained page: plots, tables, verdicts and findings.

    It holds no prompt and no answer, no key, no address and no path of this machine; it loads nothing and runs nothing.
    Works while the run goes on: the ledger is only read.
    """
    from eagletui.report.page import page
    from eagletui.report.story import read_story

    folder = find(run)
    check_target(html)
    story = read_story(folder.ledger_path, time.time)
    written = page(story, standing_line(story.snapshot, clean_line(folder.name)))
    try:
        with Replacement(html) as stream:
            stream.write(written)
    except OSError as error:
        raise InputError(f"--html: cannot write {clean_line(str(html))}: {error.strerror}.") from error
    if json_:
        print_json({"run": folder.name, "html": str(html), "bytes": len(written)})
    else:
        print(f"{clean_line(short_path(html))}  {bytes_text(len(written))}")
    return 0


def check_target(path: Path) -> None:
    """Refuse a place that cannot hold the page, or holds something else.

    Raises:
        InputError: a folder, a missing folder, or a file that is not a report.
    """
    from eagletui.report.markup import GENERATOR

    shown = clean_line(str(path))
    if path.is_dir():
        raise InputError(f"--html: {shown} is a folder; expected a file, such as {shown}/report.html.")
    if not path.parent.is_dir():
        raise InputError(f"--html: the folder of {shown} does not exist; make it first.")
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEAD_BYTES)
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(f"--html: cannot read what is at {shown}: {os.strerror(error.errno or 0)}.") from error
    if f'content="{GENERATOR}"'.encode() not in head:
        raise InputError(f"--html: {shown} is there and is not a report; choose another name.")
