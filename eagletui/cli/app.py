"""The command line: a table of commands, each in a module of its own that is imported only when its command runs."""

import contextlib
import errno
import functools
import io
import itertools
import keyword
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple, NoReturn

from eagletui import __version__
from eagletui.core.errors import EagleError, InputError
from eagletui.core.text import clean_block, clean_line

INTERRUPTED: Final = 130


class Command(NamedTuple):
    """One line of the table."""

    name: str
    module: str
    """Under `eagletui.cli`; its function has the command's name, with an underscore where that is a keyword."""
    summary: str


GROUPS: Final[dict[str, tuple[Command, ...]]] = {
    "Run": (
        Command("demo", "demo", "the whole job on a small real model, no key and no network"),
        Command("plan", "plan", "samples, tokens, money and disk of a config, before the first dollar"),
        Command("run", "run", "start or resume a run"),
        Command("attach", "attach", "open the app on a run"),
        Command("ls", "ls", "list the runs"),
        Command("status", "status", "the figures of a run"),
        Command("report", "report", "a run as one page to share: plots, tables, verdicts and findings"),
        Command("ctl", "ctl", "pause, resume, stop a run; change its cap, stop-at and pace; retry samples"),
        Command("add", "add", "more prompts for a run, also while it works"),
        Command("import", "import_ids", "answers whose ids your own server recorded, for $0"),
        Command("merge", "merge", "join runs that were bought apart, such as run --part, into one"),
        Command("inspect", "inspect", "the samples worth a look; one sample: its text, ids, spans, tail and reply"),
    ),
    "Ids": (
        Command("reconstruct", "reconstruct", "rebuild exact ids from recorded API replies"),
        Command("arbitrate", "arbitrate", "let the target model decide between cuts that are not proved"),
        Command("validate", "validate", "compare recorded ids with what text alone would give"),
        Command("rebuild", "rebuild", "a run's ids again from its stored replies, for $0"),
        Command("accept", "accept", "sign a verdict on a data set whose mismatched samples are known"),
        Command("audit", "audit", "check a tokenizer folder against an output format"),
        Command("formats", "formats", "list the output formats and how each is proved"),
    ),
    "Features and data": (
        Command("extract", "extract", "hidden states of the target model over exact ids"),
        Command("verify", "verify", "check a features folder against its model"),
        Command("export", "export", "write training data"),
    ),
    "Tools": (
        Command("doctor", "doctor", "this machine: terminal, disk, limits, what would end a run, packages, the key"),
        Command("notify", "notify", "send a test notice by the command and webhook of a config"),
        Command("serve", "serve", "an OpenRouter-shaped server on loopback, with a real model or recorded replies"),
    ),
}
COMMANDS: Final = {command.name: command for group in GROUPS.values() for command in group}


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit with its code.

    Args:
        argv: the arguments after the program's name; None takes `sys.argv`.
    """
    if sys.stdout is None:  # started with >&-, where the next file that is opened would be taken for it
        sys.stdout = _Closed()
    try:
        code = _run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of a pipe has gone (`| head`).
        _forget_output()
        code = 1
    except OSError as error:
        code = _say_os_error(error)
        _forget_output()
    except KeyboardInterrupt:
        code = INTERRUPTED
    raise SystemExit(code)


class _Closed(io.TextIOBase):
    """A standard output that is not there: writing to it fails, as it does elsewhere, and keeps its descriptor."""

    def __init__(self) -> None:
        with contextlib.suppress(OSError):
            os.fstat(1)
            return
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)

    def write(self, text: str, /) -> int:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    def fileno(self) -> int:
        return 1


def _forget_output() -> None:
    """Give Python's exit something that it can flush to."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say_os_error(error: OSError) -> int:
    """Say in one line what the operating system refused, and return the exit code."""
    print(f"eagletui: {_os_error(error)}", file=sys.stderr)
    return InputError.exit_code


def _os_error(error: OSError) -> str:
    name = error.filename
    what = "output" if name is None else os.fsdecode(name) if isinstance(name, bytes) else str(name)
    return f"{clean_line(what)}: {error.strerror}"


def _print_json_error(text: str) -> None:
    """Print the one JSON object of a command that failed, unless it is the output that cannot be written."""
    from eagletui.cli.output import print_json

    try:
        print_json({"ok": False, "error": text})
        sys.stdout.flush()
    except OSError:
        _forget_output()


