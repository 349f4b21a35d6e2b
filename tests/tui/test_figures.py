"""How figures are written."""

from datetime import UTC

import pytest

from eagletui.tui import figures


def test_what_is_not_known_is_a_dash_and_never_zero() -> None:
    writers = (figures.count, figures.signed, figures.usd, figures.usd_short, figures.percent, figures.rate)
    assert [write(None) for write in writers] == ["-"] * 6
    assert figures.clock(None) == figures.latency(None) == figures.size(None) == figures.time_of_day(None) == "-"
    assert figures.age(None) == "unknown"
    assert figures.per_million(10**12, 0) == "-"
    assert figures.share(1, 0) is None


def test_counts_and_differences_have_separators_and_signs() -> None:
    assert figures.count(1_234_567) == "1,234,567"
    assert figures.signed(4_118) == "+4,118"
    assert figures.signed(-19) == "-19"
    assert figures.signed(0) == "0"
    assert figures.plural(1, "span") == "1 span"
    assert figures.plural(2_000, "span") == "2,000 spans"


def test_dollars_have_four_decimals_under_a_hundred_and_two_above() -> None:
    assert figures.usd(112_345_678) == "$0.0001"
    assert figures.usd(99_123_456_789_012) == "$99.1235"
    assert figures.usd(1_234_567_800_000_000) == "$1,234.57"


def test_durations_have_two_units_and_parts_the_unit_of_the_whole() -> None:
    assert [figures.duration(seconds) for seconds in (None, 0.4, 50, 60, 7_805, 180_000)] == [
        "unknown",
        "<1 s",
        "50 s",
        "1 min",
        "2 h 10 min",
        "2 d 2 h",
    ]
    assert figures.part_of(2**30, 10 * 2**30) == "1.0 of 10.0 GiB"
    assert figures.part_of(None, 5) == "-"


def test_a_limit_is_never_rounded_away() -> None:
    assert figures.usd_short(25 * 10**12) == "$25.00"
    assert figures.usd_short(5 * 10**9) == "$0.0050"
    assert figures.usd(18_421_300_000_000) == "$18.4213"


@pytest.mark.parametrize(
    ("seconds", "written"), [(0.2, "<1 s"), (41, "41 s"), (130, "2 min"), (7_300, "2 h"), (200_000, "2 d")]
)
def test_an_age_is_in_its_largest_unit(seconds: float, written: str) -> None:
    assert figures.age(seconds) == written


def test_durations_rates_sizes_and_times() -> None:
    assert figures.clock(11_460) == "03:11:00"
    assert figures.clock(-5) == "00:00:00"
    assert figures.rate(9.44) == "9.4"
    assert figures.rate(3_284.2) == "3,284"
    assert figures.size(812) == "812 B"
    assert figures.size(14_900_000) == "14.2 MiB"
    assert figures.percent(0.737) == "73.7 %"
    assert figures.signed_percent(0.00016) == "+0.016 %"
    assert figures.latency(8.44) == "8.4 s"
    assert figures.per_million(60 * 10**10, 1_000_000) == "$0.60"
    assert figures.time_of_day(1_760_000_400.0, UTC) == "09:00:00"
    assert figures.date_time(1_760_000_400.0, UTC) == "2025-10-09 09:00"
