"""How a part that knows no screen and no ledger tells people what happened."""

from collections.abc import Callable
from typing import Literal

Report = Callable[[Literal["info", "warn", "error"], str, str], object]
"""Takes a level, a kind and a sentence."""
