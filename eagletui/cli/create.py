"""Make a run from a config, or take up an existing one: everything between reading the file and starting workers."""

import contextlib
import hashlib
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from eagletui.cli.unasked import made_at, refuse_used
from eagletui.config.changes import changed_fields, may_change
from eagletui.config.run_config import RunConfig, load_config, to_json
from eagletui.config.toml import to_toml
from eagletui.core.errors import ConfigError, InputError, ModelError, RunError
from eagletui.core.money import usd_to_pico
from eagletui.core.run_parts import RunPart
from eagletui.core.vocabulary import pack_vocabulary
from eagletui.files.locked import is_locked
from eagletui.ingest.adding import ingest
from eagletui.ingest.census import Census, canaries_of, take_census
from eagletui.ledger.locks import RoleLock
from eagletui.ledger.writer import LedgerWriter, create_ledger
from eagletui.runs.claims import Claim
from eagletui.runs.find import find
from eagletui.runs.folder import RunFolder, runs_root, write_config_file
from eagletui.runs.making import replace as replace_run
from eagletui.runs.making import staged
from eagletui.runs.setting_aside import publish, restore
from eagletui.tokens.formats import load_format

if TYPE_CHECKING:
    from eagletui.tokens.load import Tokenizer

TOKENIZER_FILES: Final = (
    "tokenizer.json",
    "tiktoken.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    "chat_template.jinja",
)
"""What a run keeps of a tokenizer folder; code files are never among them."""


def read_config(given: str) -> RunConfig:
    """Read a config file, or the frozen config of an existing run.

    Raises:
        ConfigError: the file is wrong.
        InputError: there is neither a file nor a run of that name.
    """
    path = Path(given).expanduser()
    if (folder := given_run(given)) is not None:
        return load_config(folder.config_path)
    if path.suffix in (".jsonl", ".json"):
        raise InputError(
            f"{given}: found a name of prompts, expected a TOML config; it names the prompts: [prompts] path = "
            f'"{path.name}". There are examples in configs/.'
        )
    if not path.is_file():
        if path.suffix == ".toml":
            raise InputError(f"{given}: no such file; expected a TOML config (there are examples in configs/).")
        return load_config(find(given).config_path)
    from eagletui.embedded.data import tokenizer_dir, weights_path

    defaults = {"tokenizer": str(tokenizer_dir())}
    with contextlib.suppress(ModelError):  # recorded replies need no weights; extraction says so if it does
        defaults["weights"] = str(weights_path())
    return load_config(path, model_defaults=defaults)


def given_run(given: str) -> RunFolder | None:
    """Return the run that a name, a folder, a ledger or a frozen config names; None for a config file and for nothing.

    The folder decides, not the name in its config: a run that was renamed, copied or moved is itself wherever it lies.
    """
    path = Path(given).expanduser().resolve()
    folder = RunFolder(path.parent)
    if path.is_file():
        is_part_of_it = path in (folder.config_path, folder.ledger_path)
        return folder if is_part_of_it and folder.ledger_path.is_file() else None
    try:
        return find(given)
    except RunError:
        return None


def existing(name: str) -> RunFolder | None:
    """Return the run of a name among the runs, if there is one; one that was left half replaced is put back first."""
    folder = RunFolder(runs_root() / name)
    restore(folder)
    return folder if folder.ledger_path.is_file() else None


def create_run(config: RunConfig, claim: Claim, *, replaces: bool = False) -> tuple[RunFolder, Census]:
    """Make the folder, the ledger and the samples of a new run; on any error nothing is left of it.

    Args:
        config: what the run is to be.
        claim: taken on the new run before it has its name, so that no other command replaces it at once.
        replaces: put it in the place of the run of that name, which is removed.

    Raises:
        BeingMadeError: another process makes it, or has put the same run in the old one's place.
        LockedError: the run to be replaced is just being started.
        RunError: it was used meanwhile.
        EagleError: the tokenizer, the format or the prompts are wrong, or the place cannot be written.
    """
    final = RunFolder(runs_root() / config.run.name)
    old_made_at = made_at(final) if replaces else 0.0
    tokenizer = check_config(config)
    if final.path.exists() and not final.ledger_path.is_file():
        raise RunError(f"{final.path} exists and holds no ledger. Move it away, or use --name.")
    part = _part(config)
    with staged(config.run.name, replaces=replaces) as stage:
        template_hash = _copy_tokenizer(config, tokenizer, stage)
        stage.vocabulary_path.write_bytes(pack_vocabulary(tokenizer.vocabulary))
        write_config(stage, config)
        create_ledger(
            stage.ledger_path,
            name=config.run.name,
            config_json=to_json(config),
            model_id=config.model.id,
            format=config.model.format,
            stop_at_pico=usd_to_pico(config.spend.stop_at_usd),
            cap_pico=usd_to_pico(config.spend.cap_usd),
            max_in_flight=config.pace.max_in_flight,
            tokenizer_hash=tokenizer.hash,
            template_hash=template_hash,
        )
        with LedgerWriter(stage.ledger_path) as writer:
            counted = ingest(config.prompts, writer, part, canaries_of(config))
            config.sampling.require_known(counted.datasets | counted.by_dataset.keys())
            if part is not None:
                _refuse_empty(part, counted)
                writer.set_stop_at(part.share(usd_to_pico(config.spend.stop_at_usd), counted.by_part))
                writer.set_cap(part.share(usd_to_pico(config.spend.cap_usd), counted.by_part))
        claim.take(stage)
        if replaces:
            replace_run(stage, final, partial(refuse_used, config=config, expected_at=old_made_at))
        else:
            publish(stage, final)
    return final, counted


