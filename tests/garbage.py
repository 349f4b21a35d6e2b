"""When the process of a test looks for garbage: never among what all tests share, and always where a file ends."""

import gc
from collections.abc import Iterator

import pytest

_YOUNG = 20_000
"""Objects made before the youngest are looked at: tests live for milliseconds, and what they make dies with them."""


def pytest_collection() -> None:
    """Look for none while modules load: what is loaded stays."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Set aside what is loaded: looking at half a million objects again and again costs a fifth of the suite."""
    gc.freeze()
    gc.set_threshold(_YOUNG)
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def no_garbage_left() -> Iterator[None]:
    """Find what a file leaves open in that file, and not in whichever test runs when garbage is next looked for."""
    yield
    gc.collect()
    gc.freeze()
