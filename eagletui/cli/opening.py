"""Open the app in this terminal. Nothing here loads the parser of options: the first screen does not wait for it."""

import gc
import os
import sys

from eagletui.cli.standing import standing
from eagletui.core.errors import EagleError, InputError
from eagletui.ledger.reader import LedgerReader
from eagletui.runs.folder import RunFolder
from eagletui.runs.workers import is_alive


def show(
    folder: RunFolder | None,
    *,
    read_only: bool = False,
    refresh_s: float | None = None,
    ascii_: bool = False,
    no_color: bool = False,
    mouse: bool = True,
) -> int:
    """Open the app and, when it closes, say in one line that the run goes on and how to come back.

    Args:
        folder: the run; None for the list of runs.
        read_only: refuse everything that changes a run.
        refresh_s: how often to look at the ledger; None chooses by the connection.
        ascii_: draw with ASCII only.
        no_color: no colours.
        mouse: take the mouse.

    Returns:
        The exit code: 0, or 128 and the signal that closed the app.

    Raises:
        InputError: the terminal cannot draw screens, or the file of keys is wrong.
    """
    from eagletui.tui import terminal

    in_browser = os.environ.get("TEXTUAL_DRIVER", "").endswith(":WebDriver")
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    reason = None if in_browser else terminal.refusal(os.environ, is_terminal=is_terminal)
    if reason is not None:
        raise InputError(reason)
    if no_color:
        os.environ["NO_COLOR"] = "1"
    terminal.prepare()
    # What is loaded stays. Looking for garbage in it would delay the first screen and every later look.
    gc.disable()
    from eagletui.tui.app import EagleApp
    from eagletui.tui.keymap import load_keymap

    app = EagleApp(
        folder,
        read_only=read_only,
        refresh_s=terminal.refresh_seconds(os.environ) if refresh_s is None else refresh_s,
        ascii_=ascii_ or terminal.needs_ascii(),
        theme=terminal.theme_name(os.environ),
        keymap=load_keymap(os.environ),
    )
    gc.freeze()
    gc.enable()
    app.run(mouse=mouse)
    if app.folder is not None and not in_browser:
        _say(farewell(app.folder))
    return app.return_code or 0


def farewell(folder: RunFolder) -> str:
    """Say that the run goes on, or how it ended, and how to come back."""
    try:
        engine = is_alive(folder, "engine")
        if engine is not None:
            return f"run {folder.name} continues (pid {engine.pid}). eagletui attach {folder.argument}"
        with LedgerReader(folder.ledger_path) as reader:
            run = reader.run()
    except EagleError as error:
        return f"run {folder.name}: {error}"
    state = standing(run.state, run.pause_reason, has_engine=False)
    command = "attach" if run.state == "done" else "run"
    return f"run {folder.name} is {state}. eagletui {command} {folder.argument}"


def _say(line: str) -> None:
    try:
        print(line, flush=True)
    except OSError:
        # The terminal is gone; what is still buffered for it must not fail once more when the interpreter ends.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            os.dup2(nowhere, stream.fileno())
