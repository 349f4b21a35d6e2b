"""A wall clock that is set back is noticed once, and one that is slewed is not."""

from eagletui.engine.rounds import ClockWatch


def test_a_clock_that_is_set_back_is_noticed_once() -> None:
    clock = ClockWatch(1_000_000.0, 50.0)
    assert clock.fell_back(1_000_001.0, 51.0) == 0.0
    assert clock.fell_back(1_000_002.0 - 10_800, 52.0) == 10_800.0
    assert clock.fell_back(1_000_003.0 - 10_800, 53.0) == 0.0


def test_a_clock_that_is_set_forward_or_slewed_changes_nothing() -> None:
    clock = ClockWatch(1_000_000.0, 50.0)
    assert clock.fell_back(1_003_601.0, 51.0) == 0.0
    assert all(clock.fell_back(1_003_601.0 + 0.999 * n, 51.0 + n) == 0.0 for n in range(1, 600))
