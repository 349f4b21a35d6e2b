"""Values of a config: how a path, a place, an amount or a model is written, and what is refused."""

import os
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo

from eagletui.core.money import MAX_PICO, PICO, usd_to_pico
from eagletui.core.run_parts import RunPart

REFUSED_SUFFIXES: Final[Mapping[str, str]] = {
    "online": "adds web search: its fees are outside every bound, and it puts pages into the prompt",
    "nitro": "also admits priority tiers at other prices: name fast endpoints in [provider] only",
    "floor": "also admits flex tiers at other prices: endpoints are chosen here, by price, evidence and speed",
}
"""Of a router's model id, and why."""


class Section(BaseModel):
    """A table of the config: unknown keys are errors, and nothing is converted in silence."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def _resolve(value: object, info: ValidationInfo) -> object:
    if not isinstance(value, str | Path):
        return value
    folder = (info.context or {}).get("folder")
    path = Path(value).expanduser()
    return path if folder is None else Path(os.path.normpath(folder / path))


def _resolve_place(value: object, info: ValidationInfo) -> object:
    """A URL stays; a folder is resolved like every path."""
    if not isinstance(value, str) or "://" in value:
        return value
    return str(_resolve(value, info))


def _decimal(value: object) -> Decimal:
    try:
        number = Decimal("nan") if isinstance(value, bool) else Decimal(str(value))
    except InvalidOperation:
        number = Decimal("nan")
    if not number.is_finite():
        raise ValueError('a decimal number such as "2.50"')
    return number


def _money(value: object) -> Decimal:
    number = _decimal(value)
    try:
        usd_to_pico(number)
    except ValueError:
        raise ValueError(f"an amount up to {MAX_PICO // PICO} dollars, which is what a ledger can hold") from None
    return number


def _part(text: str) -> str:
    return str(RunPart.parse(text))


def _one_or_many(value: object) -> object:
    return [value] if isinstance(value, str | Path) else value


def _plain_model(value: object) -> object:
    """Refuse a router's model with a suffix that changes what a request costs or who answers it."""
    suffixes = value.partition("/")[2].split(":")[1:] if isinstance(value, str) else []
    for suffix in suffixes:
        if suffix in REFUSED_SUFFIXES:
            raise ValueError(f"a model without :{suffix}, which {REFUSED_SUFFIXES[suffix]}")
    return value


FilePath = Annotated[Path, BeforeValidator(_resolve)]
Money = Annotated[Decimal, BeforeValidator(_money), Field(ge=0)]
Place = Annotated[str, BeforeValidator(_resolve_place)]
"""A folder, absolute, or a URL."""
Part = Annotated[str, AfterValidator(_part)]
"""`I/N`."""
FilePaths = Annotated[list[FilePath], BeforeValidator(_one_or_many), Field(min_length=1)]
"""One path or several."""
ModelName = Annotated[str, BeforeValidator(_plain_model), Field(min_length=1)]
