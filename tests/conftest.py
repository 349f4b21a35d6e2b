"""Fixtures of the whole suite, how its property tests choose examples, and modules compiled once."""

import compileall
import os
import sys
from pathlib import Path

from hypothesis import settings

from tests.forked import forked_workers
from tests.garbage import no_garbage_left, pytest_collection, pytest_collection_finish
from tests.provider_fixture import replay_provider, start_provider
from tests.sharing import pytest_xdist_make_scheduler

__all__ = [
    "forked_workers",
    "no_garbage_left",
    "pytest_collection",
    "pytest_collection_finish",
    "pytest_xdist_make_scheduler",
    "replay_provider",
    "start_provider",
]

# The same examples each time, so that a red run means a change; HYPOTHESIS_PROFILE=explore looks for more.
settings.register_profile("repeat", derandomize=True, max_examples=50)
settings.register_profile("explore", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeat"))

# Tests start some two hundred processes. Where bytecode is not kept, each of them compiles the package anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def pytest_configure() -> None:
    """Compile the package once, before several test processes do it at the same time."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        compileall.compile_dir(Path(__file__).parent.parent / "eagletui", quiet=2)
