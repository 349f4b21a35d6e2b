"""The samples browser at both sizes."""

import asyncio
import json
import re
from pathlib import Path

import pytest
from textual.widgets import Input

from eagletui.ledger.async_reader import AsyncReader
from eagletui.ledger.filters import SampleFilter
from eagletui.ledger.reader_search import Found, SearchEnd
from eagletui.tui import sample_search
from eagletui.tui.screens.samples import SamplesScreen
from eagletui.tui.widgets.ledger_table import LedgerTable
from eagletui.tui.widgets.safe_text import SafeText
from tests.tui.driving import NARROW, WIDE, Screens, opened
from tests.tui.factory import HOSTILE, Built, add_prompts, empty_run


def cursor_line(screens: Screens) -> str:
    return screens.line_with("> ")


async def test_the_browser_lists_samples_with_evidence_drift_and_spans(busy: Built) -> None:
    async with opened(busy, WIDE) as screens:
        await screens.press("2")
        assert "[2 Samples]" in screens.lines[1]
        assert "filter none   f preset all   s sort id   60 of 60" in screens.lines[2]
        assert "s-000000     ■ extracted streamed" in cursor_line(screens)
        assert re.search(r"s-000031 +● tokenized conflict +\+3 +0", await scrolled_to(screens, "s-000031"))
        assert re.search(r"s-000011 +× failed +- +- +-", await scrolled_to(screens, "s-000011"))
        assert " of 60 ─┘" in screens.text


async def scrolled_to(screens: Screens, key: str) -> str:
    table = screens.app.screen.query_one("#samples", LedgerTable)
    table.move_to(int(key.removeprefix("s-")))
    await screens.settle()
    return row_of(screens, key)


def row_of(screens: Screens, key: str) -> str:
    found = [line for line in screens.lines if re.match(rf"│[> ][* ]{key} ", line)]
    assert len(found) == 1, screens.text
    return found[0]


@pytest.mark.slow
async def test_the_preview_shows_the_sample_under_the_cursor(busy: Built) -> None:
    async with opened(busy, WIDE) as screens:
        await screens.press("2", "j", "j", "j")
        assert "evidence  counted" in screens.text
        assert "The reply carries no ids; best rung" in screens.text
        assert "│ 灯台守は毎晩ランプを磨いた。" in screens.text
        await screens.press("v")
        assert "Preview" not in screens.text
        assert "billed" in screens.line_with("sample  "), "the list takes the room"


@pytest.mark.slow
async def test_on_a_small_terminal_the_preview_is_two_lines(busy: Built) -> None:
    async with opened(busy, NARROW) as screens:
        await screens.press("2", "j")
        assert "s-000001 logprobs, usable, 0 spans" in screens.text
        assert "billed 32 counted 32 (drift 0), stop, 8.4 s" in screens.text
        assert "1-13 of 60" in screens.text
        assert screens.lines[-1].split() == "enter Diff n/N Issue / Filter f Preset : More esc Back q Detach".split()


@pytest.mark.slow
async def test_keys_move_the_cursor_by_line_page_and_end(busy: Built) -> None:
    async with opened(busy, NARROW) as screens:
        await screens.press("2", "j", "down", "k")
        assert "s-000001" in cursor_line(screens)
        await screens.press("G")
        assert "s-000059" in cursor_line(screens)
        await screens.press("g", "ctrl+d", "pagedown", "ctrl+u")
        assert "s-000012" in cursor_line(screens)
        await screens.press("home", "end")
        assert "s-000059" in cursor_line(screens)
        assert "48-60 of 60" in screens.text


@pytest.mark.slow
async def test_presets_filter_the_list_and_escape_clears_before_it_leaves(busy: Built) -> None:
    async with opened(busy, WIDE) as screens:
        await screens.press("2", "f")
        assert "filter spans>0   f preset mismatched   s sort id   3 of 60" in screens.text
        await screens.press("f")
        assert "preset drifting" in screens.text
        assert "1 of 60" in screens.text
        await screens.press("f", "f")
        assert "preset unproved" in screens.text
        assert "11 of 60" in screens.text
        await screens.press("f", "f", "f", "escape")
        assert "preset all" in screens.text
        assert "[2 Samples]" in screens.text
        await screens.press("escape")
        assert "[1 Run]" in screens.text


