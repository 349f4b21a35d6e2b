"""Every state a run and its ledger can be in is drawn, with its way out, in attributes and words alone."""

from pathlib import Path

import pytest

from eagletui.core.errors import LedgerError
from eagletui.tui.keymap import read_keymap
from eagletui.tui.messages import RunUnreadable
from tests.tui.driving import NARROW, WIDE, Screens, opened
from tests.tui.factory import Built, empty_run


def banner(screens: Screens) -> str:
    return " ".join(" ".join(screens.lines[2:5]).split())


@pytest.mark.slow
async def test_a_ledger_that_cannot_be_read_says_so_until_it_can(busy: Built) -> None:
    async with opened(busy, NARROW, theme="eagle-mono") as screens:
        screens.app.post_message(RunUnreadable(LedgerError("ledger.sqlite: database is locked [/x]")))
        await screens.settle()
        await screens.press("j")
        said = "The ledger cannot be read, so the figures below age: ledger.sqlite: database is locked [/x]"
        assert said in banner(screens)
        assert "R try again now" in banner(screens)
        await screens.press("3")
        await screens.look()
        assert "cannot be read" not in screens.text


async def test_a_ledger_that_another_program_keeps_locked_is_named_on_the_list(
    busy: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EAGLETUI_RUNS", str(tmp_path))
    broken = empty_run(tmp_path / "broken", "broken")
    broken.ledger.write_bytes(b"not a database at all" * 300)
    async with opened(broken, NARROW, workers=()) as screens:
        assert "runs" in screens.lines[0], "the app falls back to the list of runs"
        assert "file is not a database" in screens.text or "no ledger" in screens.text
        assert "unreadable" in screens.line_with("broken")


@pytest.mark.slow
async def test_read_only_is_said_at_the_top(busy: Built) -> None:
    async with opened(busy, NARROW, read_only=True) as screens:
        assert "read-only" in screens.lines[0]
        await screens.press("6", "enter")
        assert "Sign: read-only: attach without --read-only to change the run" in screens.text
        await screens.press("3", "u")
        assert "Set aside: read-only" in screens.text


async def test_done_and_stopped_runs_say_what_comes_next(busy: Built) -> None:
    with busy.writer() as writer:
        writer.set_run_state("draining")
        writer.set_run_state("done")
        writer.stop_beat("engine")
    async with opened(busy, WIDE, workers=(), theme="eagle-mono") as screens:
        assert "Done: 37 answered, 3 failed. 16 samples queued again. 27 samples wait for features." in banner(screens)
        assert "6 sign verdicts" in banner(screens)
        with busy.writer() as writer:
            writer.set_run_state("running")
            writer.set_run_state("draining")
            writer.set_run_state("stopped")
        await screens.look()
        assert "Stopped; 16 samples were not sent. R go on" in banner(screens)


async def test_banners_name_the_keys_as_they_are(busy: Built) -> None:
    with busy.writer() as writer:
        writer.set_run_state("paused", "stop_at")
    keymap = read_keymap({"run.limits": "f6", "run.stop": "f9"}, "keys")
    async with opened(busy, WIDE, keymap=keymap) as screens:
        assert "f6 raise the limit" in banner(screens)
        assert "f9 stop run" in banner(screens)


@pytest.mark.slow
async def test_a_terminal_below_the_least_size_says_so_on_every_kind_of_screen(
    busy: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EAGLETUI_RUNS", str(tmp_path))
    async with opened(busy, NARROW) as screens:
        for key in ("a", "ctrl+n", "6", "7"):
            await screens.press(key)
            await screens.resize((50, 12))
            assert "terminal 50x12, need 60x16" in screens.text, key
            await screens.resize(NARROW)
            assert "need 60x16" not in screens.text
            if key == "ctrl+n":
                await screens.press("escape")
