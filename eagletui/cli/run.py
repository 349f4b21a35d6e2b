"""`eagletui run`: start a run or go on with one."""

import os
from decimal import Decimal
from typing import Annotated

import typer

from eagletui.cli.attach import Ascii, NoMouse
from eagletui.cli.create import check_config, create_run, existing, given_run, read_config, take_up
from eagletui.cli.ctl import arguments, order
from eagletui.cli.follow import DONE, has_work, outcome
from eagletui.cli.key_check import require_key
from eagletui.cli.lifetime import lifetime_checks
from eagletui.cli.output import counted, on_terminal, say, short_path
from eagletui.cli.unasked import to_make_anew
from eagletui.cli.workers import open_screens, work
from eagletui.config.run_config import RunConfig, load_config
from eagletui.config.sections import RUN_NAME
from eagletui.core.errors import InputError, LockedError
from eagletui.core.lifecycle import FINISHED_RUNS
from eagletui.core.money import format_usd, pico_to_usd_string, usd_to_pico
from eagletui.core.run_parts import RunPart
from eagletui.core.text import clean_line
from eagletui.ingest.census import Census
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.rows import Verb
from eagletui.runs.claims import Claim
from eagletui.runs.folder import RunFolder
from eagletui.runs.making import BeingMadeError, await_made
from eagletui.runs.merged import refuse_merged
from eagletui.runs.workers import job_at_work


def run(
    config: Annotated[str, typer.Argument(help="A TOML config, or the name of a run to go on with.", metavar="CONFIG")],
    name: Annotated[str | None, typer.Option("--name", help="Name of the run; left out: [run] name.")] = None,
    headless: Annotated[bool, typer.Option("--headless", help="Print progress lines instead of the app.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Start the workers and return.")] = False,
    cap: Annotated[
        str | None, typer.Option("--cap", metavar="USD", help="Never committed beyond, worst case included.")
    ] = None,
    stop_at: Annotated[
        str | None,
        typer.Option(
            "--stop-at", metavar="USD", help="Ask nothing more once this much is settled; requests under way still end."
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="At most N samples.")] = None,
    part: Annotated[
        str | None,
        typer.Option("--part", metavar="I/N", help="Ask the prompts of part I of N, with its share of both limits."),
    ] = None,
    unlimited_key: Annotated[
        bool, typer.Option("--unlimited-key", help="Allow a key without a limit of its own behind the cap.")
    ] = False,
    ascii_: Ascii = False,
    no_mouse: NoMouse = False,
) -> int:
    """Start a run, or go on with an existing one of the same name.

    On a terminal the app opens; the workers go on when it is closed. Elsewhere, and with --headless, progress lines
    are printed until the run ends: exit 0 done, 1 failed samples, 3 paused, 130 interrupted.

    With --part every machine runs the same config with a number of its own, and --cap and --stop-at are those of the
    whole. Use a provider key of its own for each; join the parts with: eagletui merge
    """
    if headless and detach:
        raise InputError("--headless follows the run and --detach leaves it: choose one.")
    written, folder = read_config(config), given_run(config)
    if folder is not None and name in (folder.name, written.run.name):
        name = None
    chosen = with_options(written, name=name, limit=limit, part=part, unlimited_key=unlimited_key)
    if chosen.run.part is not None:
        chosen, cap, stop_at = with_limits(chosen, cap=cap, stop_at=stop_at), None, None
    if folder is None or chosen.run.name != written.run.name:
        folder = existing(chosen.run.name)
    _check_key(chosen, folder, cap)
    screens = not headless and not detach and on_terminal()
    follows = not screens and not detach
    with Claim() as claim:
        folder = prepare(chosen, folder, claim, cap=cap, stop_at=stop_at)
        with LedgerReader(folder.ledger_path) as reader:
            snapshot = reader.snapshot()
        if not screens and not has_work(chosen, snapshot):
            say(f"Run {folder.name} is {snapshot.run.state}: nothing is left to do.")
            return outcome(folder, chosen, snapshot)
        code = work(folder, chosen, claim, exit_when_paused=follows, follows=follows)
    if code is None and detach:
        say(f"Run {folder.name} is under way. Look at it with: eagletui attach {folder.argument}")
        for check in lifetime_checks(os.environ):
            if check.level != "ok":
                say(f"note: {check.detail}; {check.advice}")
        return 0
    if code is None:
        return open_screens(folder, ascii_=ascii_, mouse=not no_mouse)
    if code == DONE:
        named = folder.argument
        say(f"Look: eagletui attach {named}    write data: eagletui export {named} --to jsonl --out DIR")
    return code


def _check_key(config: RunConfig, folder: RunFolder | None, cap: str | None) -> None:
    if config.provider.kind != "openrouter":
        return
    spent_pico = 0
    if folder is None:
        check_config(config)  # what is wrong on this machine is told before anything is asked elsewhere
    else:
        with LedgerReader(folder.ledger_path) as reader:
            spent_pico = reader.books().spent_pico
        config = with_present_cap(config, folder)
    for sentence in require_key(with_limits(config, cap=cap, stop_at=None), spent_pico, is_new=folder is None):
        say(f"note: {sentence}")


