"""The same reads from an event loop, which they never block."""

import asyncio
from pathlib import Path

import pytest

from eagletui.core.errors import LedgerError
from eagletui.ledger.async_reader import AsyncReader
from eagletui.ledger.filters import SampleFilter
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.writer import LedgerWriter
from tests.ledger.build import Clock, answered_sample, queue


async def test_every_read_gives_what_the_plain_reader_gives(
    writer: LedgerWriter, reader: LedgerReader, path: Path, clock: Clock
) -> None:
    queue(writer, *"abc")
    answered_sample(writer, 1)
    writer.event("info", "engine", "kind", "message")
    writer.tick()
    opened = await AsyncReader.open(path, clock)
    wanted = SampleFilter()
    assert await opened.run() == reader.run()
    assert await opened.books() == reader.books()
    assert await opened.snapshot() == reader.snapshot()
    assert await opened.workers() == reader.workers()
    assert await opened.ticks(0) == reader.ticks(0)
    assert await opened.page(wanted, None, 2) == reader.page(wanted, None, 2)
    assert await opened.sample_ids(wanted) == reader.sample_ids(wanted)
    assert await opened.rows([1, 2]) == reader.rows([1, 2])
    assert await opened.sample("a") == reader.sample("a")
    assert await opened.events() == reader.events()
    assert await opened.last_events(5, ("info",)) == reader.last_events(5, ("info",))
    assert await opened.attention() == reader.attention()
    assert await opened.command(1) is None
    assert await opened.commands_pending() == []
    assert await opened.endpoints() == reader.endpoints()
    assert await opened.prices() == reader.prices()
    assert await opened.adjustments() == reader.adjustments()
    assert await opened.findings() == reader.findings()
    assert await opened.verdicts() == reader.verdicts()
    assert await opened.shards() == reader.shards()
    await opened.close()


async def test_a_change_by_a_writer_is_noticed(writer: LedgerWriter, path: Path) -> None:
    opened = await AsyncReader.open(path)
    before = await opened.data_version()
    assert await opened.data_version() == before
    writer.event("info", "engine", "kind", "message")
    assert await opened.data_version() != before
    await opened.close()


async def test_opening_what_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="does not exist"):
        await AsyncReader.open(tmp_path / "ledger.sqlite")


async def test_closing_twice_is_closing_once_and_later_reads_fail_cleanly(path: Path) -> None:
    opened = await AsyncReader.open(path)
    await opened.close()
    await opened.close()
    with pytest.raises(LedgerError, match="is closed"):
        await opened.snapshot()


async def test_reads_started_together_all_come_back(writer: LedgerWriter, path: Path) -> None:
    queue(writer, *"abc")
    opened = await AsyncReader.open(path)
    found = await asyncio.gather(*(opened.page(SampleFilter(), None, n) for n in range(1, 4)))
    assert [len(page) for page in found] == [1, 2, 3]
    await opened.close()
