"""Read a moment that a person typed."""

from datetime import date, datetime


def read_moment(text: str, today: date) -> float:
    """Read a local time, or a clock time of today, as Unix seconds.

    Args:
        text: such as `2026-01-31T18:00`, `2026-01-31 18:00` or `18:00`.
        today: the day that a clock time belongs to.

    Raises:
        ValueError: it is neither.
    """
    text = text.strip()
    return datetime.fromisoformat(text if "-" in text else f"{today:%Y-%m-%d}T{text}").astimezone().timestamp()
