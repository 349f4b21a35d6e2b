"""`eagletui export`: write training data of a run."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from eagletui.cli.loader_lines import by_text_line, effect_line, effect_object
from eagletui.cli.output import bytes_text, counted, print_json, print_pairs, say
from eagletui.cli.steps import steps
from eagletui.core.draft_vocabulary import DEFAULT_SIZE
from eagletui.core.errors import InputError
from eagletui.core.loaders import (
    SPECFORGE_ONLINE,
    SPECULATORS_PREPARE,
    TORCHSPEC_CACHE,
    TORCHSPEC_PARQUET,
    LoaderRule,
    fitting_length,
    largest_limit,
)
from eagletui.core.row_order import VALIDATION_PERCENT, split_text, unusual_split
from eagletui.core.text import clean_line
from eagletui.export.rows import ALSO_POSSIBLE, Census
from eagletui.export.selection import read_selection
from eagletui.export.token_file import Exported, census_object
from eagletui.ledger.reader import LedgerReader
from eagletui.runs import RunFolder, find

if TYPE_CHECKING:
    from eagletui.export.trainer_export import TrainerExport
    from eagletui.export.trainer_target import ExportTarget

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
            "--max-length", metavar="TOKENS", min=8, help="The trainer's limit; left out: one that cuts no sample."
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
        from eagletui.config import load_config

        forms = load_config(find(run).config_path).export.to
        if out is not None and len(forms) > 1:
            raise InputError(f"--out: found without --to, and [export] names {', '.join(forms)}; expected one FORM.")
        rest = (include, only, online, model, max_length, draft_vocab_size, new_vocabulary, remove_gone, validation)
        return max((export(run, form, out, *rest, chat_template, json_) for form in forms), default=0)
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
        return _to_torchspec(run, out, model, max_length, chat_template, also, json_)
    folder = find(run)
    if to in ("jsonl", "parquet"):
        return _to_file(folder, "jsonl" if to == "jsonl" else "parquet", out, max_length, also, only, json_)
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
        _print_commands(done.commands)
    return 0


def _to_file(
    folder: RunFolder,
    form: Literal["jsonl", "parquet"],
    out: Path,
    max_length: int | None,
    also: tuple[str, ...],
    only: Path | None,
    json_: bool,
) -> int:
    selection = None if only is None else read_selection(only)
    if form == "jsonl":
        from eagletui.export.jsonl import export_jsonl

        done = export_jsonl(folder, out, also=also, only=selection)
    else:
        from eagletui.export.parquet import export_parquet

        done = export_parquet(folder, out, also=also, only=selection)
    rules = (SPECFORGE_ONLINE, SPECULATORS_PREPARE) if form == "jsonl" else (TORCHSPEC_PARQUET,)
    target = _known_target(folder)
    limits = [(rule, _limit(rule, done, target, max_length)) for rule in rules]
    make = _prepare_commands if form == "jsonl" else _parquet_commands
    _print_file(folder.name, form, done, limits, {}, make(done, target, limits[-1][1]), json_)
    if form == "jsonl" and not json_:
        say(
            "For speculators: prepare-data shuffles all rows together, so that rows to validate on change with every "
            f"export. eagletui export {folder.name} --to speculators --online prepares them and moves none."
        )
        say(f"For SpecForge: eagletui export {folder.name} --to specforge --online --model PATH writes its run config.")
    return 0


def _to_torchspec(
    run: str,
    out: Path,
    model: str | None,
    max_length: int | None,
    chat_template: str | None,
    also: tuple[str, ...],
    json_: bool,
) -> int:
    from eagletui.export.torchspec import TorchSpecConfig, export_torchspec, layers_of

    missing = [
        f"{flag} ({what})"
        for flag, what, value in (
            ("--model", "model.target_model_path", model),
            ("--max-length", "training.max_seq_length", max_length),
            ("--chat-template", "dataset.chat_template", chat_template),
        )
        if value is None
    ]
    if model is None or max_length is None or chat_template is None:
        raise InputError(
            f"--to torchspec needs the training config that is part of its cache key: {', '.join(missing)} not given. "
            f"It is the cache of TorchSpec at {TORCHSPEC_CACHE.version}; later ones read --to parquet as it is."
        )
    folder = find(run)
    config = TorchSpecConfig(model, max_length, chat_template)
    layers = layers_of(folder, Path(model))
    done = export_torchspec(folder, out, config, layers, also=also)
    limits = [(TORCHSPEC_CACHE, max_length)]
    if layers is None:
        say(f"{model} is no folder here and the run names no layers: TorchSpec will take its own default ones.")
    extra = {"cache_file": str(done.cache_file), "key": done.key, "made_for": TORCHSPEC_CACHE.version}
    _print_file(folder.name, "torchspec", done.tokens, limits, extra, [done.command], json_)
    return 0


def _print_file(
    name: str,
    form: str,
    done: Exported,
    limits: Sequence[tuple[LoaderRule, int]],
    extra: dict[str, str],
    commands: list[str],
    json_: bool,
) -> None:
    if json_:
        print_json(
            {
                "run": name,
                "to": form,
                "file": str(done.file),
                "manifest": str(done.manifest),
                "bytes": done.bytes,
                "sha256": done.sha256,
                **census_object(done.census),
                **extra,
                "train_rows": done.census.samples - done.validation_rows,
                "validation_rows": done.validation_rows,
                "notes": _notes(done),
                "loaders": [
                    effect_object(rule, done.lengths, limit, done.by_text_changed, done.census.evidence)
                    for rule, limit in limits
                ],
                "command": commands[0],
                "commands": commands,
            }
        )
        return
    print_pairs(
        [
            *_census_pairs(done.census),
            ("file", f"{done.file} ({bytes_text(done.bytes)})"),
            ("rows", _rows(done)),
            ("manifest", str(done.manifest)),
            *((key.replace("_", " "), value) for key, value in extra.items()),
            *((rule.trainer, effect_line(rule, done.lengths, limit)) for rule, limit in limits),
            ("by text", by_text_line(done.by_text_changed, done.census.samples, done.census.evidence)),
            *(("note", note) for note in _notes(done)),
        ]
    )
    _print_commands(commands)


def _rows(done: Exported) -> str:
    if not done.is_split:
        return f"{done.census.samples:,}"
    return f"{split_text(done.census.samples, done.validation_rows)}, these last and the same ones in every export"


def _notes(done: Exported) -> list[str]:
    if not done.is_split:
        return []
    unusual = unusual_split(done.census.samples, done.validation_rows, VALIDATION_PERCENT)
    return [] if unusual is None else [unusual]


def _print_commands(commands: Sequence[str]) -> None:
    """Print what to run, with how as comments of a shell."""
    order = ", one after the other" if len(commands) > 1 else ""
    serves = any(command.startswith("vllm serve ") for command in commands)
    print(f"# Next{order}{'; vllm serve stays up, in a shell of its own' if serves else ''}:")
    for command in commands:
        print(command)


def _known_target(folder: RunFolder) -> "ExportTarget | None":
    """Describe the run's target; None where nothing tells, or where the packages that read models are not installed."""
    try:
        from eagletui.export.trainer_target import target_if_known
    except ModuleNotFoundError:
        return None
    with LedgerReader(folder.ledger_path) as reader:
        return target_if_known(folder, reader)


