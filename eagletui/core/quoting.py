"""Names in commands that people copy into a shell."""

import shlex

from eagletui.core.text import clean_line


def quoted(word: str) -> str:
    r"""Write a word as a shell reads it, in characters that can be shown.

    A word with others, such as control characters or bytes that are no UTF-8, is written as bash, zsh and ksh read it:
    `$'a\033b'`, its bytes beyond printable ASCII in octal.
    """
    if word.isprintable() and clean_line(word) == word:
        return shlex.quote(word)
    written = (_escaped(byte) for byte in word.encode("utf-8", "surrogateescape"))
    return f"$'{''.join(written)}'"


def _escaped(byte: int) -> str:
    char = chr(byte)
    if char in "\\'":
        return f"\\{char}"
    return char if " " <= char <= "~" else f"\\{byte:03o}"
