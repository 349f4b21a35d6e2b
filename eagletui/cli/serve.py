"""`eagletui serve`: the embedded provider in the foreground."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer


def serve(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Loopback port; 0 picks a free one.")] = 8750,
    script: Annotated[Path | None, typer.Option(help="A TOML fault script; see configs/faults.toml.")] = None,
    backend: Annotated[
        Literal["model", "replay"], typer.Option(help="A real SmolLM2-135M, or answers recorded from it.")
    ] = "model",
    books: Annotated[Path | None, typer.Option(help="File of the provider's books; left out: in memory.")] = None,
    key_limit: Annotated[str | None, typer.Option(metavar="USD", help="What the key may spend.")] = None,
    credits_: Annotated[
        str | None, typer.Option("--credits", metavar="USD", help="What the account has bought; left out: enough.")
    ] = None,
    latency_s: Annotated[float, typer.Option(min=0, help="Replay: seconds before the first token.")] = 0.05,
    tokens_per_s: Annotated[float | None, typer.Option(min=0.001, help="Replay: pace; left out: all at once.")] = None,
    slots: Annotated[int, typer.Option(min=1, help="Model: answers computed at a time.")] = 8,
    threads: Annotated[int, typer.Option(min=1, help="Model: CPU threads.")] = 1,
    kinds: Annotated[bool, typer.Option("--kinds", help="List the fault kinds of a script, and end.")] = False,
) -> None:
    """Serve an OpenRouter-shaped API on loopback, with books of its own.

    Ctrl-C or SIGTERM finishes what is in flight; a second one stops now.
    """
    if kinds:
        print_kinds()
        return
    import asyncio
    import logging
    import signal
    import sys

    from eagletui.core.errors import InputError
    from eagletui.core.money import usd_to_pico
    from eagletui.embedded.server import RunningServer, ServeOptions, banner, serve_until_signalled

    amounts: dict[str, int | None] = {}
    for option, given in (("--key-limit", key_limit), ("--credits", credits_)):
        try:
            amounts[option] = None if given is None else usd_to_pico(given)
        except ValueError as error:
            raise InputError(f"{option}: {error}") from error
    options = ServeOptions(
        backend=backend,
        port=port,
        books=books,
        faults=script,
        key_limit_pico=amounts["--key-limit"],
        bought_pico=amounts["--credits"],
        latency_s=latency_s,
        tokens_per_s=tokens_per_s,
        slots=slots,
        threads=threads,
    )
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")

    def on_ready(server: RunningServer) -> None:
        print(banner(options, server), flush=True)

    asyncio.run(serve_until_signalled(options, on_ready, (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)))


def print_kinds() -> None:
    """List every fault kind with what it does and its parameters' defaults."""
    from eagletui.embedded.fault_kinds import kind_rows

    for row in kind_rows():
        print(row.name)
        print(f"    {row.does}")
        if row.params:
            written = ", ".join(f"{name} = {_toml(value)}" for name, value in row.params.items())
            print(f"    params = {{ {written} }}")


def _toml(value: object) -> str:
    if value is None:
        return "..."
    return str(value).lower() if isinstance(value, bool) else json.dumps(value)