def with_options(
    config: RunConfig,
    *,
    name: str | None = None,
    limit: int | None = None,
    part: str | None = None,
    unlimited_key: bool = False,
) -> RunConfig:
    """Return the config with what the command line says instead."""
    if part is not None:
        config = _with_part(config, part, named=name is not None)
    if name is not None:
        if not RUN_NAME.fullmatch(name):
            raise InputError(
                f"--name: found {clean_line(name, 60)}, expected letters, digits, dots, dashes, underscores."
            )
        config = config.model_copy(update={"run": config.run.model_copy(update={"name": name})})
    if unlimited_key:
        config = config.model_copy(update={"spend": config.spend.model_copy(update={"unlimited_key": True})})
    if limit is not None:
        config = config.model_copy(update={"prompts": config.prompts.model_copy(update={"limit": limit})})
    return config


def _with_part(config: RunConfig, text: str, *, named: bool) -> RunConfig:
    """Make the config that of a part, with a name that says so unless one is given or it is that part already."""
    try:
        part = RunPart.parse(text)
    except ValueError as error:
        raise InputError(f"--part: found {clean_line(text, 60)}, expected {error}.") from error
    name = config.run.name
    if not named and config.run.part is None:
        name = f"{name}-part-{part.number}-of-{part.of}"
    return config.model_copy(update={"run": config.run.model_copy(update={"name": name, "part": str(part)})})


def with_limits(config: RunConfig, *, cap: str | None, stop_at: str | None) -> RunConfig:
    """Return the config with other limits of the whole run."""
    limits: tuple[tuple[Verb, str, str | None], ...] = (("stop-at", "stop_at_usd", stop_at), ("cap", "cap_usd", cap))
    given = {key: Decimal(arguments(verb, [text])["usd"]) for verb, key, text in limits if text is not None}
    return config.model_copy(update={"spend": config.spend.model_copy(update=given)})


def with_present_cap(config: RunConfig, folder: RunFolder) -> RunConfig:
    """Return the config with the cap that the existing run will go on under: orders change the ledger's alone, and a
    config gives another only where it was edited since."""
    if config.spend.cap_usd != load_config(folder.config_path).spend.cap_usd:
        return config
    with LedgerReader(folder.ledger_path) as reader:
        return with_limits(config, cap=pico_to_usd_string(reader.books().cap_pico), stop_at=None)


def prepare(
    config: RunConfig, folder: RunFolder | None, claim: Claim, *, cap: str | None = None, stop_at: str | None = None
) -> RunFolder:
    """Make the run, or take up the existing one, and apply the money options.

    Args:
        config: what the run is to be.
        folder: the existing run; None to make one.
        claim: taken on the run, to be held until its engine works.
        cap: dollars, over the config's.
        stop_at: the same.

    Raises:
        EagleError: something the person gave is wrong; a new run is then not made.
    """
    limits: tuple[tuple[Verb, str | None], ...] = (("stop-at", stop_at), ("cap", cap))
    orders = [(verb, arguments(verb, [text])) for verb, text in limits if text is not None]
    if folder is None:
        folder = _make(config, claim)
    else:
        _go_on(folder, config, claim)
    for verb, args in orders:
        say(order(folder, verb, args).result)
    return folder


def _make(config: RunConfig, claim: Claim, *, replaces: bool = False) -> RunFolder:
    """Make the run, in the place of the one of its name or not, or join another command that makes the same one."""
    while True:
        try:
            folder, made = create_run(config, claim, replaces=replaces)
        except BeingMadeError as error:
            say(f"{error} This command joins it.")
            if (joined := await_made(config.run.name)) is not None:
                _go_on(joined, config, claim, joins=True)
                return joined
            replaces = False
        else:
            _say_made(folder, config, made)
            return folder


def _say_made(folder: RunFolder, config: RunConfig, made: Census) -> None:
    per_dataset = ", ".join(f"{number:,} {name}" for name, number in made.by_dataset.items())
    say(f"Run {folder.name}: {counted(made.samples_here, 'sample')} ({per_dataset}) in {short_path(folder.path)}")
    if config.run.part is not None:
        _say_share(folder, config, made)
    for sentence in made.sentences():
        say(sentence)


def _go_on(folder: RunFolder, config: RunConfig, claim: Claim, *, joins: bool = False) -> None:
    """Take up the run, or make it anew; one that another command has just made is never made anew."""
    refuse_merged(folder)
    job = job_at_work(folder)
    if job is not None:
        raise LockedError(f"Run {folder.name} cannot go on now: {job}")
    config.secret()
    if not joins and (fields := to_make_anew(folder, config)):
        say(f"Run {folder.name} never asked anything; it is made anew with other {', '.join(fields)}.")
        _make(config, claim, replaces=True)
        return
    claim.take(folder)
    for sentence in take_up(folder, config):
        say(sentence)
    _say_how_far(folder)


def _say_share(folder: RunFolder, config: RunConfig, whole: Census) -> None:
    with LedgerReader(folder.ledger_path) as reader:
        money = reader.books()
    say(
        f"It is part {config.run.part} of {counted(whole.samples, 'sample')}; its share: stop-at "
        f"{format_usd(money.stop_at_pico)} of {format_usd(usd_to_pico(config.spend.stop_at_usd))}, cap "
        f"{format_usd(money.cap_pico)} of {format_usd(usd_to_pico(config.spend.cap_usd))}. "
        "Every part needs a provider key of its own."
    )


def _say_how_far(folder: RunFolder) -> None:
    with LedgerReader(folder.ledger_path) as reader:
        snapshot = reader.snapshot()
    if snapshot.run.state not in FINISHED_RUNS:
        of = counted(snapshot.samples, "sample")
        say(f"Run {folder.name} exists and goes on: {snapshot.answered:,} of {of} answered.")
