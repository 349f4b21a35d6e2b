"""Colours and glyphs: three themes, two glyph sets.

State is always readable without colour: a glyph and a word come first. Colours are Okabe and Ito's, told apart with
every kind of colour vision; a diff is orange and blue, never red and green.
"""

from dataclasses import dataclass
from typing import Any, Final

from textual.app import App
from textual.theme import Theme

DARK: Final = Theme(
    name="eagle-dark",
    primary="#56B4E9",
    secondary="#0072B2",
    warning="#E69F00",
    error="#E8703A",
    success="#2DB58D",
    accent="#56B4E9",
    foreground="#D6DADF",
    background="#101418",
    surface="#101418",
    panel="#1B2228",
    boost="#232C34",
    dark=True,
    variables={
        "frame": "#3B4752",
        "quiet": "#8793A0",
        "off": "#5F6C78",
        "proved": "#E69F00",
        "rebuilt": "#56B4E9",
        "cursor": "#24425A",
        "scrollbar": "#3B4752",
        "scrollbar-background": "#101418",
    },
)
LIGHT: Final = Theme(
    name="eagle-light",
    primary="#0072B2",
    secondary="#56B4E9",
    warning="#A06A00",
    error="#B84A00",
    success="#00724F",
    accent="#0072B2",
    foreground="#1C2126",
    background="#FAFAF7",
    surface="#FAFAF7",
    panel="#EEEEE9",
    boost="#E4E4DE",
    dark=False,
    variables={
        "frame": "#B4B9BE",
        "quiet": "#626B73",
        "off": "#878E95",
        "proved": "#A06A00",
        "rebuilt": "#0072B2",
        "cursor": "#CFE3F2",
        "scrollbar": "#B4B9BE",
        "scrollbar-background": "#FAFAF7",
    },
)
MONO: Final = Theme(
    name="eagle-mono",
    ansi=True,
    primary="ansi_cyan",
    secondary="ansi_blue",
    warning="ansi_yellow",
    error="ansi_red",
    success="ansi_green",
    accent="ansi_cyan",
    foreground="ansi_default",
    background="ansi_default",
    surface="ansi_default",
    panel="ansi_default",
    boost="ansi_default",
    dark=True,
    variables={
        "frame": "ansi_default",
        "quiet": "ansi_default",
        "off": "ansi_default",
        "proved": "ansi_yellow",
        "rebuilt": "ansi_cyan",
        "cursor": "ansi_default",
        "scrollbar": "ansi_default",
        "scrollbar-background": "ansi_default",
        "ansi-background": "ansi_black",
        "ansi-foreground": "ansi_white",
        "border-blurred": "ansi_default",
        "block-cursor-foreground": "ansi_black",
        "block-cursor-background": "ansi_white",
        "input-cursor-background": "ansi_white",
        "input-cursor-foreground": "ansi_black",
        "input-cursor-text-style": "reverse",
    },
)
"""The terminal's own sixteen colours; with NO_COLOR only attributes are left."""
THEMES: Final = (DARK, LIGHT, MONO)


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The marks the app itself draws, one cell each unless said otherwise."""

    running: str
    draining: str
    paused: str
    limit: str
    """Paused at a limit of money."""
    done: str
    failed: str
    stale: str
    queued: str
    warning: str
    falling: str
    fill: str
    """The settled part of a bar."""
    promised: str
    """The held part of a bar."""
    room: str
    """The empty part of a bar."""
    mark: str
    """A limit on a bar."""
    sparks: str
    """Eight heights, lowest first."""
    separator: str
    dot: str


UNICODE: Final = Glyphs(
    running="●",
    draining="◐",
    paused="=",
    limit="$",
    done="■",
    failed="×",
    stale="?",
    queued="○",
    warning="▲",
    falling="▼",
    fill="━",
    promised="╍",
    room="─",
    mark="┃",
    sparks="▁▂▃▄▅▆▇█",
    separator="│",
    dot="·",
)
ASCII: Final = Glyphs(
    running="*",
    draining="%",
    paused="=",
    limit="$",
    done="#",
    failed="x",
    stale="?",
    queued="o",
    warning="^",
    falling="v",
    fill="#",
    promised="+",
    room=".",
    mark="|",
    sparks="_.,-~=*#",
    separator="|",
    dot=".",
)


def is_ascii(app: App[Any]) -> bool:
    """Tell whether the app may draw ASCII only."""
    return app.has_class("-ascii")


def glyphs_of(app: App[Any]) -> Glyphs:
    """Give the marks that the app may draw."""
    return ASCII if is_ascii(app) else UNICODE
