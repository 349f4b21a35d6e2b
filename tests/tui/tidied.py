"""Garbage under `Tidying`, in a process without the half million objects of the tests: `python -m tests.tui.tidied`."""

import gc
import weakref

from eagletui.tui.tidying import Tidying


class _Knot:
    def __init__(self) -> None:
        self.self = self


def main() -> None:
    """Go through two looks, a minute apart."""
    now = 0.0
    tidying = Tidying(lambda: now)
    now = 1.0
    tidying.touched()
    now = 2.9
    assert not tidying.is_due(), "a key was pressed a moment ago"
    now = 3.0
    assert tidying.is_due()
    tidying.tidy()
    kept = _Knot()
    tidying.tidy()
    gone = weakref.ref(kept)
    del kept
    gc.collect()
    assert gone() is not None, "what was there the last time is set aside"
    now += 59.0
    assert not tidying.is_due(), "the last time was less than a minute ago"
    now += 1.0
    assert tidying.is_due()
    tidying.tidy()
    assert gone() is None, "and freed the next time"
    now += 3_600.0
    assert not tidying.is_due(), "nothing was looked at since"


if __name__ == "__main__":
    main()
