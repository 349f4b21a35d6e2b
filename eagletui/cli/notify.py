"""`eagletui notify --test`: send a notice to see that it arrives."""

import time
from pathlib import Path
from typing import Annotated

import typer

from eagletui.cli.create import read_config
from eagletui.cli.output import print_json
from eagletui.config.run_config import RunConfig
from eagletui.core.errors import InputError
from eagletui.core.notices import Look, Notice
from eagletui.notify.sending import Sent, send, webhook_url
from eagletui.runs.find import list_runs

NOT_SENT = 1


def notify(
    target: Annotated[
        str | None, typer.Argument(help="A run or a config; left out: the latest run.", metavar="[RUN|CONFIG]")
    ] = None,
    test: Annotated[bool, typer.Option("--test", help="Send a test notice.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Send a test notice by the command and the webhook of [notify]; exit 1 if one did not take it.

    Runs with [notify] tell of pauses, findings, 80 % of stop-at, their end and a dead engine. A watcher process that
    starts with the engine sends these, so that they come when the app is closed and when the engine is dead.
    """
    if not test:
        raise InputError("notify does one thing: --test sends a test notice.")
    config = read_config(target if target is not None else _latest())
    results = send_test(config)
    if json_:
        print_json({"run": config.run.name, "sent": [{"way": s.way, "ok": s.ok, "detail": s.detail} for s in results]})
    else:
        for result in results:
            print(f"{result.way}: {'sent' if result.ok else 'NOT sent'}, {result.detail}")
    return 0 if all(result.ok for result in results) else NOT_SENT


def send_test(config: RunConfig) -> list[Sent]:
    """Send the test notice of a config.

    Raises:
        InputError: it names no way to send.
    """
    section = config.notify
    if section.webhook_env is not None and webhook_url(section) is None:
        raise InputError(f"[notify] webhook_env: the environment variable {section.webhook_env} is not set.")
    if not section.command and webhook_url(section) is None:
        raise InputError(
            f"The config of {config.run.name} has no way to notify: set command, webhook or webhook_env in [notify]."
        )
    words = f"This is a test. Real ones come on: {', '.join(section.on) or 'nothing, because on is empty'}."
    look = Look(name=config.run.name, argument=config.run.name, state="new", has_engine=False)
    return send(Notice("done", f"{config.run.name}: test notice", words), look, config, time.time())


def _latest() -> str:
    runs = sorted(list_runs(), key=lambda folder: _changed_at(folder.ledger_path))
    if not runs:
        raise InputError("There is no run yet: name a config, as in `eagletui notify --test my.toml`.")
    return runs[-1].name


def _changed_at(path: Path) -> float:
    return path.stat().st_mtime
