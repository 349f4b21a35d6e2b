"""Fit the app to the terminal it runs in, before the screen library is loaded."""

import locale
import os
from collections.abc import Mapping, MutableMapping
from typing import Final

MIN_COLUMNS: Final = 60
MIN_ROWS: Final = 16
LOCAL_REFRESH_S: Final = 0.25
SSH_REFRESH_S: Final = 0.5

_FROM_HERE: Final = "From here: eagletui status RUN --watch, or eagletui inspect RUN."
_OVER_SSH: Final = {"TEXTUAL_FPS": "15", "TEXTUAL_ANIMATIONS": "none", "TEXTUAL_SMOOTH_SCROLL": "0"}


def refusal(environ: Mapping[str, str], *, is_terminal: bool) -> str | None:
    """Say why the app cannot be drawn here and what to do instead, or None where it can."""
    if not is_terminal:
        return f"This is not a terminal. {_FROM_HERE}"
    if environ.get("TERM", "") in ("", "dumb"):
        name = environ.get("TERM") or "unset"
        return f"TERM is {name}, which cannot draw screens. {_FROM_HERE}"
    return None


def prepare(environ: MutableMapping[str, str] = os.environ) -> None:
    """Set what the screen library reads when it is imported: fewer frames and no motion over SSH."""
    if "SSH_CONNECTION" in environ:
        for name, value in _OVER_SSH.items():
            environ.setdefault(name, value)


def refresh_seconds(environ: Mapping[str, str]) -> float:
    """How often the ledger is looked at unless the person says otherwise."""
    return SSH_REFRESH_S if "SSH_CONNECTION" in environ else LOCAL_REFRESH_S


def theme_name(environ: Mapping[str, str]) -> str:
    """Choose the theme: the terminal's own colours where it has few, or where none are wanted."""
    term = environ.get("TERM", "")
    rich = "COLORTERM" in environ or any(
        word in term for word in ("256color", "direct", "kitty", "ghostty", "alacritty")
    )
    return "eagle-mono" if "NO_COLOR" in environ or not rich else "eagle-dark"


def needs_ascii(encoding: str | None = None) -> bool:
    """Tell whether the locale cannot write the glyphs."""
    name = encoding or locale.getpreferredencoding(False)
    return "utf" not in name.lower()
