"""In what two configs differ, and what of it an existing run may take over."""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

MAY_CHANGE: Final = ("spend", "pace", "check", "notify")
"""Sections that `run` on an existing run may change, and `[run] mirror`; the rest is frozen when it is created."""


def changed_fields(old: BaseModel, new: BaseModel) -> list[str]:
    """Name every key in which two configs differ, dotted (`sampling.temperature`), in file order."""
    a, b = _flatten(old.model_dump()), _flatten(new.model_dump())
    return [key for key in dict.fromkeys([*a, *b]) if a.get(key) != b.get(key)]


def may_change(field: str) -> bool:
    """Tell whether an existing run may take a new value of this dotted key."""
    return field == "run.mirror" or field.split(".", 1)[0] in MAY_CHANGE


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict) and key != "template_kwargs":
            flat |= _flatten(value, prefix if key == "overrides" else f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
