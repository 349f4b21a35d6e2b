"""The one door for untrusted text.

Model output, provider errors, prompt files and names may hold bytes that retitle a terminal, write its clipboard,
reorder a line or break its layout. Everything foreign passes through here before it is shown, logged or put into an
error message. The results hold printable characters only (and, for blocks, line feeds).
"""

import re
import unicodedata
from typing import Final

_SEQUENCE: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI with parameters: colours, cursor moves, modes
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)"  # OSC, DCS, SOS, PM, APC
    r"|\x1b[ -/]+[0-~]"  # character sets and the like
    r"|\x1b[0-Z\\^-~]"  # two-character escapes; `[`, `]` and a lone ESC fall to _UNSAFE
)
"""Whole control sequences. An unterminated one loses its ESC only, so that it cannot hide the rest."""

_INVISIBLE: Final = (
    "\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Bidi controls, joiners, variation selectors, fillers, tags: no ink, and terminals disagree about their width."""

_UNSAFE: Final = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_INVISIBLE}]")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_BREAK: Final = re.compile("\r\n|[\r\x0b\x0c\x85\u2028\u2029]")
_STACKED: Final = re.compile(
    "([\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]{3})[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]+"
)
"""Marks piled on one letter paint over the lines above and below; three are kept."""

_TAB_CELLS: Final = 4
_MARKERS: Final = {" ": "·", "\n": "⏎", "\t": "→"}
_ASCII_MARKERS: Final = {" ": ".", "\n": "\\n", "\t": "->"}


def clean_block(text: str, *, ascii_: bool = False) -> str:
    """Make foreign text safe to show over several lines.

    Control sequences are dropped whole, control and invisible characters are dropped, every kind of line break
    becomes a line feed, tabs become spaces, lone surrogates become U+FFFD.

    Args:
        text: anything.
        ascii_: write characters beyond ASCII as backslash escapes, for terminals without UTF-8.
    """
    if text.isascii() and text.isprintable():
        return text
    text = _SEQUENCE.sub("", text)
    text = _BREAK.sub("\n", text)
    text = _UNSAFE.sub("", text)
    text = _SURROGATE.sub("\ufffd", text)
    text = _STACKED.sub(r"\1", text)
    text = text.expandtabs(_TAB_CELLS)
    return _to_ascii(text) if ascii_ else text


def clean_line(text: str, width: int | None = None, *, newline: str = "⏎", ascii_: bool = False) -> str:
    """Make foreign text safe to show on one line.

    Args:
        text: anything.
        width: at most so many terminal cells, the cut marked with an ellipsis; None leaves the length alone.
        newline: what stands for a run of line breaks; a space hides them.
        ascii_: write characters beyond ASCII as backslash escapes, and line breaks as backslash and n.
    """
    if width is not None:
        text = text[: 16 * max(width, 1) + 64]  # a cut before the work: one cell never needs more characters
    block = clean_block(text, ascii_=ascii_)
    if "\n" in block:
        marker = "\\n" if ascii_ and newline == "⏎" else newline
        block = re.sub(r"[ ]*\n[\n ]*", lambda _: marker, block)
    return block if width is None else shorten(block, width, ascii_=ascii_)


def visible(piece: bytes | str, *, ascii_: bool = False) -> str:
    """Spell out one token so that every byte of it can be seen.

    Space, line feed and tab become `·`, `⏎`, `→`; a byte that is not part of a whole UTF-8 character becomes `<E2>`;
    control and invisible characters become `<1B>` or `<U+202E>`.

    Args:
        piece: the token's bytes, or text.
        ascii_: use `.`, `\\n`, `->` and write every character beyond ASCII as `<U+4E2D>`.
    """
    text = piece.decode("utf-8", "surrogateescape") if isinstance(piece, bytes) else piece
    markers = _ASCII_MARKERS if ascii_ else _MARKERS
    shown: list[str] = []
    for char in text:
        code = ord(char)
        if char in markers:
            shown.append(markers[char])
        elif " " < char <= "~":
            shown.append(char)
        elif code < 0x80:
            shown.append(f"<{code:02X}>")
        elif 0xDC80 <= code <= 0xDCFF and isinstance(piece, bytes):
            shown.append(f"<{code - 0xDC00:02X}>")
        elif ascii_ or char in "·⏎→" or char.isspace() or not _has_ink(char):
            shown.append(f"<U+{code:04X}>")
        elif unicodedata.combining(char) and not shown:
            shown.append("◌" + char)
        else:
            shown.append(char)
    return "".join(shown)


def cell_width(text: str) -> int:
    """Count the terminal cells of cleaned text."""
    if text.isascii():
        return len(text)
    return sum(_char_cells(char) for char in text)


def shorten(text: str, width: int, *, ascii_: bool = False) -> str:
    """Cut cleaned text to a number of terminal cells and mark the cut."""
    if cell_width(text) <= width:
        return text
    mark = "~" if ascii_ else "…"
    kept: list[str] = []
    room = width - 1
    for char in text:
        room -= _char_cells(char)
        if room < 0:
            break
        kept.append(char)
    return "".join(kept) + mark if width > 0 else ""


def _char_cells(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def _has_ink(char: str) -> bool:
    return not (_UNSAFE.match(char) or _SURROGATE.match(char) or unicodedata.category(char) in ("Cn", "Zl", "Zp"))


def _to_ascii(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode("ascii")
