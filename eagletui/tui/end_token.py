"""Which token ends an answer, read from the output formats that ship with the program."""

import tomllib
from functools import cache
from importlib import resources

_CUT = ("length", "content_filter", "error")


def expected_end(format_name: str, finish_reason: str | None) -> str | None:
    """Name the special token that ends an answer of a format.

    Returns:
        Its literal text, or None where the answer was cut, the finish reason is unknown or the format has none.
    """
    ends = _ends(format_name)
    if finish_reason is None or finish_reason in _CUT:
        return None
    return ends.get(finish_reason) or ends.get("stop")


@cache
def _ends(format_name: str) -> dict[str, str]:
    file = resources.files("eagletui.formats") / f"{format_name}.toml"
    if "/" in format_name or not file.is_file():
        return {}
    ends = tomllib.loads(file.read_text(encoding="utf-8")).get("end", {})
    return {reason: token for reason, token in ends.items() if isinstance(token, str) and token}
