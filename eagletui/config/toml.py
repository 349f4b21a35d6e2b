"""A config as TOML text, for the copy in the run folder."""

import json
from collections.abc import Collection

from pydantic import BaseModel


def to_toml(config: BaseModel, *, without: Collection[str] = ()) -> str:
    """Return the config as TOML that `load_config` reads back to an equal config.

    Args:
        config: what to write.
        without: dotted keys to leave to their defaults.
    """
    lines: list[str] = []
    for section, values in config.model_dump(mode="json", exclude_none=True).items():
        overrides = values.pop("overrides", {})
        lines.append(f"[{section}]")
        lines += [f"{key} = {_toml_value(value)}" for key, value in values.items() if f"{section}.{key}" not in without]
        lines.append("")
        for dataset, changes in overrides.items():
            lines.append(f"[{section}.{_toml_string(dataset)}]")
            lines += [f"{key} = {_toml_value(value)}" for key, value in changes.items()]
            lines.append("")
    return "\n".join(lines)


def _toml_string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml_string(key)} = {_toml_value(item)}" for key, item in value.items()) + "}"
    return _toml_string(str(value))
