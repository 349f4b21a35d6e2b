"""Run the program's own commands beside the screens: what they refuse and what they write stays in one place."""

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Final, Protocol

from eagletui.core.text import clean_block

_MAIN: Final = "import sys; from eagletui.cli.app import main; main(sys.argv[1:])"
_LOOK_EVERY_S: Final = 0.05
_LARGEST_OUTPUT: Final = 4_000_000
"""Bytes; no command's JSON comes near."""


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended."""

    code: int
    """Exit code; negative for a signal."""
    output: str
    """Standard output."""
    errors: str
    """Standard error."""

    @property
    def complaint(self) -> str:
        """What the command said was wrong, cleaned; never empty."""
        said = clean_block(self.errors).strip().removeprefix("eagletui: ")
        return said or f"it ended with exit code {self.code} and said nothing"


class Program(Protocol):
    """Runs one of the program's commands."""

    async def __call__(self, *arguments: str, outlives: bool = False) -> Ran:
        """See `run_program`."""


async def run_program(*arguments: str, outlives: bool = False) -> Ran:
    """Run `eagletui ARGUMENTS` and wait for its end.

    Output goes to files, so that a command may write much, and outlive whoever waits.

    Args:
        arguments: the command and its options.
        outlives: let it go on when the wait is cancelled; else it is killed.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = _spawn(arguments, output, errors)
        try:
            # The loop's own subprocesses are killed when it closes, and a thread that waits would hold the app.
            while process.poll() is None:  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_EVERY_S)
        finally:
            if process.returncode is None and not outlives:
                process.kill()
                process.wait()
        texts = []
        for file in (output, errors):
            file.seek(0)
            texts.append(file.read(_LARGEST_OUTPUT).decode("utf-8", "replace"))
        return Ran(process.returncode, texts[0], texts[1])


def _spawn(arguments: Sequence[str], output: IO[bytes], errors: IO[bytes]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-c", _MAIN, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=errors,
        start_new_session=True,
    )
