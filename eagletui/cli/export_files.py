"""`eagletui export` into files of ids: JSONL, Parquet and TorchSpec's cache."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from eagletui.cli.loader_lines import by_text_line, effect_line, effect_object
from eagletui.cli.output import bytes_text, print_json, print_pairs
from eagletui.core.draft_vocabulary import DEFAULT_SIZE
from eagletui.core.errors import InputError, RunError
from eagletui.core.loaders import (
    SPECFORGE_ONLINE,
    SPECULATORS_PREPARE,
    TORCHSPEC_CACHE,
    TORCHSPEC_PARQUET,
    LoaderRule,
    fitting_length,
    largest_limit,
)
from eagletui.core.row_order import VALIDATION_PERCENT, one_sided, split_text, unusual_split
from eagletui.export.rows import Census
from eagletui.export.selection import read_selection
from eagletui.export.sglang_target import require_layers_as_meant, unknown_target_note
from eagletui.export.token_file import Exported, census_object
from eagletui.ledger.reader import LedgerReader
from eagletui.runs.find import find
from eagletui.runs.folder import RunFolder

if TYPE_CHECKING:
    from eagletui.export.torchspec_config import LayerOutputs
    from eagletui.export.trainer_target import ExportTarget


class _Limit(NamedTuple):
    """At which limit of tokens a loader is looked at."""

    rule: LoaderRule
    tokens: int
    largest: int | None
    """Its server starts with no larger one; None: with any."""


def to_file(
    folder: RunFolder,
    form: Literal["jsonl", "parquet"],
    out: Path,
    max_length: int | None,
    also: tuple[str, ...],
    only: Path | None,
    json_: bool,
) -> int:
    """Write one file of ids, or two where TorchSpec validates on the second, and print what to do with them."""
    selection = None if only is None else read_selection(only)
    target = _known_target(folder)
    layers = _outputs(folder, target)
    if form == "parquet":
        require_layers_as_meant(None if target is None else target.checkpoint, layers, folder.argument)
    if form == "jsonl":
        from eagletui.export.jsonl import export_jsonl

        done = export_jsonl(folder, out, also=also, only=selection)
    else:
        from eagletui.export.parquet import export_parquet

        done = export_parquet(folder, out, also=also, only=selection)
    rules = (SPECFORGE_ONLINE, SPECULATORS_PREPARE) if form == "jsonl" else (TORCHSPEC_PARQUET,)
    limits = [_limit(rule, done, target, max_length) for rule in rules]
    limit = limits[-1].tokens
    if form == "jsonl":
        notes, commands = _jsonl_notes(folder.argument, done), _prepare_commands(done, target, limit)
    else:
        notes = _parquet_notes(folder, done, target, limit, layers)
        commands = [_parquet_command(out, done, target, limit, layers)]
    notes += [
        f"--max-length {max_length:,} is more than the server of {rule.trainer} starts with for this target: the limit "
        f"is {tokens:,}."
        for rule, tokens, _ in limits
        if max_length is not None and tokens < max_length
    ]
    _print_file(folder.name, form, done, limits, {}, notes, commands, json_)
    return 0


def to_torchspec(
    run: str,
    out: Path,
    model: str | None,
    max_length: int | None,
    chat_template: str | None,
    also: tuple[str, ...],
    json_: bool,
) -> int:
    """Write the cache of TorchSpec's tokenized data and a run config that meets it."""
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
    limits = [_Limit(TORCHSPEC_CACHE, max_length, largest_limit(TORCHSPEC_CACHE, done.positions))]
    notes = []
    if layers is None:
        notes.append(
            f"{model} is no folder here and the run names no layers: TorchSpec will take its own default ones."
        )
    if done.unknown_target is not None:
        notes.append(done.unknown_target)
    if done.positions is not None and max_length > done.positions:
        notes.append(
            f"The target has {done.positions:,} positions, and SGLang does not start with --max-length {max_length:,}."
        )
    extra = {"cache_file": str(done.cache_file), "key": done.key, "made_for": TORCHSPEC_CACHE.version}
    _print_file(folder.name, "torchspec", done.tokens, limits, extra, notes, [done.command], json_)
    return 0


def _print_file(
    name: str,
    form: str,
    done: Exported,
    limits: Sequence[_Limit],
    extra: dict[str, str],
    notes: Sequence[str],
    commands: list[str],
    json_: bool,
) -> None:
    notes = [*notes, *_split_notes(done)]
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
                "validation_file": None if done.validation_file is None else str(done.validation_file),
                "notes": notes,
                "loaders": [
                    effect_object(rule, done.lengths, limit, done.by_text_changed, done.census.evidence)
                    for rule, limit, _ in limits
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
            *(
                (rule.trainer, effect_line(rule, done.lengths, limit, largest=largest))
                for rule, limit, largest in limits
            ),
            ("by text", by_text_line(done.by_text_changed, done.census.samples, done.census.evidence)),
            *(("note", note) for note in notes),
        ]
    )
    print_commands(commands)


