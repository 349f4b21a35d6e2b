"""What a router's list says of a model's reasoning, held against what a run asks."""

from collections.abc import Mapping
from dataclasses import dataclass

from eagletui.core.key_preflight import Preflight


@dataclass(frozen=True, slots=True)
class ReasoningRule:
    """`reasoning` of a model in a router's list."""

    efforts: tuple[str, ...] = ()
    """Those it knows; empty: not stated."""
    takes_tokens: bool | None = None
    """A number of tokens bounds its reasoning; None: not stated."""
    mandatory: bool = False
    """It always reasons."""


def inspect_reasoning(model_id: str, rule: ReasoningRule | None, asked: Mapping[str, str]) -> Preflight:
    """Compare what a model can with what is asked of it.

    Args:
        model_id: for people.
        rule: of the model; None: its list says nothing.
        asked: `reasoning` by the section that sets it (`[sampling]`, `[sampling.NAME]`).
    """
    found = Preflight([], [])
    if rule is None:
        return found
    known = ", ".join(rule.efforts)
    for section, value in asked.items():
        where = f'{section} reasoning = "{value}"'
        if value == "off" and rule.mandatory:
            choice = f", or one of its efforts: {known}" if known else ""
            found.refusals.append(
                f"{where}: {model_id} always reasons, so that requests would be refused or think, and be billed, all "
                f'the same. Use "default"{choice}.'
            )
        elif value.isdecimal() and rule.takes_tokens is False:
            found.notes.append(f"{where}: {model_id} takes no number of tokens; the router makes an effort of it.")
        elif value not in ("off", "default") and not value.isdecimal() and rule.efforts and value not in rule.efforts:
            found.notes.append(
                f"{where}: {model_id} knows {known}; the router takes another effort for it, or refuses."
            )
    return found
