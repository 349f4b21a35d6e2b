"""`eagletui` and `eagletui attach`: open the app on a run, or on the list of runs."""

import asyncio
import os
import sys
from typing import Annotated, Final

import typer

from eagletui.cli.standing import standing
from eagletui.core.errors import EagleError, InputError
from eagletui.ledger.reader import LedgerReader
from eagletui.runs import RunFolder, find, is_alive

WEB_PORT: Final = 8_751

ReadOnly = Annotated[bool, typer.Option("--read-only", help="Look, and refuse everything that changes a run.")]
Refresh = Annotated[
    float | None, typer.Option("--refresh", metavar="SECS", min=0.05, help="How often to look; 0.25 s, over SSH 0.5 s.")
]
Ascii = Annotated[bool, typer.Option("--ascii", help="Draw with ASCII only.")]
NoColor = Annotated[bool, typer.Option("--no-color", help="No colours, as with NO_COLOR.")]
NoMouse = Annotated[bool, typer.Option("--no-mouse", help="Leave the mouse to the terminal.")]
Web = Annotated[bool, typer.Option("--web", help="Show the app in a browser of this machine, read-only.")]
Port = Annotated[
    int | None,
    typer.Option("--port", metavar="N", min=0, max=65_535, help=f"With --web: loopback port; {WEB_PORT}, 0: any free."),
]
AllowOrders = Annotated[
    bool, typer.Option("--allow-orders", help="With --web: the page may pause, stop and spend like the app itself.")
]


def open_app(
    read_only: ReadOnly = False,
    refresh: Refresh = None,
    ascii_: Ascii = False,
    no_color: NoColor = False,
    no_mouse: NoMouse = False,
) -> int:
    """Open the app on the list of runs."""
    return show(None, read_only=read_only, refresh_s=refresh, ascii_=ascii_, no_color=no_color, mouse=not no_mouse)


def attach(
    run: Annotated[str | None, typer.Argument(help="Name, folder or ledger of a run; left out: the list.")] = None,
    read_only: ReadOnly = False,
    refresh: Refresh = None,
    ascii_: Ascii = False,
    no_color: NoColor = False,
    no_mouse: NoMouse = False,
    web: Web = False,
    port: Port = None,
    allow_orders: AllowOrders = False,
) -> int:
    """Open the app on a run, in this terminal or in a browser. Closing it leaves the run as it is."""
    folder = None if run is None else find(run)
    if web:
        if allow_orders and read_only:
            raise InputError("--allow-orders and --read-only: choose one; --web is read-only by itself.")
        given = {"--ascii": ascii_, "--no-color": no_color, "--no-mouse": no_mouse}
        options = [name for name, is_given in given.items() if is_given]
        options += [] if refresh is None else [f"--refresh={refresh}"]
        options += [] if allow_orders else ["--read-only"]
        return _show_in_browser(folder, options, WEB_PORT if port is None else port, allow_orders=allow_orders)
    if port is not None or allow_orders:
        raise InputError("--port and --allow-orders go with --web.")
    return show(folder, read_only=read_only, refresh_s=refresh, ascii_=ascii_, no_color=no_color, mouse=not no_mouse)


def _show_in_browser(folder: RunFolder | None, options: list[str], port: int, *, allow_orders: bool) -> int:
    try:
        from eagletui.cli.web_view import WebView, free_port
    except ModuleNotFoundError as error:
        raise InputError(f"--web needs {error.name}: pip install 'eagletui[web]'.") from error
    run = [] if folder is None else [str(folder.path.resolve())]
    view = WebView(["attach", *options, *run], port or free_port(), folder.name if folder else "EagleTUI")

    def started() -> None:
        may = "may give orders" if allow_orders else "read-only"
        print(f"{view.address}   {may}; opens once, in one browser")
        print(f"from another machine: ssh -L {view.port}:127.0.0.1:{view.port} HOST, then the same address there")
        print("Ctrl-C closes the page; runs go on.", flush=True)

    asyncio.run(view.serve(started))
    return 0


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
    app.run(mouse=mouse)
    if app.folder is not None and not in_browser:
        _say(farewell(app.folder))
    return app.return_code or 0


def farewell(folder: RunFolder) -> str:
    """Say that the run goes on, or how it ended, and how to come back."""
    try:
        engine = is_alive(folder, "engine")
        if engine is not None:
            return f"run {folder.name} continues (pid {engine.pid}). eagletui attach {folder.name}"
        with LedgerReader(folder.ledger_path) as reader:
            run = reader.run()
    except EagleError as error:
        return f"run {folder.name}: {error}"
    state = standing(run.state, run.pause_reason, has_engine=False)
    command = "attach" if run.state == "done" else "run"
    return f"run {folder.name} is {state}. eagletui {command} {folder.name}"


def _say(line: str) -> None:
    try:
        print(line, flush=True)
    except OSError:
        # The terminal is gone; what is still buffered for it must not fail once more when the interpreter ends.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            os.dup2(nowhere, stream.fileno())