@pytest.mark.slow
async def test_the_filter_line_is_typed_applied_and_corrected(busy: Built) -> None:
    async with opened(busy, WIDE) as screens:
        await screens.press("2", "slash")
        await screens.write("evidnce:streamed")
        await screens.press("enter")
        assert "did you mean evidence:" in screens.text
        screens.app.screen.query_one("#filter-input", Input).value = 'evidence:streamed "灯"'
        await screens.press("enter")
        assert 'filter evidence:streamed "灯"' in screens.text
        await screens.press("slash", "escape")
        assert 'filter evidence:streamed "灯"' in screens.text, "escape leaves the field and keeps the filter"


@pytest.mark.slow
async def test_problem_keys_find_mismatches_drift_and_failures(busy: Built) -> None:
    async with opened(busy, WIDE) as screens:
        await screens.press("2", "n")
        assert "s-000006" in cursor_line(screens)
        await screens.press("n")
        assert "s-000011" in cursor_line(screens)
        await screens.press("N", "N")
        assert "No problem further on." in screens.text


async def test_sorting_by_drift_puts_the_worst_first(busy: Built) -> None:
    async with opened(busy, WIDE) as screens:
        await screens.press("2", "s")
        assert "sort drift desc" in screens.text
        assert "s-000031" in cursor_line(screens)
        await screens.press("S", "g")
        assert "s-000031" not in cursor_line(screens)


@pytest.mark.slow
async def test_marked_samples_are_shown_and_counted(busy: Built) -> None:
    async with opened(busy, WIDE) as screens:
        await screens.press("2", "space", "space")
        assert "2 marked" in screens.text
        assert "│ *s-000000" in screens.text
        await screens.press("k", "space")
        assert "1 marked" in screens.text


@pytest.mark.slow
async def test_enter_opens_the_inspector_and_brackets_walk_the_list(busy: Built) -> None:
    async with opened(busy, WIDE) as screens:
        await screens.press("2", "f", "enter")
        assert "2 Samples > s-000006 1/3" in screens.text
        await screens.press("right_square_bracket")
        assert "s-000012 2/3" in screens.text
        await screens.press("left_square_bracket", "left_square_bracket")
        assert "That was the first sample of the list." in screens.text
        await screens.press("escape")
        assert "[2 Samples]" in screens.text


async def test_new_samples_are_announced_and_read_on_request(busy: Built) -> None:
    async with opened(busy, WIDE) as screens:
        await screens.press("2", "j")
        add_prompts(busy, [("late-1", "b3_magicoder", "Late."), ("late-2", "b3_magicoder", "Later.")])
        await screens.look()
        assert "60 of 62   +2 new, R reads them" in screens.text
        await screens.press("R")
        assert "62 of 62" in screens.text
        assert "s-000001" in cursor_line(screens), "the cursor stays on its sample"


@pytest.mark.slow
async def test_rows_change_in_place_while_the_run_goes_on(busy: Built) -> None:
    async with opened(busy, WIDE) as screens:
        await screens.press("2")
        assert "× failed" in await scrolled_to(screens, "s-000011")
        with busy.writer() as writer:
            writer.retry(["s-000011"])
        await screens.look()
        assert "○ queued" in row_of(screens, "s-000011")


@pytest.mark.slow
async def test_only_visible_pages_are_read_of_a_long_list(busy: Built) -> None:
    add_prompts(busy, [(f"p-{index:05}", "b3_magicoder", f"Prompt {index}") for index in range(5_000)])
    async with opened(busy, NARROW) as screens:
        await screens.press("2")
        asked: list[int] = []
        screen = screens.app.screen
        assert isinstance(screen, SamplesScreen)
        read_page = screen._read_page

        async def counting(page: int) -> None:
            asked.append(page)
            await read_page(page)

        screen._read_page = counting  # type: ignore[method-assign]
        await screens.press("G")
        assert "p-04999" in cursor_line(screens)
        await screens.press("k", "k", "pageup")
        await screens.press("g")
        assert set(asked) <= {0, 49, 50}


