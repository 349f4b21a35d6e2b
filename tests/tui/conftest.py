"""A run in full swing, built once, and the environment that screens depend on."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from eagletui.tui import app
from eagletui.tui.tidying import Tidying
from tests.tui.factory import Built, Clock, busy_run


class _Disk(NamedTuple):
    """What the standard library tells of a disk."""

    free: int


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The same colours, time zone and disk everywhere."""
    for name in ("NO_COLOR", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: _Disk(free=83_000_000_000))
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(autouse=True)
def _never_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """No app looks for garbage, however slow the machine: here it would look through what all tests share."""
    monkeypatch.setattr(app, "Tidying", lambda clock: Tidying(lambda: 0.0))


@pytest.fixture(scope="session")
def busy_original(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return busy_run(tmp_path_factory.mktemp("busy") / "b3-magicoder")


@pytest.fixture(scope="session")
def hostile_original(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return busy_run(tmp_path_factory.mktemp("hostile") / "b3-magicoder", hostile=True)


def copied(original: Built, to: Path) -> Built:
    shutil.copytree(original.path, to)
    return Built(to, Clock(original.clock.now + 1), original.keys)


@pytest.fixture
def busy(busy_original: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Built:
    """A running run: 60 samples, 37 answered, 3 resegmented, 2 failed, 1 refused, 4 in flight, 10 extracted."""
    monkeypatch.setenv("EAGLETUI_RUNS", str(tmp_path))
    return copied(busy_original, tmp_path / "b3-magicoder")


@pytest.fixture
def hostile(hostile_original: Built, tmp_path: Path) -> Built:
    """The same, with hostile text in prompts, answers, errors and findings."""
    return copied(hostile_original, tmp_path / "b3-magicoder")
