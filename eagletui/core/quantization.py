"""Names of quantizations, as endpoints and checkpoints state them, and whether two of them can be the same weights."""

import re
from typing import Final

_KIND: Final = re.compile(r"(?:\b|_)(int|uint|iq|q|mxfp|nvfp|fp|bf|bfloat|float|f|w)[ _-]?(\d{1,2})(?=\b|_|[a-z])")
_INTEGER: Final = ("int", "uint", "iq", "q", "w")
_PLAIN_BITS: Final = 16


def kind_of(name: str | None) -> str | None:
    """Reduce a quantization's name to the kind of its numbers: `plain`, `int4`, `fp8`, ...; None where it says nothing.

    Args:
        name: as OpenRouter lists it (`int4`, `fp8`, `bf16`, `unknown`), or as a checkpoint is stored (`Q4_1`, `fp8`,
            `compressed-tensors int4`).
    """
    found = _KIND.search((name or "").lower())
    if found is None:
        return None
    letters, bits = found.group(1), int(found.group(2))
    if bits >= _PLAIN_BITS:
        return "plain"
    return f"{'int' if letters in _INTEGER else 'fp'}{bits}"


def differing(served: dict[str, str | None], stored: str | None) -> dict[str, str]:
    """List the endpoints whose weights cannot be those that features are computed with.

    Args:
        served: by endpoint, as each states it; endpoints that state nothing are left out.
        stored: how the checkpoint is stored; None: plain floating point.
    """
    ours = "plain" if stored is None else kind_of(stored)
    if ours is None:
        return {}
    return {tag: str(name) for tag, name in served.items() if kind_of(name) not in (None, ours)}
