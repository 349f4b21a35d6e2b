"""`eagletui export`: write training data of a run."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from eagletui.cli.export_files import listed, print_commands, to_file, to_torchspec
from eagletui.cli.loader_lines import by_text_line, effect_line, effect_object
from eagletui.cli.output import bytes_text, counted, print_json, print_pairs
from eagletui.cli.steps import steps
from eagletui.core.errors import InputError
from eagletui.core.loaders import LoaderRule
from eagletui.core.row_order import split_text
from eagletui.core.text import clean_line
from eagletui.export.rows import ALSO_POSSIBLE
from eagletui.runs.find import find

if TYPE_CHECKING:
    from eagletui.export.trainer_export import TrainerExport

FORMS: Final = ("jsonl", "specforge", "speculators", "torchspec", "parquet")
_TRAINERS: Final = ("specforge", "speculators")
_FLAGS: Final = {
    "--online": _TRAINERS,
    "--model": (*_TRAINERS, "torchspec"),
    "--draft-vocab-size": _TRAINERS,
    "--new-vocabulary": _TRAINERS,
    "--remove-gone": _TRAINERS,
    "--validation": ("speculators",),
    "--chat-template": ("torchspec",),
    "--only": ("jsonl", "parquet"),
}
"""Which forms a flag is for; the others are for all."""


def export(
    run: Annotated[str, typer.Argument(help="A run's name, folder or ledger.", metavar="RUN")],
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            help=f"Form of the data: {', '.join(FORMS)}; left out: each that [export] of the config names.",
            metavar="FORM",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder for the files; one of an earlier export is added to. Left out: RUN/exports/FORM.",
            metavar="DIR",
        ),
    ] = None,
    include: Annotated[
        list[str] | None,
        typer.Option(
            "--include",
            metavar="USABILITY",
            help=f"Also these samples, beside usable and resegmented ones: {', '.join(ALSO_POSSIBLE)}.",
        ),
    ] = None,
    only: Annotated[
        Path | None,
        typer.Option("--only", metavar="FILE", help="Write these samples alone: a file with one sample id a line."),
    ] = None,
    online: Annotated[
        bool, typer.Option("--online", help="Ids alone, for a trainer that runs the target itself. No features needed.")
    ] = False,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="PATH",
            help="The target's folder; left out: where it lay at extraction. TorchSpec: its model.target_model_path.",
        ),
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option(
            "--max-length",
            metavar="TOKENS",
            min=8,
            help="The trainer's limit; left out: one that cuts no sample the target has room for.",
        ),
    ] = None,
    draft_vocab_size: Annotated[
        int | None,
        typer.Option(
            "--draft-vocab-size",
            metavar="D",
            min=1,
            help="Tokens of the draft model; left out: 32000, or what is there.",
        ),
    ] = None,
    new_vocabulary: Annotated[
        bool, typer.Option("--new-vocabulary", help="Choose the draft vocabulary of the folder anew.")
    ] = False,
    remove_gone: Annotated[
        bool,
        typer.Option(
            "--remove-gone", help="Take samples out of the folder that left the training set; others get lower numbers."
        ),
    ] = False,
    validation: Annotated[
        float | None,
        typer.Option(
            "--validation",
            metavar="PERCENT",
            min=0,
            max=90,
            help="Share of prompts to validate on (10); the real share of a small set may differ, and is told.",
        ),
    ] = None,
    chat_template: Annotated[
        str | None, typer.Option("--chat-template", metavar="NAME", help="TorchSpec's dataset.chat_template.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Write training data: exact ids, their loss mask, the evidence for them, and features for trainers.

    jsonl feeds SpecForge (online) and speculators (prepare-data). specforge and speculators write the folder that
    trains offline on the run's features; a later export into it adds rows and moves none. Prints what the trainer's
    loader would change, and the command line to train with.
    """
    if to is None:
        from eagletui.config.run_config import load_config

        forms = load_config(find(run).config_path).export.to
        if out is not None and len(forms) > 1:
            raise InputError(f"--out: found without --to, and [export] names {', '.join(forms)}; expected one FORM.")
        with_flags = partial(
            export,
            run,
            out=out,
            include=include,
            only=only,
            online=online,
            model=model,
            max_length=max_length,
            draft_vocab_size=draft_vocab_size,
            new_vocabulary=new_vocabulary,
            remove_gone=remove_gone,
            validation=validation,
            chat_template=chat_template,
            json_=json_,
        )
        return max((with_flags(to=form) for form in forms), default=0)
    out = find(run).exports_dir / to if out is None else out
    if to not in FORMS:
        raise InputError(f"--to: found {clean_line(to, 40)}, expected {', '.join(FORMS)}.")
    given = {
        "--online": online,
        "--model": model is not None,
        "--draft-vocab-size": draft_vocab_size is not None,
        "--new-vocabulary": new_vocabulary,
        "--validation": validation is not None,
        "--remove-gone": remove_gone,
        "--chat-template": chat_template is not None,
        "--only": only is not None,
    }
    for flag, is_given in given.items():
        if is_given and to not in _FLAGS[flag]:
            raise InputError(f"{flag} does not go with --to {to}; it is for {', '.join(_FLAGS[flag])}.")
    wrong = [name for name in include or () if name not in ALSO_POSSIBLE]
    if wrong:
        raise InputError(f"--include: found {clean_line(wrong[0], 40)}, expected {', '.join(ALSO_POSSIBLE)}.")
    also = tuple(dict.fromkeys(include or ()))
    if to == "torchspec":
        return to_torchspec(run, out, model, max_length, chat_template, also, json_)
    folder = find(run)
    if to in ("jsonl", "parquet"):
        return to_file(folder, "jsonl" if to == "jsonl" else "parquet", out, max_length, also, only, json_)
    from eagletui.export.trainer_export import Asked, export_for_trainer

    with steps("writing features", 1) as step:
        asked = Asked(
            trainer="specforge" if to == "specforge" else "speculators",
            online=online,
            also=also,
            model=None if model is None else Path(model),
            vocabulary_size=draft_vocab_size,
            new_vocabulary=new_vocabulary,
            remove_gone=remove_gone,
            max_length=max_length,
            validation_percent=validation,
            step=step,
        )
        done = export_for_trainer(folder, out, asked)
    if json_:
        print_json(_trainer_object(done, asked.rule))
    else:
        print_pairs(_trainer_pairs(done, asked.rule))
        print_commands(done.commands)
    return 0


