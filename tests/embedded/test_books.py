"""The provider's books on disk."""

import asyncio
from pathlib import Path

import pytest

from eagletui.core.errors import RunError
from eagletui.embedded.books import BookRow, open_books


def row(number: int) -> BookRow:
    return BookRow(
        id=f"gen-{number}",
        provider="embedded/stream",
        prompt_tokens=10,
        completion_tokens=2,
        cost_pico=1000 + number,
        delivered=False,
        finish_reason="stop",
        output_ids=(57, 2),
        created_at=1_800_000_000.0,
        streamed=True,
    )


async def test_books_survive_a_restart_with_totals_and_deliveries(tmp_path: Path) -> None:
    path = tmp_path / "provider" / "books.jsonl"
    books = open_books(path)
    await asyncio.gather(*(books.bill(row(number)) for number in range(5)))
    books.mark_delivered("gen-3")
    await books.close()

    again = open_books(path)
    assert again.spent_pico == 5 * 1000 + 10
    assert [entry.delivered for entry in again.rows.values()] == [False, False, False, True, False]
    assert again.rows["gen-1"] == row(1)
    await again.close()
    assert path.stat().st_mode & 0o777 == 0o600


async def test_a_line_torn_by_a_kill_is_cut_off_and_the_next_row_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "books.jsonl"
    books = open_books(path)
    await books.bill(row(1))
    await books.bill(row(2))
    await books.close()
    path.write_bytes(path.read_bytes()[:-25])

    again = open_books(path)
    assert list(again.rows) == ["gen-1"]
    await again.bill(row(3))
    await again.close()
    last = open_books(path)
    assert list(last.rows) == ["gen-1", "gen-3"]
    await last.close()


async def test_a_row_is_on_disk_when_billing_returns(tmp_path: Path) -> None:
    path = tmp_path / "books.jsonl"
    books = open_books(path)
    await books.bill(row(7))
    assert b'"gen-7"' in path.read_bytes()
    await books.close()


def test_a_file_that_is_no_books_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "books.jsonl"
    path.write_text('{"hello": 1}\n', encoding="utf-8")
    with pytest.raises(RunError, match=r"books\.jsonl:1: found"):
        open_books(path)
    assert path.read_text(encoding="utf-8") == '{"hello": 1}\n'