def _rows(done: Exported) -> str:
    if not done.validation_rows:
        return f"{done.census.samples:,} to train on"
    split = split_text(done.census.samples, done.validation_rows)
    where = "last in the file" if done.validation_file is None else f"in {done.validation_file.name}"
    return f"{split}, these {where} and the same ones in every export"


def _split_notes(done: Exported) -> list[str]:
    if not done.is_split:
        return []
    unusual = unusual_split(done.census.samples, done.validation_rows, VALIDATION_PERCENT)
    return [] if unusual is None else [unusual]


def _jsonl_notes(argument: str, done: Exported) -> list[str]:
    """Say what the trainers that read the file do with it, and what to export for them instead."""
    # The trainer splits the rows itself, and one row it cannot split.
    alone = one_sided(1, 0, argument, computed=False) if done.census.samples == 1 else None
    notes = [] if alone is None else [alone]
    if done.validation_rows:
        notes.append(
            f"The last {done.validation_rows:,} rows are the same ones in every export: set them apart yourself to "
            "validate on them. SpecForge and prepare-data train on the whole file."
        )
    return [
        *notes,
        "prepare-data of speculators shuffles all rows together, so that the ones it validates on change with every "
        f"export. eagletui export {argument} --to speculators --online prepares them and moves none.",
        f"eagletui export {argument} --to specforge --online --model PATH writes SpecForge's run config.",
    ]


def _parquet_notes(
    folder: RunFolder, done: Exported, target: "ExportTarget | None", limit: int, layers: "LayerOutputs | None"
) -> list[str]:
    from eagletui.export.limits import refused_note

    context = _context(TORCHSPEC_PARQUET, target)
    refused = refused_note(TORCHSPEC_PARQUET, done.lengths, limit, context, folder.ledger_path)
    unknown = unknown_target_note(None if target is None else target.checkpoint, layers)
    return [note for note in (refused, unknown) if note is not None]


def print_commands(commands: Sequence[str]) -> None:
    """Print what to run, with how as comments of a shell; nothing where there is nothing to run."""
    if not commands:
        return
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


def _outputs(folder: RunFolder, target: "ExportTarget | None") -> "LayerOutputs | None":
    """Return the layers whose output TorchSpec has to take; None where its default is meant."""
    if target is not None:
        return target.facts.layers_output
    from eagletui.export.run_layers import configured_outputs

    with LedgerReader(folder.ledger_path) as reader:
        return configured_outputs(reader)


def _limit(rule: LoaderRule, done: Exported, target: "ExportTarget | None", asked: int | None) -> _Limit:
    """Choose the limit in the command: as asked, else a fitting one; at most what the target has room for."""
    context = _context(rule, target)
    largest = largest_limit(rule, context)
    if asked is None:
        return _Limit(rule, fitting_length(rule, max(map(sum, done.lengths)), context), largest)
    return _Limit(rule, asked if largest is None else min(asked, largest), largest)


def _context(rule: LoaderRule, target: "ExportTarget | None") -> int | None:
    from eagletui.export.limits import sglang_positions, vllm_positions

    if target is None:
        return None
    positions = vllm_positions if rule is SPECULATORS_PREPARE else sglang_positions
    return positions(target.checkpoint, target.file_context)


def _prepare_commands(done: Exported, target: "ExportTarget | None", limit: int) -> list[str]:
    """What to run for speculators: preparation; where the layers are known, server and the training too, if it can."""
    prepared = done.file.absolute().with_name("prepared")
    name = done.model_id if target is None else target.name
    parts = ["speculators", "prepare-data", "--model", name, "--data", str(done.file.absolute())]
    prepare = shlex.join([*parts, "--output", str(prepared), "--seq-length", str(limit), "--no-skip-token-freq"])
    if target is None or done.census.samples < 2:
        return [prepare]
    from eagletui.export.training import SPECULATORS_RATIO, speculators_commands

    size = min(DEFAULT_SIZE, target.facts.vocab_size)
    return [
        prepare,
        *speculators_commands(prepared, target.facts, name, size, limit, SPECULATORS_RATIO, server_length=limit + 1),
    ]


def _parquet_command(
    out: Path, done: Exported, target: "ExportTarget | None", limit: int, layers: "LayerOutputs | None"
) -> str:
    """Write TorchSpec's run config beside the data, and return the command that trains with it."""
    from eagletui.export.torchspec_config import TrainedOn, write_config

    trained = TrainedOn(
        data=done.file.absolute(),
        validation=None if done.validation_file is None else done.validation_file.absolute(),
        target_model_path=done.model_id if target is None else target.name,
        max_seq_length=limit,
        layers=layers,
        checkpoint=None if target is None else target.checkpoint,
    )
    try:
        return write_config(out.absolute(), trained)
    except OSError as error:
        raise RunError(f"{out} cannot be written: {error.strerror or error}.") from error


def _census_pairs(census: Census) -> list[tuple[str, str]]:
    return [
        ("samples", f"{census.samples:,}, {census.tokens:,} tokens, {census.sampled_tokens:,} of them sampled"),
        ("evidence", listed(dict(census.evidence.most_common()))),
        ("left out", listed(dict(census.left_out)) or "nothing"),
    ]


def listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{samples:,} {name.replace('_', ' ')}" for name, samples in counts.items())
