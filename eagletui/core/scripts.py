"""Writing systems of a text, by counting letters."""

import re
from typing import Final

_CLASSES: Final[dict[str, str]] = {
    "latin": "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u1e00-\u1eff",
    "greek": "\u0370-\u03ff\u1f00-\u1fff",
    "cyrillic": "\u0400-\u052f",
    "hebrew": "\u0590-\u05ff",
    "arabic": "\u0600-\u06ff\u0750-\u077f\u08a0-\u08ff\ufb50-\ufdff\ufe70-\ufefc",
    "indic": "\u0900-\u0dff",
    "thai": "\u0e00-\u0eff",
    "hangul": "\u1100-\u11ff\u3130-\u318f\uac00-\ud7af",
    "kana": "\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f",
    "han": "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff",
}
_ASCII_LETTERS: Final = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ASCII: Final = re.compile(r"[\x00-\x7f]+")
_PATTERNS: Final = {name: re.compile(f"[{letters}]") for name, letters in _CLASSES.items()}

COUNTED: Final = 2_000
"""Characters of a text that are looked at."""


def script_counts(text: str) -> dict[str, int]:
    """Count the letters of each writing system in the beginning of a text; those without any are left out."""
    part = text[:COUNTED]
    data = part.encode("ascii", "ignore")
    counts = {"latin": len(data) - len(data.translate(None, _ASCII_LETTERS))}
    if len(data) < len(part):
        beyond = _ASCII.sub("", part)
        counts |= {name: len(pattern.findall(beyond)) + counts.get(name, 0) for name, pattern in _PATTERNS.items()}
    return {name: number for name, number in counts.items() if number}


def main_script(text: str) -> str:
    """Name the writing system of most letters; Japanese counts as kana from a tenth of kana on. '' without letters."""
    counts = script_counts(text)
    if not counts:
        return ""
    if counts.get("kana", 0) * 10 > counts.get("han", 0) + counts.get("kana", 0):
        counts["kana"] += counts.pop("han", 0)
    return max(counts, key=lambda name: counts[name])
