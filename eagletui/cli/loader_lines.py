"""Say what a trainer's loader would do to a training set."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from eagletui.core.loaders import LoaderEffect, LoaderRule, SampleLength, loader_effect

_UNPROVED: Final = ("counted", "canonical", "conflict")
"""Evidence by which ids are those of the text for want of others, so that no difference can show."""


def effect_line(
    rule: LoaderRule,
    lengths: Sequence[SampleLength],
    max_length: int,
    served: int | None = None,
    largest: int | None = None,
) -> str:
    """Return one sentence: at the length in the command and, where that differs, at the trainer's own.

    Args:
        rule: the loader's.
        lengths: of every sample.
        max_length: the limit of tokens in the command.
        served: tokens of the longest sample that the trainer's server takes; None: any.
        largest: the largest limit that its server starts with for this target; None: any.
    """
    effect = loader_effect(rule, lengths, max_length, served)
    if rule.refuses_long and effect.refused:
        return (
            f"its loader ({rule.version}) would refuse the file at {max_length:,} tokens: {effect.refused:,} of "
            f"{effect.samples:,} samples are longer"
        )
    line = (
        f"its loader ({rule.version}) would change {effect.changed:,} of {effect.samples:,} samples at "
        f"{max_length:,} tokens{_parts(effect)}"
    )
    if largest is not None and largest < rule.default_length:
        return f"{line}; the target has no room for its default of {rule.default_length:,}"
    default = loader_effect(rule, lengths, rule.default_length, served)
    if max_length != rule.default_length:
        line += f"; {default.changed:,} at its default of {rule.default_length:,}{_parts(default)}"
    return line


def effect_object(
    rule: LoaderRule,
    lengths: Sequence[SampleLength],
    max_length: int,
    by_text_changed: int,
    by_evidence: Mapping[str, int],
    served: int | None = None,
) -> dict[str, Any]:
    """Return the same as JSON values."""
    effect = loader_effect(rule, lengths, max_length, served)
    return {
        "trainer": rule.trainer,
        "version": rule.version,
        **_figures(effect),
        "at_default": _figures(loader_effect(rule, lengths, rule.default_length, served)),
        "by_text_changed": by_text_changed,
        "by_text_unproved": _unproved(by_evidence),
    }


def by_text_line(changed: int, samples: int, by_evidence: Mapping[str, int]) -> str:
    """Say what handing over text would change at least; a template's own losses cannot be told without the trainer's.

    Args:
        changed: samples whose proved ids are not those of their text, as `status` and `inspect` count them: what a
            cut in mid-character hides is in no text.
        samples: of the set.
        by_evidence: samples by why their ids are believed.
    """
    unproved = _unproved(by_evidence)
    rest = f"; {unproved:,} more cannot be told, their ids are not proved" if unproved else ""
    return (
        f"given text instead, a trainer would train on other ids in at least {changed:,} of {samples:,} samples{rest}. "
        "What its chat template leaves out of an answer, reasoning for one, and what a cut in mid-character hides come "
        "on top"
    )


def _unproved(by_evidence: Mapping[str, int]) -> int:
    return sum(by_evidence.get(evidence, 0) for evidence in _UNPROVED)


def _figures(effect: LoaderEffect) -> dict[str, int]:
    return {
        "max_length": effect.max_length,
        "changed": effect.changed,
        "samples": effect.samples,
        "retokenized": effect.retokenized,
        "truncated": effect.truncated,
        "dropped": effect.dropped,
        "refused": effect.refused,
    }


def _parts(effect: LoaderEffect) -> str:
    named = {
        "re-tokenized": effect.retokenized,
        "truncated": effect.truncated,
        "dropped": effect.dropped,
        "refused": effect.refused,
    }
    parts = [f"{count:,} {name}" for name, count in named.items() if count]
    return f" ({', '.join(parts)})" if parts else ""
