"""What the launcher knows: the configs that are here, the fields a person edits, and a plan in words.

Pure but for `find_configs`, which reads small files.
"""

import os
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final

import eagletui
from eagletui.config.run_config import RunConfig, load_config, with_values
from eagletui.config.toml import to_toml
from eagletui.core.errors import ConfigError
from eagletui.core.money import usd_to_pico
from eagletui.runs.find import list_runs
from eagletui.runs.folder import runs_root
from eagletui.tui import figures
from eagletui.tui.widgets.safe_text import Piece

Line = tuple[Piece, ...]

OWN_TOKENIZER: Final = "/embedded"
"""Stands for the tokenizer that the embedded provider brings along; it never reaches a file."""


@dataclass(frozen=True, slots=True)
class Found:
    """A config that can be started from."""

    path: Path
    name: str
    """Where it comes from, as the list shows it."""
    model: str
    provider: str
    trouble: str = ""
    """Why it cannot be read; '' when it can."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of the form."""

    id: str
    label: str
    key: str
    """Dotted key of the config."""
    help: str


FIELDS: Final = (
    Field("name", "name", "run.name", "Letters, digits, dots, dashes, underscores."),
    Field("prompts", "prompts", "prompts.path", 'Files with a space between; quote "a name with spaces".'),
    Field("limit", "limit", "prompts.limit", "At most this many samples; empty for all."),
    Field("max-tokens", "max tokens", "sampling.max_tokens", "Longest answer; also bounds its money."),
    Field("only", "endpoints", "provider.only", "Who may answer, with a space between; empty for all."),
    Field("stop-at", "stop-at $", "spend.stop_at_usd", "No new request once this much is settled."),
    Field("cap", "cap $", "spend.cap_usd", "Never committed beyond, worst case included."),
    Field("in-flight", "in flight", "pace.max_in_flight", "Requests at a time, 1 to 20,000."),
)
_NUMBERS: Final = ("prompts.limit", "sampling.max_tokens", "pace.max_in_flight")
_LISTS: Final = ("prompts.path", "provider.only")


def find_configs() -> list[Found]:
    """List the configs of this folder, of its `configs`, those that ship with the program, and those of runs."""
    package = Path(eagletui.__file__).parent
    folders = [Path.cwd(), Path.cwd() / "configs", package / "configs", package.parent / "configs"]
    found: dict[Path, Found] = {}
    for folder in folders:
        for path in sorted(folder.glob("*.toml")) if folder.is_dir() else ():
            _add(found, path, os.path.relpath(path) if path.is_relative_to(Path.cwd()) else f"shipped {path.name}")
    for run in list_runs():
        _add(found, run.config_path, f"of run {run.name}")
    return list(found.values())