def check_config(config: RunConfig, *, key: bool = True) -> "Tokenizer":
    """Refuse what can be known to be wrong before a run is made, and return the tokenizer.

    Args:
        config: what the run is to be.
        key: read the provider's key too, last of all.

    Raises:
        EagleError: the key cannot be read, extraction has no model, or the audit of tokenizer and format fails.
    """
    from eagletui.tokens.audit import audit
    from eagletui.tokens.load import load_tokenizer

    if config.extract.when != "off" and config.model.weights is None:
        raise ConfigError(f'[extract] when = "{config.extract.when}" needs [model] weights: a folder or a .gguf file.')
    tokenizer = load_tokenizer(config.model.tokenizer)
    fmt = load_format(config.model.format)
    template = _given_template(config)
    audited = tokenizer if template is None else replace(tokenizer, chat_template=template)
    failed = [check.detail for check in audit(audited, fmt) if check.failed]
    if failed:
        raise InputError(
            f"[model] format {fmt.name} does not fit the tokenizer {config.model.tokenizer}: {'; '.join(failed[:3])}. "
            f"Check with: eagletui audit --tokenizer {config.model.tokenizer} --format {fmt.name}"
        )
    if key:
        config.secret()
    return tokenizer


def take_up(folder: RunFolder, config: RunConfig) -> list[str]:
    """Apply what changed in the config of an existing run, and return what it was, one sentence each.

    Raises:
        RunError: a field differs that is frozen when a run is created.
    """
    old = load_config(folder.config_path)
    changed = changed_fields(old, config)
    frozen = [field for field in changed if not may_change(field)]
    if frozen:
        lines = [f"  {field}: {_value(old, field)} there, {_value(config, field)} here" for field in frozen]
        raise RunError(
            f"Run {folder.name} was made with another config, and these fields cannot change:\n"
            + "\n".join(lines)
            + f"\nUse --name for a new run, or resume the old one with: eagletui run {folder.argument}"
        )
    if not changed:
        return []
    if is_locked(folder.lock_path("engine")):
        raise RunError(
            f"Run {folder.name} is running with another config ({', '.join(changed)}). "
            "Use eagletui ctl for its cap, stop-at and pace, or wait until it ends."
        )
    stop_at_pico, cap_pico = usd_to_pico(config.spend.stop_at_usd), usd_to_pico(config.spend.cap_usd)
    part = _part(config)
    if part is not None:
        shares = take_census(config.prompts, part, canaries_of(config)).by_part
        stop_at_pico, cap_pico = part.share(stop_at_pico, shares), part.share(cap_pico, shares)
    with RoleLock(folder.path, "engine"), LedgerWriter(folder.ledger_path) as writer:
        writer.set_config(to_json(config))
        if "spend.stop_at_usd" in changed:
            writer.set_stop_at(stop_at_pico)
        if "spend.cap_usd" in changed:
            writer.set_cap(cap_pico)
        if "pace.max_in_flight" in changed:
            writer.set_max_in_flight(config.pace.max_in_flight)
        write_config(folder, config)
    return [f"{field}: {_value(old, field)} before, {_value(config, field)} now" for field in changed]


def write_config(folder: RunFolder, config: RunConfig) -> None:
    """Write the frozen config, whole or not at all."""
    write_config_file(folder, to_toml(config))


def _part(config: RunConfig) -> RunPart | None:
    return None if config.run.part is None else RunPart.parse(config.run.part)


def _refuse_empty(part: RunPart, counted: Census) -> None:
    if counted.samples_here == 0:
        raise InputError(
            f"--part {part}: found no prompt for it, because the prompt files hold {counted.prompts:,} in all; "
            f"expected at most {counted.prompts:,} parts."
        )


def _copy_tokenizer(config: RunConfig, tokenizer: "Tokenizer", folder: RunFolder) -> str | None:
    """Copy the tokenizer's files and return the hash of the chat template in use."""
    folder.tokenizer_dir.mkdir(mode=0o700, exist_ok=True)
    for name in TOKENIZER_FILES:
        if (config.model.tokenizer / name).is_file():
            shutil.copyfile(config.model.tokenizer / name, folder.tokenizer_dir / name)
    template = tokenizer.chat_template
    if (given := _given_template(config)) is not None:
        template = given
        (folder.tokenizer_dir / "chat_template.jinja").write_text(template, encoding="utf-8")
    return None if template is None else hashlib.sha256(template.encode("utf-8")).hexdigest()


def _given_template(config: RunConfig) -> str | None:
    """Read the chat template that stands in for the tokenizer's own, where the config names one."""
    path = config.model.chat_template
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"[model] chat_template {path}: cannot be read ({type(error).__name__}).") from error


def _value(config: RunConfig, field: str) -> str:
    section, *keys = field.split(".")
    value: object = getattr(config, section)
    for key in keys:
        if isinstance(value, dict):
            value = value.get(key)
        elif hasattr(value, key):
            value = getattr(value, key)
        else:
            value = getattr(value, "overrides", {}).get(key)
    return repr(value) if isinstance(value, str | None) else str(value)
