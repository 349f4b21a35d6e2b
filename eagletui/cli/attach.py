"""`eagletui` and `eagletui attach`: open the app on a run, or on the list of runs."""

import asyncio
from typing import Annotated, Final

import typer

from eagletui.cli.opening import show
from eagletui.core.errors import InputError
from eagletui.runs.find import find
from eagletui.runs.folder import RunFolder

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