def _run(args: list[str]) -> int:
    if args and args[0] in ("--help", "-h", "help"):
        print(help_text())
        return 0
    if args and args[0] == "--version":
        print(__version__)
        return 0
    if not args or (args[0] == "attach" and len(args) == 2 and not args[1].startswith("-")):
        return _open(args[1] if args else None)
    if not args or args[0].startswith("-"):
        return _dispatch("eagletui", "open_app", _load("attach", "open_app"), args)
    command = COMMANDS.get(args[0])
    if command is None:
        import difflib

        near = difflib.get_close_matches(args[0], COMMANDS, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        error = InputError(f"No command is called {clean_line(args[0], 40)}.{hint} See: eagletui --help")
        if _wants_json(args):
            _print_json_error(str(error))
        _fail(error)
    return _dispatch(f"eagletui {command.name}", command.name, _load(command.module, command.name), args[1:])


def _open(run: str | None) -> int:
    """Open the app without options; the parser would cost a fifth of the time to the first screen."""
    from eagletui.cli.opening import show
    from eagletui.runs.find import find

    def opened() -> int:
        return show(None if run is None else find(run))

    try:
        _ending(opened)()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 2
    return 0


def help_text() -> str:
    """Return what `eagletui --help` prints."""
    lines = [
        "Usage: eagletui [COMMAND] [OPTIONS]",
        "",
        "Buy EAGLE-3 training data from an API and know, sample by sample, whether the token ids are right,",
        "for at most the money you said. Without a command: open the app.",
    ]
    for title, commands in GROUPS.items():
        lines += ["", f"{title}:", *(f"  {command.name:<12} {command.summary}" for command in commands)]
    lines += [
        "",
        "eagletui COMMAND --help tells a command's options. Runs live in ./runs, or where EAGLETUI_RUNS says.",
        "Exit codes: 0 done, 1 failed samples or a check that did not hold, 2 bad usage or input, 3 paused,",
        "130 interrupted.",
    ]
    return "\n".join(lines)


def _load(module: str, function: str) -> Callable[..., int | None]:
    name = f"{function}_" if keyword.iskeyword(function) else function
    loaded: Callable[..., int | None] = getattr(import_module(f"eagletui.cli.{module}"), name)
    return loaded


def _dispatch(program: str, name: str, function: Callable[..., int | None], args: list[str]) -> int:
    """Parse the arguments of one command, run it and return its exit code."""
    import typer

    given: list[dict[str, Any]] = []
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    # A verb's value may begin with a dash: `ctl RUN cap -1` is an amount, and said to be a wrong one.
    settings = {"help_option_names": ["--help", "-h"], "ignore_unknown_options": name == "ctl"}
    app.command(name, context_settings=settings)(functools.wraps(function)(lambda **options: given.append(options)))
    said = io.StringIO()
    code: object = None
    try:
        with contextlib.redirect_stderr(said):
            app(args=args, prog_name=program)
    except SystemExit as end:
        code = end.code
    try:
        if given:
            _ending(function)(**given[0])
        if code:
            _fail_usage(said.getvalue(), args)
    except SystemExit as end:
        code = end.code
    return code if isinstance(code, int) else 0 if code is None else 2


def _fail_usage(said: str, args: Sequence[str]) -> NoReturn:
    """Say what is wrong with the arguments of a command, whose parser said it in words of its own."""
    if _wants_json(args):
        _print_json_error(clean_block(said.rpartition("Error: ")[2].strip()))
    print(said.rstrip(), file=sys.stderr)
    raise SystemExit(InputError.exit_code)


def _wants_json(args: Sequence[str]) -> bool:
    return "--json" in itertools.takewhile(lambda arg: arg != "--", args)


def _ending(function: Callable[..., int | None]) -> Callable[..., None]:
    """Turn a command's return value and its errors into an exit code."""

    @functools.wraps(function)
    def command(*args: Any, **kwargs: Any) -> None:
        try:
            code = function(*args, **kwargs)
        except EagleError as error:
            if kwargs.get("json_"):
                _print_json_error(clean_block(str(error)))
            _fail(error)
        except KeyboardInterrupt:
            raise SystemExit(INTERRUPTED) from None
        except OSError as error:
            if error.strerror is None or isinstance(error, BrokenPipeError):
                raise
            if kwargs.get("json_"):
                _print_json_error(_os_error(error))
            raise SystemExit(_say_os_error(error)) from error
        raise SystemExit(code or 0)

    return command


def _fail(error: EagleError) -> NoReturn:
    print(f"eagletui: {clean_block(str(error))}", file=sys.stderr)
    raise SystemExit(error.exit_code)