def _trainer_object(done: "TrainerExport", rule: LoaderRule) -> dict[str, Any]:
    manifest = done.manifest
    return {
        "run": manifest.run,
        "to": manifest.trainer,
        "route": manifest.route,
        "out": str(done.out),
        "manifest": str(done.out / "manifest.json"),
        "samples": manifest.samples,
        "tokens": manifest.tokens,
        "sampled_tokens": manifest.sampled_tokens,
        "by_evidence": manifest.by_evidence,
        "by_usability": manifest.by_usability,
        "by_dataset": manifest.by_dataset,
        "left_out": manifest.left_out,
        "train_rows": manifest.samples - done.validation_rows,
        "validation_rows": done.validation_rows,
        "added": done.added,
        "removed": done.removed,
        "files_written": done.files_written,
        "bytes": done.bytes,
        "layers_entering": manifest.target.layers_entering,
        "layers_output": manifest.target.layers_output,
        "last_hidden_norm": manifest.last_hidden_norm,
        "draft_vocabulary": {
            "size": manifest.vocabulary.size,
            "target_size": manifest.vocabulary.target_size,
            "chosen_by_export": manifest.vocabulary.since,
            "coverage": round(done.coverage, 6),
        },
        "loaders": [
            effect_object(
                rule, done.lengths, manifest.max_length, done.by_text_changed, manifest.by_evidence, done.served
            )
        ],
        "commands": done.commands,
        "command": manifest.command or None,
        "notes": done.notes,
    }


def _sides(done: "TrainerExport") -> str:
    samples = done.manifest.samples
    if done.manifest.trainer == "specforge":
        return f"{samples:,}, all to train on: SpecForge validates on a folder of its own"
    return split_text(samples, done.validation_rows)


def _trainer_pairs(done: "TrainerExport", rule: LoaderRule) -> list[tuple[str, str]]:
    manifest = done.manifest
    vocabulary = manifest.vocabulary
    return [
        (
            "samples",
            f"{manifest.samples:,}, {manifest.tokens:,} tokens, {manifest.sampled_tokens:,} of them sampled; "
            f"{done.added:,} new here{f', {done.removed:,} removed' if done.removed else ''}",
        ),
        ("evidence", listed(manifest.by_evidence)),
        ("left out", listed(manifest.left_out) or "nothing"),
        ("rows", _sides(done)),
        ("features", _features(done)),
        (
            "draft vocabulary",
            f"{vocabulary.size:,} of {vocabulary.target_size:,} tokens, {done.coverage:.2%} of what was sampled, "
            f"chosen by export {vocabulary.since}",
        ),
        (rule.trainer, effect_line(rule, done.lengths, manifest.max_length, done.served, done.largest)),
        ("by text", by_text_line(done.by_text_changed, manifest.samples, manifest.by_evidence)),
        ("folder", str(done.out)),
        *(("note", note) for note in done.notes),
    ]


def _features(done: "TrainerExport") -> str:
    manifest = done.manifest
    if manifest.last_hidden_norm is None:
        return "none: the trainer runs the target"
    return (
        f"{bytes_text(done.bytes)}, {counted(done.files_written, 'file')} written now; last stream "
        f"{manifest.last_hidden_norm}-norm"
    )
