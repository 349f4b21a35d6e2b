"""Say what a trainer's loader would do to a training set."""

from collections.abc import Sequence
from typing import Any

from eagletui.core.loaders import LoaderEffect, LoaderRule, SampleLength, loader_effect


def effect_line(rule: LoaderRule, lengths: Sequence[SampleLength], max_length: int) -> str:
    """Return one sentence: at the length in the command and, where that differs, at the trainer's own."""
    effect = loader_effect(rule, lengths, max_length)
    line = (
        f"its loader ({rule.version}) would change {effect.changed:,} of {effect.samples:,} samples at "
        f"{max_length:,} tokens{_parts(effect)}"
    )
    default = loader_effect(rule, lengths, rule.default_length)
    if max_length != rule.default_length:
        line += f"; {default.changed:,} at its default of {rule.default_length:,}{_parts(default)}"
    return line


def effect_object(
    rule: LoaderRule, lengths: Sequence[SampleLength], max_length: int, by_text_changed: int
) -> dict[str, Any]:
    """Return the same as JSON values."""
    effect = loader_effect(rule, lengths, max_length)
    return {
        "trainer": rule.trainer,
        "version": rule.version,
        **_figures(effect),
        "at_default": _figures(loader_effect(rule, lengths, rule.default_length)),
        "by_text_changed": by_text_changed,
    }


def _figures(effect: LoaderEffect) -> dict[str, int]:
    return {
        "max_length": effect.max_length,
        "changed": effect.changed,
        "samples": effect.samples,
        "retokenized": effect.retokenized,
        "truncated": effect.truncated,
        "dropped": effect.dropped,
    }


def _parts(effect: LoaderEffect) -> str:
    named = {"re-tokenized": effect.retokenized, "truncated": effect.truncated, "dropped": effect.dropped}
    parts = [f"{count:,} {name}" for name, count in named.items() if count]
    return f" ({', '.join(parts)})" if parts else ""
