"""A ledger that cannot be written for a while: nothing is lost or done twice, and a person may stop waiting."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from eagletui.core.errors import DiskFullError, LedgerBusyError, LedgerError
from eagletui.engine import ledger_thread
from eagletui.engine.ledger_thread import LedgerThread
from eagletui.ledger import connection
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.writer import LedgerWriter
from tests.empty_ledger import empty_ledger


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(connection, "BUSY_TIMEOUT_MS", 20)
    monkeypatch.setattr(ledger_thread, "AGAIN_S", 0.02)
    path = tmp_path / "ledger.sqlite"
    return empty_ledger(path)


@pytest.fixture
async def ledger(path: Path) -> AsyncIterator[LedgerThread]:
    thread = LedgerThread(path)
    yield thread
    thread.close()


async def limit_pages(ledger: LedgerThread, pages: int) -> None:
    """Make the disk full, as SQLite sees it: the file may grow to so many pages."""

    def limit(writer: LedgerWriter) -> None:
        writer._transactions.connection.execute(f"PRAGMA max_page_count = {pages}")

    await ledger.do(limit)


def note(writer: LedgerWriter) -> int:
    return writer.event("info", "engine", "note", "x" * 100_000)


def notes(path: Path) -> int:
    with LedgerReader(path) as reader:
        return len(reader.events())


async def test_a_write_waits_while_the_disk_is_full_and_is_done_once(path: Path, ledger: LedgerThread) -> None:
    await limit_pages(ledger, 1)
    waiting = asyncio.create_task(ledger.do(note))
    done, _ = await asyncio.wait({waiting}, timeout=0.2)
    assert not done
    await limit_pages(ledger, 100_000)
    await waiting
    assert notes(path) == 1


async def test_a_write_waits_while_another_process_holds_the_ledger(path: Path, ledger: LedgerThread) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    waiting = asyncio.create_task(ledger.do(note))
    done, _ = await asyncio.wait({waiting}, timeout=0.2)
    assert not done
    other.execute("ROLLBACK")
    other.close()
    await waiting
    assert notes(path) == 1


async def test_who_gives_up_is_told_why_and_nothing_was_written(path: Path, ledger: LedgerThread) -> None:
    await limit_pages(ledger, 1)
    full = asyncio.create_task(ledger.do(note))
    await asyncio.wait({full}, timeout=0.1)
    ledger.give_up()
    with pytest.raises(DiskFullError, match="the disk is full"):
        await full
    await limit_pages(ledger, 100_000)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerBusyError, match="another process"):
        await ledger.do(note)
    other.close()
    assert notes(path) == 0


async def test_another_fault_is_not_waited_for(ledger: LedgerThread) -> None:
    with pytest.raises(LedgerError, match="refused a change"):
        await ledger.do(lambda writer: writer.set_run_state("done"))


async def test_an_order_goes_before_all_that_waits_and_fails_alone(path: Path, ledger: LedgerThread) -> None:
    begun, may_end = threading.Event(), threading.Event()
    done: list[str] = []

    def slow(_: LedgerWriter) -> None:
        begun.set()
        may_end.wait(10.0)

    def says(words: str, _: LedgerWriter) -> None:
        done.append(words)
        if words == "fails":
            raise LedgerError("no")

    acts = [asyncio.create_task(ledger.do(slow))]
    await asyncio.to_thread(begun.wait, 10.0)
    acts += [asyncio.create_task(ledger.do(partial(says, f"waits {number}"))) for number in range(3)]
    orders = [asyncio.create_task(ledger.do(partial(says, words), urgent=True)) for words in ("fails", "order")]
    await asyncio.sleep(0)  # every act is asked for
    may_end.set()
    await orders[1]
    with pytest.raises(LedgerError, match="no"):
        await orders[0]
    await asyncio.gather(*acts)
    assert done == ["fails", "order", "waits 0", "waits 1", "waits 2"]


def test_a_ledger_that_was_moved_or_replaced_is_noticed(path: Path) -> None:
    ledger = LedgerThread(path)
    ledger.require_in_place()
    path.rename(path.with_suffix(".old"))
    with pytest.raises(LedgerError, match="Nothing more is bought"):
        ledger.require_in_place()
    path.write_bytes(path.with_suffix(".old").read_bytes())
    with pytest.raises(LedgerError, match="was moved, deleted or replaced"):
        ledger.require_in_place()
    ledger.close()
