"""The run's config: TOML in, a frozen `RunConfig` out.

Unknown keys, wrong types and missing values are errors that name the file, the line, the key, what was found and
what is accepted. Relative paths are resolved against the config file's folder, so the frozen copy works anywhere.
"""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError, model_validator

from eagletui.config.faults import describe_fault
from eagletui.config.sampling import SamplingSection
from eagletui.config.secret import Secret, secret_of_command, secret_of_environment, secret_of_file
from eagletui.config.sections import (
    CheckSection,
    ExportSection,
    ExtractSection,
    ModelSection,
    NotifySection,
    PaceSection,
    PromptsSection,
    ProviderSection,
    RunSection,
    SpendSection,
)
from eagletui.config.values import Section
from eagletui.core.errors import ConfigError


class RunConfig(Section):
    """Everything a run needs to know, validated once."""

    run: RunSection
    prompts: PromptsSection
    model: ModelSection
    provider: ProviderSection
    sampling: SamplingSection = SamplingSection()
    spend: SpendSection
    pace: PaceSection = PaceSection()
    check: CheckSection = CheckSection()
    notify: NotifySection = NotifySection()
    extract: ExtractSection = ExtractSection()
    export: ExportSection = ExportSection()

    @model_validator(mode="after")
    def _check(self) -> "RunConfig":
        if self.prompts.canary_every and not self.check.canary:
            raise ValueError("prompts with their answers in [check.canary], because [prompts] canary_every asks them")
        return self

    def secret(self) -> Secret:
        """Read the provider's key from where the config says.

        Returns:
            The key; empty for a local server without one.

        Raises:
            ConfigError: the source is absent, empty, readable by others or fails.
        """
        provider = self.provider
        if provider.api_key_file is not None:
            return secret_of_file(provider.api_key_file)
        if provider.api_key_command is not None:
            return secret_of_command(provider.api_key_command)
        variable = provider.api_key_env or ("OPENROUTER_API_KEY" if provider.kind == "openrouter" else None)
        return Secret("") if variable is None else secret_of_environment(variable)


def load_config(path: Path, *, model_defaults: Mapping[str, str] | None = None) -> RunConfig:
    """Read and validate a config file.

    Args:
        path: the TOML file.
        model_defaults: `[model]` values to use where the file has none, for the provider kind "embedded", which
            knows its own tokenizer and weights.

    Raises:
        ConfigError: one line per fault: file, line, key, what was found, what is expected.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error}); expected a TOML config") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8; expected a TOML config") from error
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    provider = data.get("provider")
    if model_defaults and isinstance(provider, dict) and provider.get("kind") == "embedded":
        model = data.setdefault("model", {})
        if isinstance(model, dict):
            data["model"] = {**model_defaults, **model}
    try:
        return RunConfig.model_validate(data, context={"folder": path.resolve().parent})
    except ValidationError as error:
        raise ConfigError(
            "\n".join(describe_fault(RunConfig, path, text, fault) for fault in error.errors())
        ) from error


def config_from_json(text: str) -> RunConfig:
    """Read the config that `config_json` of a ledger holds."""
    return RunConfig.model_validate(json.loads(text))


def to_json(config: RunConfig) -> str:
    """Return the config as JSON, without secrets, for the ledger."""
    return json.dumps(config.model_dump(mode="json"), ensure_ascii=False)


def with_values(config: RunConfig, values: Mapping[str, object]) -> RunConfig:
    """Return the config with other values at dotted keys (`spend.cap_usd`), validated as a file would be.

    Args:
        config: what the rest is taken from; paths in it are absolute already.
        values: by dotted key, as TOML would give them; None takes the key's default.

    Raises:
        ConfigError: one line per fault: key, what was found, what is expected.
    """
    data = config.model_dump()
    for dotted, value in values.items():
        section, key = dotted.split(".", 1)
        if value is None:
            data[section].pop(key, None)
        else:
            data[section][key] = value
    try:
        return RunConfig.model_validate(data, context={"folder": Path.cwd()})
    except ValidationError as error:
        faults = (describe_fault(RunConfig, Path(), "", fault) for fault in error.errors())
        raise ConfigError("\n".join(fault.removeprefix(".: ") for fault in faults)) from error
