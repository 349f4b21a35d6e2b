"""`eagletui doctor`: what of this machine will help or hurt a run."""

import os
import platform
import shutil
import sys
from typing import Annotated, Final

import typer

from eagletui import __version__
from eagletui.cli.checkup import Check
from eagletui.cli.lifetime import lifetime_checks
from eagletui.cli.output import print_json
from eagletui.core.text import clean_line

FAILED: Final = 1
WIDE: Final = 13


def doctor(json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False) -> int:
    """Look at the machine: terminal, clipboard, disk, limits, what would end the workers, packages, GPUs, the key.

    Changes nothing and sends nothing. Exit 1 if runs cannot work here; warnings do not fail.
    """
    checks = examine()
    ok = all(check.ok for check in checks)
    if json_:
        keys = ("name", "ok", "level", "detail", "advice")
        print_json({"ok": ok, "checks": [{key: getattr(check, key) for key in keys} for check in checks]})
        return 0 if ok else FAILED
    marks = {"ok": "ok", "note": "-", "warn": "look", "error": "FAILED"}
    for check in checks:
        print(f"{marks[check.level]:<6}  {check.name:<{WIDE}}  {clean_line(check.detail)}")
        if check.advice and check.level != "ok":
            print(f"{'':<6}  {'':<{WIDE}}  {clean_line(check.advice)}")
    print()
    print(_verdict(checks))
    return 0 if ok else FAILED


def examine() -> list[Check]:
    """Look at everything, in the order in which it matters to a newcomer."""
    import resource

    from eagletui.cli import surroundings
    from eagletui.runs.folder import runs_root

    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    system = f"eagletui {__version__}, Python {platform.python_version()}, {platform.system()} {platform.release()}"
    return [
        Check("version", "ok", system),
        surroundings.terminal_check(os.environ, is_terminal=is_terminal, size=shutil.get_terminal_size()),
        surroundings.clipboard_check(os.environ),
        *surroundings.runs_checks(runs_root()),
        surroundings.files_check(*resource.getrlimit(resource.RLIMIT_NOFILE)),
        *lifetime_checks(os.environ),
        surroundings.processors_check(),
        *surroundings.extras_checks(),
        surroundings.key_check(os.environ),
    ]


def _verdict(checks: list[Check]) -> str:
    failed = [check.name for check in checks if check.level == "error"]
    if failed:
        return f"Runs cannot work here yet: {', '.join(failed)}."
    looked = [check.name for check in checks if check.level == "warn"]
    return f"Runs work here. Worth a look: {', '.join(looked)}." if looked else "Runs work here."
