"""`eagletui ctl`: orders to a run. They are rows in the ledger; the engine applies them within a quarter second."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final, get_args

import typer

from eagletui.cli.output import print_json
from eagletui.core.errors import InputError, RunError
from eagletui.core.hints import for_run
from eagletui.core.lifecycle import FINISHED_RUNS
from eagletui.core.moments import read_moment
from eagletui.core.money import usd_to_pico
from eagletui.core.text import clean_line
from eagletui.ledger import commands
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.rows import Verb
from eagletui.ledger.without_engine import Applied, apply_without_engine, unknown_endpoint
from eagletui.prompts.fields import one_of
from eagletui.runs.find import find
from eagletui.runs.folder import RunFolder
from eagletui.runs.workers import is_alive, job_at_work

APPLY_TIMEOUT_S: Final = 10.0
VERBS: Final[tuple[Verb, ...]] = get_args(Verb)


def ctl(
    run: Annotated[str, typer.Argument(help="A run's name, folder or ledger.", metavar="RUN")],
    verb: Annotated[
        str,
        typer.Argument(
            help="pause | resume | stop | cap USD | stop-at USD | in-flight N | retry [SAMPLE...] | "
            "quarantine ENDPOINT | release ENDPOINT",
            metavar="VERB",
        ),
    ],
    values: Annotated[list[str] | None, typer.Argument(help="What the verb needs.", metavar="[VALUE]...")] = None,
    now: Annotated[bool, typer.Option("--now", help="pause: break off what is in flight instead of waiting.")] = False,
    since: Annotated[
        str | None, typer.Option("--since", help="quarantine: from this time on, as 2026-01-31T18:00 or 18:00.")
    ] = None,
    suspect: Annotated[
        bool, typer.Option("--suspect", help="retry: buy again what a quarantine has set aside.")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Steer a run: pause, resume, stop, change its cap, stop-at and pace, retry samples, quarantine endpoints."""
    folder = find(run)
    known = next((name for name in VERBS if name == verb), None)
    if known is None:
        raise InputError(f"No verb is called {clean_line(verb, 40)}; expected {one_of(VERBS)}.")
    args = arguments(known, values or [], now=now, since=since, suspect=suspect)
    refuse_unknown(folder, known, args)
    applied = order(folder, known, args)
    if json_:
        print_json({"run": folder.name, "verb": known, "changed": applied.changed, "result": applied.result})
    else:
        print(clean_line(applied.result))
    return 0


def arguments(
    verb: Verb, values: Sequence[str], *, now: bool = False, since: str | None = None, suspect: bool = False
) -> dict[str, Any]:
    """Check what a verb was given and return the order's arguments.

    Raises:
        InputError: too many, too few or unusable values.
    """
    if now and verb != "pause":
        raise InputError("--now goes with pause only.")
    if since is not None and verb != "quarantine":
        raise InputError("--since goes with quarantine only.")
    if suspect and (verb != "retry" or values):
        raise InputError("--suspect goes with retry only, and without samples.")
    match verb:
        case "pause" | "resume" | "stop":
            _exactly(verb, values, 0, "no value")
            return {"now": now} if verb == "pause" else {}
        case "cap" | "stop-at":
            _exactly(verb, values, 1, "one amount in dollars, such as 12.50")
            return {"usd": _usd(verb, values[0])}
        case "in-flight":
            _exactly(verb, values, 1, "one number")
            if not values[0].isdecimal() or not 1 <= int(values[0]) <= 20_000:
                raise InputError(f"in-flight: found {clean_line(values[0], 40)}, expected a number from 1 to 20000.")
            return {"n": int(values[0])}
        case "retry":
            return {"samples": list(values), "suspect": suspect}
        case "quarantine":
            _exactly(verb, values, 1, "one endpoint")
            return {"endpoint": values[0], "since": None if since is None else _time(since)}
        case "release":
            _exactly(verb, values, 1, "one endpoint")
            return {"endpoint": values[0]}


def refuse_unknown(folder: RunFolder, verb: Verb, args: Mapping[str, Any]) -> None:
    """Refuse an endpoint or a sample that the run does not have.

    Raises:
        InputError: it names those there are, or where to see them.
    """
    if verb not in ("quarantine", "release", "retry"):
        return
    with LedgerReader(folder.ledger_path) as reader:
        if "endpoint" in args:
            tags = [row.tag for row in reader.endpoints()]
            if args["endpoint"] not in tags:
                raise InputError(f"{verb}: {unknown_endpoint(args['endpoint'], tags)}")
        for key in args.get("samples", ()):
            if reader.sample(key) is None:
                raise InputError(
                    f"retry: run {folder.name} has no sample {clean_line(key, 60)}; nothing was queued. "
                    f"Its samples: eagletui attach {folder.argument}"
                )


def order(folder: RunFolder, verb: Verb, args: Mapping[str, Any]) -> Applied:
    """Have an order carried out: by the engine, or here if there is none and the ledger alone is concerned.

    Raises:
        RunError: nobody could apply it (exit 1).
    """
    job = job_at_work(folder)
    if job is not None:
        raise UnappliedError(f"Run {folder.name} takes no orders now: {job}")
    if is_alive(folder, "engine") is None:
        applied = apply_without_engine(folder.ledger_path, verb, args, "ctl")
        if applied is not None:
            return applied._replace(result=for_run(applied.result, folder.argument))
    if is_alive(folder, "engine") is None:
        raise UnappliedError(_nobody(folder, verb))
    number = commands.issue(folder.ledger_path, verb, args)
    row = commands.wait_applied(folder.ledger_path, number, APPLY_TIMEOUT_S)
    if row is None:
        raise UnappliedError(
            f"The engine of run {folder.name} did not apply {verb} within {APPLY_TIMEOUT_S:.0f} s; "
            "it will when it answers again."
        )
    return Applied(bool(row.changed), for_run(row.result or "", folder.argument))


def _nobody(folder: RunFolder, verb: Verb) -> str:
    """Say why an order has nobody to carry it out, and what would do what was meant."""
    with LedgerReader(folder.ledger_path) as reader:
        state = reader.run().state
    if state == "done" or (state in FINISHED_RUNS and verb != "resume"):
        return f"Run {folder.name} is {state}: there is nothing to {verb}."
    if state in FINISHED_RUNS:
        return f"Run {folder.name} is {state}. Go on with: eagletui run {folder.argument}"
    return f"No engine of run {folder.name} is alive to {verb}. Start it with: eagletui run {folder.argument}"


class UnappliedError(RunError):
    """No worker could apply an order."""

    exit_code = 1


def _exactly(verb: str, values: Sequence[str], number: int, expected: str) -> None:
    if len(values) != number:
        found = clean_line(" ".join(values), 60) or "nothing"
        raise InputError(f"{verb}: found {found}, expected {expected}.")


def _usd(verb: str, text: str) -> str:
    amount = text.removeprefix("$")
    try:
        pico = usd_to_pico(amount)
    except ValueError as error:
        raise InputError(f"{verb}: {clean_line(str(error), 200)}.") from error
    if pico < 0:
        raise InputError(f"{verb}: found {clean_line(text, 40)}, expected an amount of zero or more.")
    return amount


def _time(text: str) -> float:
    """Read a local time, or a clock time of today, as Unix seconds."""
    try:
        return read_moment(text, datetime.now().astimezone().date())
    except ValueError as error:
        raise InputError(f"--since: found {clean_line(text, 40)}, expected 2026-01-31T18:00 or 18:00.") from error