@pytest.mark.slow
async def test_a_run_without_samples_says_so(tmp_path: Path) -> None:
    built = empty_run(tmp_path / "empty", "empty")
    async with opened(built, NARROW, workers=()) as screens:
        assert "○ NEW" in screens.text
        assert "Not started." in screens.text
        assert "nothing needs you" in screens.text
        assert "no events yet" in screens.text
        await screens.press("2")
        assert "no sample fits" in screens.text
        await screens.press("3")
        assert "no endpoint yet" in screens.text
        await screens.press("4")
        assert "no shard is sealed yet" in screens.text
        await screens.press("5")
        assert "no events" in screens.text


def test_the_hostile_strings_are_many_enough() -> None:
    assert len(HOSTILE) >= 40


@pytest.mark.slow
async def test_marked_samples_or_those_of_a_filter_are_exported_as_ids(busy: Built) -> None:
    async with opened(busy, NARROW) as screens:
        await screens.press("2", "space", "space", "e")
        assert "2 marked samples." in screens.text
        await screens.press("escape", "e", "right", "enter")
        (first,) = (busy.path / "exports").glob("*/train.jsonl")
        assert [json.loads(line)["id"] for line in first.read_text().splitlines()] == ["s-000000", "s-000001"]
        assert "Exported 2 samples, " in screens.text
        busy.clock.now += 1
        await screens.press("u", "slash")
        await screens.write("state:tokenized,failed !evidence:streamed,logprobs drift>0")
        await screens.press("enter", "e")
        assert "1 sample of the filter" in screens.text
        await screens.press("right", "enter")
        assert "Exported 1 sample, " in screens.text
        second = max((busy.path / "exports").glob("*/train.jsonl"))
        assert [json.loads(line)["id"] for line in second.read_text().splitlines()] == [busy.keys["conflict"]]
        await screens.press("escape", "slash")
        await screens.write("state:queued")
        await screens.press("enter", "e", "right", "enter")
        assert "Not exported: Run" in screens.text


@pytest.mark.slow
async def test_a_text_is_searched_for_while_it_is_typed_and_escape_goes_back(busy: Built) -> None:
    async with opened(busy, WIDE) as screens:
        await screens.press("2", "slash")
        await screens.write("000023")
        assert "1 of 60" in screens.text
        assert "s-000023" in cursor_line(screens)
        await screens.press("escape")
        assert "filter none" in screens.text
        assert "60 of 60" in screens.text
        await screens.press("slash")
        await screens.write("no such thing")
        assert "no sample fits" in screens.text
        await screens.press("enter")
        assert 'filter "no such thing"' in screens.text
        await screens.press("slash", *["backspace"] * 20)
        await screens.write("evidence:conflict")
        assert "60 of 60" in screens.text, "a condition waits for enter, and no beginning of it is searched for"
        await screens.press("enter")
        assert "1 of 60" in screens.text


async def test_a_search_says_in_how_many_samples_it_has_looked_and_ends_on_escape(
    busy: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample_search, "_FIRST_ROWS", 20)
    reached, held = asyncio.Event(), asyncio.Event()
    read = AsyncReader.search

    async def slow(reader: AsyncReader, wanted: SampleFilter, after: SearchEnd | None, rows: int) -> Found:
        if after is not None:
            reached.set()
            await held.wait()
        return await read(reader, wanted, after, rows)

    monkeypatch.setattr(AsyncReader, "search", slow)
    async with opened(busy, WIDE) as screens:
        await screens.press("2")
        screen = screens.app.screen
        assert isinstance(screen, SamplesScreen)
        screen.show_only(SampleFilter(text="s-0000"))
        await reached.wait()
        line = screen.query_one("#filter-line", SafeText)
        assert line.plain.endswith("20 in 20 of 60 looked at   searching, esc ends it")
        await screen.action_back()
        await screens.settle()
        assert "20 in 20 of 60 looked at   search ended early" in screens.text
        assert "s-000000" in cursor_line(screens)


@pytest.mark.slow
async def test_an_answer_that_is_set_aside_says_so_though_it_was_extracted(busy: Built) -> None:
    with busy.writer() as writer:
        writer.quarantine("embedded/stream")
    async with opened(busy, NARROW) as screens:
        await screens.press("2", "space")
        assert "s-000000     ▲ set aside " in screens.text
        assert "/ none   f preset all   s sort id   60 of 60   1 marked" in screens.text