def _add(found: dict[Path, Found], path: Path, name: str) -> None:
    path = path.resolve()
    if path in found:
        return
    try:
        data: Mapping[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        found[path] = Found(path, name, "", "", f"cannot be read: {error}")
        return
    model, provider = data.get("model"), data.get("provider")
    if isinstance(model, dict) and isinstance(provider, dict):
        found[path] = Found(path, name, str(model.get("id", "")), str(provider.get("kind", "")))


def read_draft(path: Path) -> RunConfig:
    """Read a config to start from.

    Raises:
        ConfigError: one line per fault.
    """
    return load_config(path, model_defaults={"tokenizer": OWN_TOKENIZER})


def free_name(name: str) -> str:
    """Find a name that no run has: the given one, or with a number behind it."""
    number, candidate = 1, name
    while (runs_root() / candidate).exists():
        number += 1
        candidate = f"{name}-{number}"
    return candidate


def field_texts(config: RunConfig) -> dict[str, str]:
    """Write a config's values as the form shows them, by field id."""
    data = config.model_dump()
    texts: dict[str, str] = {}
    for field in FIELDS:
        section, key = field.key.split(".")
        value = data[section][key]
        if field.key in _LISTS:
            texts[field.id] = shlex.join(_short(item) for item in value)
        else:
            texts[field.id] = "" if value is None else str(value)
    return texts


def _short(item: object) -> str:
    text = str(item)
    try:
        near = os.path.relpath(text) if isinstance(item, Path) else text
    except ValueError:
        return text
    return near if not near.startswith("..") else text


def edited(config: RunConfig, texts: Mapping[str, str]) -> RunConfig:
    """Take over what the form says.

    Raises:
        ConfigError: a field cannot be used; the message begins with its dotted key, a line each.
    """
    values: dict[str, object] = {}
    faults: list[str] = []
    for field in FIELDS:
        try:
            values[field.key] = _value(field.key, texts[field.id].strip())
        except ValueError as error:
            faults.append(f"{field.key}: {error}")
    if faults:
        raise ConfigError("\n".join(faults))
    changed = with_values(config, values)
    for path in changed.prompts.path:
        if not path.is_file():
            raise ConfigError(f"prompts.path: {path}: no such file")
    if (runs_root() / changed.run.name).exists():
        raise ConfigError(
            f"run.name: run {changed.run.name} exists; open it from the list of runs, or take another name"
        )
    return changed


def _value(key: str, text: str) -> object:
    if key in _LISTS:
        try:
            return shlex.split(text)
        except ValueError:
            raise ValueError('found a quote that is not closed, expected names such as a.jsonl "b c.jsonl"') from None
    if key in _NUMBERS:
        if not text and key == "prompts.limit":
            return None
        digits = text.replace(",", "").replace("_", "")
        if not digits.isdecimal():
            raise ValueError(f"found {text or 'nothing'}, expected a whole number")
        return int(digits)
    if key.startswith("spend."):
        return text.removeprefix("$").replace(",", "")
    return text


def draft_toml(config: RunConfig) -> str:
    """Write the config for the plan and the run; what the embedded provider brings along stays out."""
    own = str(config.model.tokenizer) == OWN_TOKENIZER
    return to_toml(config, without=("model.tokenizer",) if own else ())


def key_line(config: RunConfig, environ: Mapping[str, str]) -> Line:
    """Say where the provider's key comes from and whether it is there. A command is run by the plan alone."""
    provider = config.provider
    if provider.api_key_command is not None:
        return ("from a command, which the plan runs",)
    if provider.api_key_file is not None:
        there = provider.api_key_file.is_file()
        return (f"file {provider.api_key_file} ", ("is there" if there else "is missing", "" if there else "$error"))
    variable = provider.api_key_env or ("OPENROUTER_API_KEY" if provider.kind == "openrouter" else None)
    if variable is None:
        return ("none needed",)
    there = bool(environ.get(variable, "").strip())
    return (f"{variable} ", ("is set" if there else "is not set", "" if there else "bold $error"))


def plan_lines(plan: Mapping[str, Any], key: Line) -> list[Line]:
    """Word what `eagletui plan --json` found, refusals first."""
    lines: list[Line] = [((f"refused  {refusal}", "bold $error"),) for refusal in plan.get("refusals", ())]
    if "samples" not in plan:
        return [*lines, _pair("key", *key)]
    if lines:
        lines.append(("",))
    spend, disk, flight = plan["spend_usd"], plan["disk_bytes"], plan["in_flight"]
    lines += [
        _pair("samples", (figures.count(plan["samples"]), "bold"), _datasets(plan["by_dataset"])),
        *_likely(plan),
        _pair("at most", (_usd(spend["worst_case"]), "bold"), ", if every answer were cut at max tokens"),
        _pair(
            "tokens",
            f"{figures.count(plan['prompt_tokens'])} prompt,"
            f" at most {figures.count(plan['output_tokens_worst'])} output",
        ),
        _pair("request", f"one holds at most {_usd(spend['largest_hold'], 6)}"),
        _pair("pace", *_pace(spend, flight)),
        _pair(
            "disk",
            f"ledger {figures.size(disk['ledger'])}, features {figures.size(disk['features'])} at most",
        ),
        _pair("", f"of {figures.size(disk['free'])} free"),
        _pair("key", *key),
        _pair("audit", "tokenizer, format and template fit together"),
        ("",),
        ((f"{'endpoint':<20} {'in $/1M':>8} {'out $/1M':>8}  {'proof':<9} weights", "$quiet"),),
    ]
    lines += [_endpoint(endpoint) for endpoint in plan["endpoints"]] or [("no endpoint told its price",)]
    notes = plan.get("notes", ())
    if notes:
        lines += [("",), *((("note  ", "$quiet"), str(note)) for note in notes)]
    return lines


def _likely(plan: Mapping[str, Any]) -> list[Line]:
    """Say what it will likely cost and when it ends, and what that rests on; nothing where no price is known."""
    dollars, finish = plan.get("likely_usd"), plan.get("finish")
    if not dollars or not finish:
        return []
    learned = ", ".join(plan.get("learned_from", ()))
    basis = f"learned from {learned}" if learned else "assumed: no answer to learn from yet"
    under = f"about {figures.duration(finish['seconds'])} under this cap"
    if finish["answered"] < plan["samples"]:
        under += f", then a limit is reached at {figures.count(finish['answered'])} samples"
    return [
        _pair("likely", (_usd(dollars["likely"]), "bold"), f", {_usd(dollars['low'])} to {_usd(dollars['high'])}"),
        _pair("", (basis, "$quiet")),
        _pair("time", under),
    ]


def cost_line(plan: Mapping[str, Any]) -> str:
    """Sum a plan up: how many samples, for how much."""
    samples = figures.plural(plan["samples"], "sample")
    dollars = plan.get("likely_usd")
    likely = f"likely {_usd(dollars['likely'])}, " if dollars else ""
    return f"{samples}, {likely}at most {_usd(plan['spend_usd']['worst_case'])}"


def _pair(label: str, *pieces: Piece) -> Line:
    return ((f"{label:<9}", "$quiet"), *pieces)


def _datasets(by_dataset: Mapping[str, Any]) -> str:
    shown = [f"{name} {figures.count(share['samples'])}" for name, share in list(by_dataset.items())[:4]]
    more = f", {len(by_dataset) - 4} more" if len(by_dataset) > 4 else ""
    return f"   {', '.join(shown)}{more}" if len(by_dataset) > 1 else ""


def _pace(spend: Mapping[str, str], flight: Mapping[str, Any]) -> Line:
    near = flight["near_stop_at"]
    if near is None:
        return ("prices are 0, so the cap never binds",)
    needed = usd_to_pico(spend["full_pace_cap"])
    if usd_to_pico(spend["cap"]) >= needed:
        return (f"the cap lets {figures.plural(flight['max'], 'request')} run up to stop-at",)
    few = f"near stop-at only {figures.plural(near, 'request')} may run"
    return ((f"{few}; full pace needs a cap of {figures.usd_short(needed)}", "$warning"),)


def _endpoint(endpoint: Mapping[str, Any]) -> Line:
    proof = next((name for name in ("ids", "logprobs", "stream") if endpoint.get(name)), "text only")
    tag = str(endpoint["tag"])
    prices = f"{_number(endpoint['prompt_usd_per_million']):>8} {_number(endpoint['completion_usd_per_million']):>8}"
    return (f"{tag[:20]:<20} {prices}  {proof:<9} {endpoint.get('quantization') or '-'}",)


def _usd(text: str, places: int = 4) -> str:
    return f"${Decimal(text):,.{places}f}"


def _number(text: str) -> str:
    try:
        return f"{Decimal(text):.2f}"
    except InvalidOperation:
        return text