def _limit(rule: LoaderRule, done: Exported, target: "ExportTarget | None", asked: int | None) -> int:
    """Return the limit in the command: as asked, else a fitting one; at most what the target has room for."""
    from eagletui.export.limits import sglang_positions, vllm_positions

    checkpoint = None if target is None else target.checkpoint
    context = (vllm_positions if rule is SPECULATORS_PREPARE else sglang_positions)(checkpoint)
    largest = largest_limit(rule, context)
    if asked is None:
        return fitting_length(rule, max(map(sum, done.lengths)), context)
    return asked if largest is None else min(asked, largest)


def _prepare_commands(done: Exported, target: "ExportTarget | None", limit: int) -> list[str]:
    """What to run for speculators: preparation; where the layers are known, server and the training too."""
    import shlex

    prepared = done.file.absolute().with_name("prepared")
    name = done.model_id if target is None else target.name
    parts = ["speculators", "prepare-data", "--model", name, "--data", str(done.file.absolute())]
    prepare = shlex.join([*parts, "--output", str(prepared), "--seq-length", str(limit), "--no-skip-token-freq"])
    if target is None:
        return [prepare]
    from eagletui.export.training import SPECULATORS_RATIO, speculators_commands

    size = min(DEFAULT_SIZE, target.facts.vocab_size)
    return [
        prepare,
        *speculators_commands(prepared, target.facts, name, size, limit, SPECULATORS_RATIO, server_length=limit + 1),
    ]


def _parquet_commands(done: Exported, target: "ExportTarget | None", limit: int) -> list[str]:
    import shlex

    parts = ["python", "-m", "torchspec.train_entry", "--config", "CONFIG.yaml"]
    parts += [f"dataset.train_data_path={done.file.absolute()}", "dataset.defer_tokenization=false"]
    parts += [f"training.max_seq_length={limit}"]
    parts += [f"model.target_model_path={done.model_id if target is None else target.name}"]
    if target is not None:
        layers = str(list(target.facts.layers_output)).replace(" ", "")
        parts.append(f"inference.aux_hidden_states_layers={layers}")
    return [shlex.join(parts)]


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
        "command": manifest.command,
        "notes": done.notes,
    }


def _trainer_pairs(done: "TrainerExport", rule: LoaderRule) -> list[tuple[str, str]]:
    manifest = done.manifest
    vocabulary = manifest.vocabulary
    return [
        (
            "samples",
            f"{manifest.samples:,}, {manifest.tokens:,} tokens, {manifest.sampled_tokens:,} of them sampled; "
            f"{done.added:,} new here{f', {done.removed:,} removed' if done.removed else ''}",
        ),
        ("evidence", _listed(manifest.by_evidence)),
        ("left out", _listed(manifest.left_out) or "nothing"),
        ("rows", split_text(manifest.samples, done.validation_rows)),
        ("features", _features(done)),
        (
            "draft vocabulary",
            f"{vocabulary.size:,} of {vocabulary.target_size:,} tokens, {done.coverage:.2%} of what was sampled, "
            f"chosen by export {vocabulary.since}",
        ),
        (rule.trainer, effect_line(rule, done.lengths, manifest.max_length, done.served)),
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


def _census_pairs(census: Census) -> list[tuple[str, str]]:
    return [
        ("samples", f"{census.samples:,}, {census.tokens:,} tokens, {census.sampled_tokens:,} of them sampled"),
        ("evidence", _listed(dict(census.evidence.most_common()))),
        ("left out", _listed(dict(census.left_out)) or "nothing"),
    ]


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{samples:,} {name.replace('_', ' ')}" for name, samples in counts.items())
