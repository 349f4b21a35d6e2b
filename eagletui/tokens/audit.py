"""Audit a tokenizer folder, alone or against an output format, before any money is spent."""

from collections.abc import Sequence
from typing import Final

from eagletui.core.outputs import OutputFormat, Text, fitted, split_specials
from eagletui.core.text import visible
from eagletui.tokens.fit import Check, fit_checks, generation_config_checks, name_id
from eagletui.tokens.load import Tokenizer

_ENDINGS: Final = ("word", "word.", "word:", "word,", "word)", 'word"', "word}", "word`", "word\n", "12", "字", "🎉")
"""How texts end before structure: where a merge over the boundary is likely."""

_STARTS: Final = ("word", " word", "\n", "\n\n", "#", "{", "`", "1", "字")
"""How texts begin behind structure."""


def audit(tokenizer: Tokenizer, fmt: OutputFormat | None) -> list[Check]:
    """Run every check.

    Args:
        tokenizer: as loaded.
        fmt: the format to check against; None checks the folder alone.
    """
    checks = _tokenizer_checks(tokenizer)
    if fmt is None:
        return [*checks, *generation_config_checks(tokenizer, {}), *_eos_alone(tokenizer)]
    return [*checks, *fit_checks(tokenizer, fmt), *_merge_checks(tokenizer, fitted(fmt, tokenizer.vocabulary.specials))]


def passed(checks: Sequence[Check]) -> bool:
    """Tell whether no check of level `error` failed."""
    return not any(check.failed for check in checks)


def _tokenizer_checks(tokenizer: Tokenizer) -> list[Check]:
    """The vocabulary's bytes, and what loading had to switch off."""
    vocabulary = tokenizer.vocabulary
    shared = vocabulary.ids_not_found()
    detail = f"{vocabulary.size:,} ids, {len(vocabulary.specials)} added tokens; "
    if shared:
        detail += f"{len(shared)} pieces have the bytes of another one, first {name_id(tokenizer, shared[0])}"
    else:
        detail += "every ordinary piece is found by its bytes"
    checks = [Check("bytes", not shared, "warn", detail, tuple(shared[:8]))]
    mistaken = [
        (token_id, literal)
        for literal, token_id in vocabulary.specials.items()
        if vocabulary.id_of(literal.encode()) is not None
    ]
    if mistaken:
        token_id, literal = mistaken[0]
        detail = f"{len(mistaken)} added tokens are also ordinary pieces, first {literal!r} ({token_id})"
        checks.append(Check("literals", False, "warn", detail, tuple(token_id for token_id, _ in mistaken[:8])))
    checks += [Check("loading", True, "info", note) for note in tokenizer.notes]
    return checks


def _eos_alone(tokenizer: Tokenizer) -> list[Check]:
    """Without a format, compare the tokenizer's own end with the generation config's."""
    eos = tokenizer.eos_token
    declared = tokenizer.generation_config.get("eos_token_id")
    if eos is None or declared is None:
        return []
    claimed = declared if isinstance(declared, list) else [declared]
    eos_id = tokenizer.vocabulary.specials.get(eos)
    named = ", ".join(name_id(tokenizer, token_id) for token_id in claimed if isinstance(token_id, int))
    detail = f"tokenizer.eos_token is {eos!r} ({eos_id}); generation_config.json ends answers with {named}"
    return [Check("eos_token", eos_id in claimed, "warn", detail, () if eos_id is None else (eos_id,))]


def _merge_checks(tokenizer: Tokenizer, fmt: OutputFormat) -> list[Check]:
    """Report where ordinary glue merges with the text beside it, so that a part must not be encoded alone."""
    rule, tools = fmt.reasoning, fmt.tools
    literals = {
        "reasoning close": rule.before_close + rule.close + rule.after_close,
        "tool section": tools.before_with_content + tools.open,
        "tool section end": tools.close + tools.after,
    }
    checks: list[Check] = []
    for name, literal in literals.items():
        parts = split_specials(literal, fmt.specials)
        if not parts:
            continue
        found: list[str] = []
        if isinstance(parts[0], Text):
            found += _merging(tokenizer, [(ending, parts[0].text) for ending in _ENDINGS])
        if isinstance(parts[-1], Text):
            found += _merging(tokenizer, [(parts[-1].text, start) for start in _STARTS])
        if found:
            detail = f"{literal!r} merges with the text beside it: {'; '.join(found[:4])}"
            checks.append(Check(f"merges {name}", True, "info", detail))
    return checks


def _merging(tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Pairs of texts whose joint encoding has a token across the boundary."""
    found: list[str] = []
    for left, right in pairs:
        together = tokenizer.encode(left + right)
        if together == [*tokenizer.encode(left), *tokenizer.encode(right)]:
            continue
        at = 0
        for token_id in together:
            end = at + len(tokenizer.vocabulary.bytes_of(token_id))
            if at < len(left.encode()) < end:
                found.append(f"{visible(left)} + {visible(right)} has {name_id(tokenizer, token_id)}")
            at = end
    return found
