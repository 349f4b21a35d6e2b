"""Spend, extraction, log, picker, help and palette."""

from pathlib import Path

import pytest
from textual.color import Color

from eagletui.ledger.rebuying import Quarantined
from eagletui.tui.keys import APP_KEYS, VIEW_KEYS, View
from eagletui.tui.screens.help import WORDS, help_lines
from eagletui.tui.screens.quarantine_dialog import consequence
from eagletui.tui.widgets.safe_text import SafeText
from tests.tui.driving import NARROW, WIDE, Size, opened
from tests.tui.factory import Built, busy_run, empty_run


@pytest.mark.parametrize("size", [WIDE, pytest.param(NARROW, marks=pytest.mark.slow)])
async def test_spend_shows_the_books_and_every_endpoint(busy: Built, size: Size) -> None:
    async with opened(busy, size) as screens:
        await screens.press("3")
        assert "[3 Spend]" in screens.lines[1]
        assert "$0.0043   known costs" in screens.line_with("settled  ")
        assert "$0.0016   4 in flight, worst case" in screens.line_with("held  ")
        # 4,269,135,764 settled and 1,600,000,000 held picodollars.
        assert "$0.0059   all of it; $0.1441 below the cap" in screens.line_with("committed")
        row = screens.line_with("embedded/text")
        assert "+3" in row
        assert "$0.0012" in row
        assert "listed price of 2025-10-09 09:00, from the provider's list" in screens.text
        if size == WIDE:
            assert "$0.0000   seen on the key, in sum" in screens.line_with("unattributed")
            assert "0.20/0.60" in row
            assert "1,219 tok   counted 1,285" in screens.line_with("billed out")
            assert "44   settled 38   void 2   unsettled 0" in screens.line_with("attempts")


async def test_commands_in_what_the_ledger_says_name_the_run(busy: Built) -> None:
    with busy.writer() as writer:
        writer.set_run_state("paused", "check", "A check did not hold. Go on with `eagletui ctl RUN resume`.")
        writer.event("warn", "engine", "paused", "Go on with `eagletui ctl RUN resume`.")
        writer.finding("loop", "9 of 40 loop", endpoint="e", affected=9, examined=40, action="`ctl RUN quarantine e`")
    async with opened(busy) as screens:
        view = screens.app.view
        assert view is not None
        assert "`eagletui ctl b3-magicoder resume`" in (view.snapshot.run.pause_detail or "")
        assert "`ctl b3-magicoder quarantine e`" in {item.action for item in view.attention}
        await screens.press("5")
        assert "Go on with `eagletui ctl b3-magicoder resume`." in screens.text
        assert " RUN " not in screens.text
    moved = Quarantined(3, 5, True, 7, 7)
    assert "eagletui ctl ./b3 retry --suspect" in consequence(moved, "./b3")


@pytest.mark.slow
async def test_the_log_follows_filters_and_finds_errors(busy: Built) -> None:
    async with opened(busy, NARROW) as screens:
        await screens.press("5")
        assert "t follow on   l level info and above   / no text filter   9 lines" in screens.lines[2]
        await screens.press("N")
        assert "> 09:08:00 warn" in screens.text
        assert "follow off" in screens.lines[2]
        await screens.press("N")
        assert "> 09:04:48 error" in screens.text
        await screens.press("l")
        assert "level warn and above" in screens.lines[2]
        assert "3 lines" in screens.lines[2]
        await screens.press("slash")
        await screens.write("context_length")
        await screens.press("enter")
        assert 'text "context_length"   2 lines' in screens.lines[2]
        await screens.press("escape", "t")
        assert "no text filter" in screens.lines[2]
        assert "follow on" in screens.lines[2]
        await screens.press("N", "enter")
        assert "s-000023" in screens.lines[2], "the line's sample is opened"


async def test_new_lines_appear_while_following_and_old_ones_come_at_the_top(busy: Built) -> None:
    with busy.writer() as writer, writer.transaction():
        for number in range(700):
            writer.event("info", "engine", "progress", f"line {number}")
    async with opened(busy, NARROW) as screens:
        await screens.press("5")
        assert "500 lines, g older" in screens.lines[2]
        with busy.writer() as writer:
            writer.event("info", "engine", "progress", "the newest line")
        await screens.look()
        assert "the newest line" in screens.text
        await screens.press("g")
        assert "710 lines" in screens.lines[2]
        await screens.press("g")
        assert "Engine started, 60 samples queued." in screens.text


@pytest.mark.parametrize("view", ["run", "samples", "spend", "extract", "log", "diff", "attach"])
def test_help_names_every_key_of_a_screen_and_every_word(view: View) -> None:
    text = "\n".join(line.plain for line in help_lines(view, 90))
    for key in (*VIEW_KEYS[view], *VIEW_KEYS["list"], *APP_KEYS):
        assert key.help.split(".")[0][:30] in text
    for word, _ in WORDS:
        assert word in text


def test_every_key_has_its_own_id_within_a_screen_and_a_sentence_of_help() -> None:
    for view, keys in VIEW_KEYS.items():
        ids = [key.id for key in (*keys, *APP_KEYS)]
        assert len(ids) == len(set(ids)), view
        names = [name for key in keys for name in key.keys.split(",")]
        assert len(names) == len(set(names)), view
        assert all(key.help.endswith(".") for key in keys)


