"""`eagletui audit`: a tokenizer folder against an output format."""

from pathlib import Path
from typing import Annotated

import typer

from eagletui.cli.output import print_json, print_table


def audit(
    tokenizer: Annotated[Path, typer.Option("--tokenizer", help="Tokenizer folder.", metavar="DIR")],
    fmt: Annotated[
        str | None, typer.Option("--format", help="Output format to check, or a .toml file.", metavar="F")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Check every structural string, the end token and the glue, before the first dollar.

    Ends with exit code 1 when a check fails; warnings do not fail the audit.
    """
    from eagletui.tokens.audit import audit as run_audit
    from eagletui.tokens.audit import passed
    from eagletui.tokens.formats import load_format
    from eagletui.tokens.load import load_tokenizer

    checks = run_audit(load_tokenizer(tokenizer), load_format(fmt) if fmt is not None else None)
    ok = passed(checks)
    if json_:
        print_json(
            {
                "ok": ok,
                "checks": [
                    {
                        "name": check.name,
                        "ok": check.ok,
                        "level": check.level,
                        "detail": check.detail,
                        "ids": list(check.ids),
                    }
                    for check in checks
                ],
            }
        )
    else:
        rows = [("ok" if check.ok else check.level.upper(), check.name, check.detail) for check in checks]
        print_table(("", "check", "what was found"), rows)
        print(f"\n{'The audit holds.' if ok else 'The audit fails: do not spend money with this format.'}")
        if fmt is None:
            print("Only the tokenizer was checked: give --format, as `eagletui formats` lists them.")
    return 0 if ok else 1
