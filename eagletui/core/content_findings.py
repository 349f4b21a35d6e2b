"""Shifts of an endpoint's output in words: how many of how many, what was usual, an example, what to do."""

from collections.abc import Sequence
from typing import Final

from eagletui.core.answer_traits import INDEX, TRAITS, Traits, length_of
from eagletui.core.findings import Finding
from eagletui.core.shifts import Shift

CONTENT_KINDS: Final = tuple(dict.fromkeys(trait.kind for trait in TRAITS if trait.kind))
"""Kinds of finding that the content checks open."""


def content_finding(
    endpoint: str, found: Sequence[Shift], window: Sequence[tuple[str, Traits]], since: str = ""
) -> Finding:
    """Word the shifts of one kind at one endpoint.

    Args:
        endpoint: its name.
        found: at least one, of one kind.
        window: sample key and traits of the last answers, oldest first.
        since: when the first answer that shows it came, as `ctl` reads it.
    """
    shift = max(found, key=lambda one: abs(one.mean - one.usual) / max(one.trait.least, 1e-9))
    index = INDEX[shift.trait.name]
    examined = [(key, traits) for key, traits in window[-shift.looked :] if traits.values[index] is not None]
    affected = [key for key, traits in examined if shows(shift, traits)]
    sentence = f"On endpoint {endpoint}, {_what(shift, len(affected), len(examined))}"
    command = f"`ctl RUN quarantine {endpoint}{f' --since {since}' if since else ''}`"
    action = f"Read the example; {command} sets such answers aside and says what buying them again costs."
    example = affected[-1] if affected else None
    return Finding(shift.trait.kind, sentence, len(affected), len(examined), example, action, endpoint)


def shows(shift: Shift, traits: Traits) -> bool:
    """Tell whether one answer has what changed."""
    value = traits.values[INDEX[shift.trait.name]]
    if value is None:
        return False
    if shift.trait.rule == "fault":
        return value > 0.5
    if shift.trait.rule == "share":
        return (value > 0.5) == (shift.mean > shift.usual)
    middle = (shift.mean + shift.usual) / 2
    return value > middle if shift.mean > shift.usual else value < middle


def _what(shift: Shift, affected: int, examined: int) -> str:
    trait = shift.trait
    usual = "elsewhere" if shift.against == "others" else "before"
    of_all = f"{affected} of the last {examined} {trait.among}"
    if trait.rule == "fault" and shift.against == "ceiling":
        return f"{of_all} {trait.words}, more than {shift.usual:.0%} is a fault whatever was usual"
    if trait.rule in ("fault", "share"):
        no_longer = trait.rule == "share" and shift.mean < shift.usual
        verb = f"do not {trait.words}" if no_longer else trait.words
        return f"{of_all} {verb}; {usual} it was {1 - shift.usual if no_longer else shift.usual:.1%}"
    more = "more" if shift.mean > shift.usual else "less"
    if trait.unit == "characters":
        longer = "longer" if shift.mean > shift.usual else "shorter"
        what = "reason" if trait.name == "thinking" else "are"
        how = f"{length_of(shift.mean):,.0f} characters where {length_of(shift.usual):,.0f} were usual {usual}"
        return f"{of_all} {what} {longer} than usual: {how}"
    return f"{of_all} have {more} that {trait.words}: {shift.mean:.0%} where {shift.usual:.0%} was usual {usual}"
