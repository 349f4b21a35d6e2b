"""How figures are written on the screens: unit, fixed decimals, and a dash for what is not known.

Pure functions. Money comes as integer picodollars, times as seconds.
"""

from datetime import datetime, tzinfo
from itertools import pairwise
from typing import Final

from eagletui.core.money import PICO, format_usd

UNKNOWN: Final = "-"
_KIB: Final = 1024
_LARGE_USD: Final = 100
_BYTE_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def count(value: int | None) -> str:
    """Write a whole number with thousands separators."""
    return UNKNOWN if value is None else f"{value:,}"


def signed(value: int | None) -> str:
    """Write a difference with its sign; zero carries none."""
    if value is None:
        return UNKNOWN
    return "0" if value == 0 else f"{value:+,}"


def usd(pico: int | None) -> str:
    """Write dollars: four decimals under a hundred, where single answers matter, and two above."""
    return UNKNOWN if pico is None else format_usd(pico, 4 if abs(pico) < _LARGE_USD * PICO else 2)


def usd_short(pico: int | None) -> str:
    """Write dollars with two decimals where that is the whole amount, else with four: limits that people typed."""
    return UNKNOWN if pico is None else format_usd(pico, 2 if pico % (PICO // 100) == 0 else 4)


def share(part: float | None, whole: float | None) -> float | None:
    """Divide, where there is something to divide by."""
    return None if part is None or not whole else part / whole


def percent(fraction: float | None, decimals: int = 1) -> str:
    """Write a fraction as a percentage."""
    return UNKNOWN if fraction is None else f"{100 * fraction:.{decimals}f} %"


def signed_percent(fraction: float | None, decimals: int = 3) -> str:
    """Write a fraction as a percentage with its sign."""
    return UNKNOWN if fraction is None else f"{100 * fraction:+.{decimals}f} %"


def rate(per_second: float | None) -> str:
    """Write a rate per second: one decimal under a hundred, none above."""
    if per_second is None:
        return UNKNOWN
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:.1f}"


def clock(seconds: float | None) -> str:
    """Write a duration as hours, minutes and seconds."""
    if seconds is None:
        return UNKNOWN
    minutes, second = divmod(max(0, int(seconds)), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour:02}:{minute:02}:{second:02}"


def age(seconds: float | None) -> str:
    """Write how long ago something was, in its largest unit."""
    if seconds is None:
        return "unknown"
    if seconds < 1:
        return "<1 s"
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"


def duration(seconds: float | None) -> str:
    """Write how long something takes, in its two largest units."""
    if seconds is None:
        return "unknown"
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    for (unit, size), (below, part) in pairwise(units):
        if seconds >= size:
            whole, rest = divmod(int(seconds), size)
            return f"{whole} {unit} {rest // part} {below}" if rest // part else f"{whole} {unit}"
    return age(seconds)


def latency(seconds: float | None) -> str:
    """Write the time one answer took."""
    return UNKNOWN if seconds is None else f"{seconds:.1f} s"


def size(value: int | None) -> str:
    """Write bytes in their largest binary unit."""
    if value is None:
        return UNKNOWN
    amount = float(value)
    for unit in _BYTE_UNITS:
        if amount < _KIB or unit == _BYTE_UNITS[-1]:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= _KIB
    return UNKNOWN


def part_of(value: int | None, whole: int | None) -> str:
    """Write bytes out of so many, both in the unit of the whole."""
    if value is None or whole is None:
        return UNKNOWN
    power = 0
    while whole >= _KIB ** (power + 1) and power < len(_BYTE_UNITS) - 1:
        power += 1
    return f"{value / _KIB**power:.1f} of {whole / _KIB**power:.1f} {_BYTE_UNITS[power]}"


def time_of_day(at: float | None, zone: tzinfo | None = None) -> str:
    """Write a moment as hours, minutes and seconds of the viewer's day."""
    return UNKNOWN if at is None else datetime.fromtimestamp(at, zone).strftime("%H:%M:%S")


def day(at: float | None, zone: tzinfo | None = None) -> str:
    """Write the day of a moment without its year."""
    return UNKNOWN if at is None else datetime.fromtimestamp(at, zone).strftime("%m-%d")


def date_time(at: float | None, zone: tzinfo | None = None) -> str:
    """Write a moment with its date."""
    return UNKNOWN if at is None else datetime.fromtimestamp(at, zone).strftime("%Y-%m-%d %H:%M")


def per_million(pico: int | None, tokens: int | None) -> str:
    """Write dollars per million tokens."""
    if pico is None or not tokens:
        return UNKNOWN
    return f"${pico * 1_000_000 / tokens / PICO:.2f}"


def plural(value: int, noun: str) -> str:
    """Write a count with its noun."""
    return f"{value:,} {noun}" if value == 1 else f"{value:,} {noun}s"


def round_width(top: float, bins: int) -> float:
    """Return a round width (1, 2 or 5 times a power of ten, from a thousandth on) that gives at most so many bins."""
    step = 0.001
    while True:
        for factor in (1, 2, 5):
            if top / (step * factor) < bins:
                return round(step * factor, 6)
        step *= 10
