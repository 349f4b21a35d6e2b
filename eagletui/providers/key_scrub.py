"""Take API keys out of what a server says: it may repeat them, and they must reach neither disk nor screen."""

import functools
import json
import re
from typing import AnyStr, Final

SECRET_CHARACTERS: Final = 12
"""A shorter key is a word such as EMPTY, which an answer may hold; it is left in bodies."""
WORD_CHARACTERS: Final = 8
"""A shorter key may be part of any word, so that in what is told to people it goes only where it stands as a key."""
KNOWN_CHARACTERS: Final = 9
"""Of the beginning of a key that a text was cut in, so many may stand: `sk-or-v1-` is on every key."""


class KeyScrub:
    """Knows every key that was ever sent: a reply to an earlier one may still come."""

    def __init__(self) -> None:
        self._keys: list[str] = []
        self._secrets: set[bytes] = set()

    def add(self, key: str) -> None:
        """Take another key out from here on; "" is none."""
        if key:
            self._keys.append(key)
        if len(key) >= SECRET_CHARACTERS:
            self._secrets |= {text.encode() for text in (key, json.dumps(key)[1:-1], key.replace("/", "\\/"))}

    def body(self, body: bytes, *, is_cut: bool = False) -> bytes:
        """Take the keys out of what will be kept; a server that repeats one has no answer in that place."""
        for secret in self._secrets:
            if secret in body:
                body = body.replace(secret, b"[key]")
            if is_cut:
                body = _without_start(body, secret, b"[key]")
        return body

    def words(self, text: str) -> str:
        """Take the keys out of words: servers repeat a refused key, and it must not reach the ledger.

        Args:
            text: as it came, before it is cut; where it ends in the beginning of the key, that goes as well.
        """
        for key in self._keys:
            if len(key) < WORD_CHARACTERS:
                text = _as_a_key(key).sub(r"\1[key]", text)
            else:
                text = _without_start(text.replace(key, "[key]"), key, "[key]")
        return text


@functools.cache
def _as_a_key(key: str) -> re.Pattern[str]:
    """Find a key where a text says that it is one: behind `Bearer`, or as the value of a key, a token or the header."""
    named = r"(\bbearer\s+|(?:authorization|token|key(?: provided)?)[\"']?\s*[:=]\s*(?:bearer\s+)?[\"']?)"
    return re.compile(rf"{named}{re.escape(key)}(?!\w)", re.IGNORECASE)


def _without_start(text: AnyStr, secret: AnyStr, mark: AnyStr) -> AnyStr:
    """Take out the beginning of a secret with which a cut text ends."""
    for length in range(len(secret) - 1, KNOWN_CHARACTERS, -1):
        if text.endswith(secret[:length]):
            return text[:-length] + mark
    return text
