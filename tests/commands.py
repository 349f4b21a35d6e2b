"""Commands as a person gives them, run in this process: a new one would spend a second on imports."""

import contextlib
import io
from dataclasses import dataclass

from eagletui.cli.app import main


@dataclass(frozen=True)
class Ended:
    """What a command left behind."""

    returncode: int
    stdout: str
    stderr: str


def command(*args: object) -> Ended:
    """Run one command to its end."""
    out, err = io.StringIO(), io.StringIO()
    code: object = None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(arg) for arg in args])
        except SystemExit as end:
            code = end.code
    return Ended(int(str(code or 0)), out.getvalue(), err.getvalue())
