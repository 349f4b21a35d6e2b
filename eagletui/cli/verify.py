"""`eagletui verify`: check features, or a folder exported for a trainer, against their model, and files of ids."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eagletui.cli.output import counted, print_json, print_table, say
from eagletui.core.errors import InputError, LedgerError
from eagletui.core.text import clean_line
from eagletui.ledger.verification import record_verification

if TYPE_CHECKING:
    from eagletui.core.checks import Verdict
    from eagletui.export.token_manifest import TokenManifest

FAILED = 1


def verify(
    folder: Annotated[
        Path, typer.Argument(help="A features folder, the folder of a run, or an export.", metavar="DIR")
    ],
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            metavar="PATH",
            help="Target model: a folder of safetensors or a .gguf file. Files of ids need none; with one, its "
            "vocabulary and positions are looked at.",
        ),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(
            "--samples",
            metavar="N",
            min=1,
            help="Run a fresh forward over N samples, not one of each file and of 500.",
        ),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Check features: sizes, hashes, ids, finite values, zero rows, and the streams against a fresh forward.

    Finds a wrong norm, layers one off, changed ids, cut files, zeroed states and, in a folder exported for SpecForge or
    speculators, a stale draft vocabulary; in files of ids (jsonl, parquet, torchspec), rows that are cut, changed,
    moved or stale. Exit 1 if a check does not hold.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; expected a features folder.")
    from eagletui.export.token_manifest import find_token_manifest
    from eagletui.export.trainer_folder import find_trainer_manifest

    of_ids = find_token_manifest(folder)
    if of_ids is not None:
        if samples is not None:
            raise InputError("--samples does not go with files of ids: all rows are looked at, and no forward is run.")
        return _verify_tokens(folder, of_ids, model, json_)
    if model is None:
        raise InputError("--model: found nothing, expected the target model: these features are held to it.")
    from eagletui.extract import verify as checking

    exported = find_trainer_manifest(folder)
    unit = "shard" if exported is None else "row"

    def on_step(done: int, total: int) -> None:
        if sys.stderr.isatty():
            print(f"\rread {done} of {counted(total, unit)}", end="", file=sys.stderr, flush=True)

    if exported is None:
        features = checking.features_folder(folder)
        run = checking.run_of(features)
        verdict = checking.verify(features, model, compared=samples, on_shard=on_step)
        if verdict.looked_at and run is not None:
            _record(run.ledger_path, verdict)
    else:
        from eagletui.export.check import verify_export

        verdict = verify_export(folder, exported, model, compared=samples, on_row=on_step)
    _print(verdict, "shard" if exported is None else "file", "these features must not be trained on.", json_)
    return 0 if verdict.ok else FAILED


def _verify_tokens(folder: Path, manifest: "TokenManifest", model: Path | None, json_: bool) -> int:
    from eagletui.export.token_check import verify_tokens

    def on_row(done: int, total: int) -> None:
        if sys.stderr.isatty() and (done % 100 == 0 or done == total):
            print(f"\rread {done} of {counted(total, 'row')}", end="", file=sys.stderr, flush=True)

    verdict = verify_tokens(folder, manifest, model, on_row=on_row)
    _print(verdict, "file", "these rows must not be trained on.", json_)
    return 0 if verdict.ok else FAILED


def _print(verdict: "Verdict", unit: str, warning: str, json_: bool) -> None:
    if sys.stderr.isatty():
        say("")
    if json_:
        print_json(
            {
                "ok": verdict.ok,
                "samples": verdict.samples,
                "rows": verdict.rows,
                "shards": verdict.shards,
                "compared": verdict.compared,
                "checks": [
                    {"name": check.name, "ok": check.ok, "level": check.level, "detail": check.detail}
                    for check in verdict.checks
                ],
            }
        )
        return
    words = {(True, "error"): "ok", (True, "warn"): "ok", (False, "error"): "FAILED", (False, "warn"): "look"}
    rows = [(check.name, words[check.ok, check.level], clean_line(check.detail)) for check in verdict.checks]
    print_table(("check", "result", "detail"), rows)
    print(f"{counted(verdict.samples, 'sample')} in {counted(verdict.shards, unit)}: ", end="")
    looks = " and ".join(verdict.to_look_at)
    holds = f"nothing is wrong, but {looks} should be looked at." if looks else "everything holds."
    print(holds if verdict.ok else warning)


def _record(ledger: Path, verdict: "Verdict") -> None:
    failed = [
        f"{check.name}: {clean_line(check.detail, 200)}"
        for check in verdict.checks
        if not check.ok and check.level == "error"
    ]
    try:
        record_verification(
            ledger, verdict.looked_at, "; ".join(failed), verdict.samples, to_look_at=verdict.to_look_at
        )
    except LedgerError as error:
        say(f"The ledger does not keep this result: {error}")