@pytest.mark.slow
async def test_help_opens_on_every_screen_and_closes(busy: Built) -> None:
    async with opened(busy, NARROW) as screens:
        for number in "12345":
            await screens.press(number, "question_mark")
            assert "This screen" in screens.text
            assert "esc close" in screens.text
            await screens.press("escape")
            assert "This screen" not in screens.text


async def test_help_wraps_its_lines_below_what_they_say_in_a_small_terminal(busy: Built) -> None:
    async with opened(busy, NARROW) as screens:
        await screens.press("2", "enter", "question_mark")
        text = screens.app.screen.query_one("#help-text", SafeText)
        lines = text.plain.split("\n")
        assert text.size.height == len(lines), "the terminal wraps no line again"
        saved = next(number for number, line in enumerate(lines) if line.startswith("  Y "))
        assert lines[saved + 1].startswith(" " * 19)
        assert any(line.startswith("  served, logprobs, streamed evidence") for line in lines)


async def test_ctrl_c_says_how_to_leave_and_how_to_stop(busy: Built) -> None:
    async with opened(busy, NARROW) as screens:
        await screens.press("ctrl+c")
        assert "q leaves the app and the run goes on; X stops the run." in screens.text
        await screens.press("j")
        assert "q leaves the app" not in screens.text


async def test_the_palette_has_every_action_of_the_screen_in_front(busy: Built) -> None:
    async with opened(busy, NARROW) as screens:
        views: tuple[tuple[str, View], ...] = (("1", "run"), ("2", "samples"), ("6", "verdicts"))
        for key, view in views:
            await screens.press(key)
            found = {command.title for command in screens.app.get_system_commands(screens.app.screen)}
            wanted = {f"{one.label} ({one.name})" for one in (*VIEW_KEYS[view], *APP_KEYS) if one.id != "app.palette"}
            assert found == wanted


@pytest.mark.slow
async def test_the_palette_finds_an_action_by_name(busy: Built) -> None:
    async with opened(busy, WIDE) as screens:
        await screens.press("colon")
        await screens.write("spend")
        await screens.press("enter")
        assert "[3 Spend]" in screens.lines[1]


async def test_the_picker_lists_runs_and_opens_one(
    busy: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EAGLETUI_RUNS", str(tmp_path))
    empty_run(tmp_path / "fresh", "fresh", busy.clock)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "ledger.sqlite").write_bytes(b"this is no ledger, it is text" * 100)
    async with opened(None, WIDE) as screens:
        assert "b3-magicoder" in screens.text
        assert "× NO ENGINE" in screens.line_with("b3-magicoder")
        assert "40 / 60" in screens.line_with("b3-magicoder")
        assert "8 min ago" in screens.line_with("b3-magicoder")
        assert "○ NEW" in screens.line_with("fresh")
        assert "unreadable" in screens.line_with("broken")
        assert "enter opens a run." in screens.text
        while "b3-magicoder" not in screens.line_with("> "):
            await screens.press("j")
        await screens.press("enter")
        await screens.look()
        assert "[1 Run]" in screens.lines[1]
        assert "40 / 60" in screens.text
        await screens.press("2", "a")
        assert "runs in" not in screens.text
        assert "in " + str(tmp_path) in screens.lines[0]
        await screens.press("escape")
        assert "[1 Run]" in screens.lines[1]


@pytest.mark.slow
async def test_the_picker_changes_runs_and_drops_what_was_shown(
    busy: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EAGLETUI_RUNS", str(tmp_path))
    other = busy_run(tmp_path / "other", "other")
    add = other.writer()
    add.set_stop_at(5 * 10**12)
    add.close()
    async with opened(busy, WIDE) as screens:
        await screens.press("2", "f", "a")
        while "other" not in screens.line_with("> "):
            await screens.press("j")
        await screens.press("enter")
        await screens.look()
        assert "run other" in screens.lines[0]
        assert "of stop-at $5.00" in screens.text
        await screens.press("2")
        assert "preset all" in screens.text, "the filter belonged to the other run"


async def test_without_runs_the_picker_says_how_to_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EAGLETUI_RUNS", str(tmp_path / "nothing-at-all-" / ("long-name-" * 8)))
    async with opened(None, NARROW) as screens:
        assert screens.lines[0].startswith(f" eagletui  runs  in {tmp_path}"[:60]), "as much of a long path as fits"
        assert "no runs yet" in screens.text
        assert "eagletui demo" in screens.text
        await screens.press("1", "2", "escape", "enter", "question_mark", "escape")
        assert "no runs yet" in screens.text


@pytest.mark.slow
async def test_themes_change_by_key_and_the_screen_stays(busy: Built) -> None:
    async with opened(busy, WIDE) as screens:
        before = screens.text
        for expected in ("eagle-light", "eagle-mono", "eagle-dark"):
            await screens.press("T")
            assert screens.app.theme == expected
            assert screens.text == before


@pytest.mark.slow
async def test_a_theme_colours_screens_seen_before_it_and_screens_first_seen_after_it(busy: Built) -> None:
    async with opened(busy, WIDE) as screens:
        await screens.press("2", "T")
        for view in ("2", "1", "3"):
            await screens.press(view)
            light = Color.parse("#FAFAF7")
            assert screens.app.screen.styles.background == light
            assert {node.background_colors[0] for node in screens.app.screen.query("TopBar, KeyBar")} == {light}
