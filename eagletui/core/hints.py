"""Commands in sentences of the ledger, which do not know how a run is called where they are read."""

import re
from typing import Final

_COMMAND: Final = re.compile(r"\b(ctl|run|rebuild|inspect|attach|extract|export|add|status) RUN\b")


def for_run(words: str, run: str) -> str:
    """Put what names a run in a command where a sentence says RUN after one."""
    return _COMMAND.sub(lambda found: f"{found[1]} {run}", words)
