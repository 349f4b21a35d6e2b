"""Hand text to the terminal's clipboard or to a file, and say honestly which of them happened."""

import time
from pathlib import Path
from typing import Final

from eagletui.core.text import clean_block
from eagletui.tui import figures
from eagletui.tui.screens.frame import FramedScreen

LARGEST_COPY_BYTES: Final = 8 * 1024
"""Terminals drop longer OSC 52 sequences without a word."""


def copy_text(screen: FramedScreen, text: str) -> None:
    """Send cleaned text to the clipboard, where it is short enough to arrive."""
    cleaned = clean_block(text)
    amount = len(cleaned.encode("utf-8", "replace"))
    if amount > LARGEST_COPY_BYTES:
        screen.say((f"{figures.size(amount)} is too much for a terminal clipboard. Y saves it to a file.", "$warning"))
        return
    screen.app.copy_to_clipboard(cleaned)
    screen.say(f"Sent {figures.size(amount)} to the terminal clipboard (tmux needs: set -s set-clipboard on).")


def save_text(screen: FramedScreen, name: str, text: str) -> None:
    """Write cleaned text to a file of the run and show its path."""
    if screen.eagle.folder is None:
        return
    if screen.eagle.read_only:
        screen.say(("Save: read-only", "$warning"))
        return
    folder = screen.eagle.folder.path / "clips"
    stem = "".join(char if char.isalnum() or char in "-_." else "_" for char in name)[:80]
    path = folder / f"{stem}-{time.strftime('%H%M%S', time.localtime(screen.eagle.clock()))}.txt"
    try:
        _write(path, clean_block(text))
    except OSError as error:
        screen.say((f"{path} cannot be written: {error.strerror}", "$error"))
        return
    screen.say(f"Saved to {path}")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")
