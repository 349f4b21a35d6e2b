"""A real ledger file with a frozen clock."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.writer import LedgerWriter
from tests.ledger.build import Clock, make_ledger


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path, clock: Clock) -> Path:
    (tmp_path / "test-run").mkdir()
    return make_ledger(tmp_path / "test-run" / "ledger.sqlite", clock=clock)


@pytest.fixture
def writer(path: Path, clock: Clock) -> Iterator[LedgerWriter]:
    with LedgerWriter(path, clock) as opened:
        yield opened


@pytest.fixture
def reader(path: Path, clock: Clock) -> Iterator[LedgerReader]:
    with LedgerReader(path, clock) as opened:
        yield opened
