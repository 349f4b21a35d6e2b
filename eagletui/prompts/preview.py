"""The line that stands for a prompt in lists."""

import re
from typing import Final

from eagletui.core.chat import Prompt
from eagletui.core.text import clean_line

PREVIEW_CHARACTERS: Final = 200
_PREVIEWED: Final = 1_000
_SEQUENCE_BEGINS: Final = re.compile("[\x1b\x90-\x9f]")


def preview(prompt: Prompt) -> str:
    """Return the last user turn on one line, else the last turn's."""
    last = next((message for message in reversed(prompt.messages) if message.role == "user"), prompt.messages[-1])
    text = last.content or ""
    if len(text) > _PREVIEWED:
        # Cleaning costs by the length. A beginning will do, unless little of it is left or it may cut a sequence.
        begins = clean_line(text[:_PREVIEWED], newline=" ").rstrip(" ")
        if len(begins) > PREVIEW_CHARACTERS and _SEQUENCE_BEGINS.search(text, 0, _PREVIEWED) is None:
            return begins[:PREVIEW_CHARACTERS]
    return clean_line(text, newline=" ")[:PREVIEW_CHARACTERS]
