"""The dashboard at both sizes."""

from functools import partial

import pytest
from textual.widget import Widget

from tests.tui.driving import NARROW, WIDE, opened
from tests.tui.factory import Built


@pytest.mark.parametrize("theme", ["eagle-dark", pytest.param("eagle-mono", marks=pytest.mark.slow)])
async def test_every_figure_of_the_dashboard_comes_from_the_ledger(busy: Built, theme: str) -> None:
    async with opened(busy, WIDE, theme=theme) as screens:
        assert "● RUNNING" in screens.lines[0]
        assert "run b3-magicoder" in screens.lines[0]
        assert "ledger <5 s ago" in screens.lines[0]
        assert "[1 Run]" in screens.lines[1]
        assert "40 / 60   66.7 %   ETA 00:04:00" in screens.line_with("samples  ")
        assert "4 of 64     queued 16" in screens.line_with("in flight  ")
        assert "2   retried 0   refused 1" in screens.line_with("failed     2")
        assert "p50 8.4 s   p95 8.4 s" in screens.line_with("latency")
        # 38 settled attempts of 112,345,678 picodollars: 37 answers and one refusal.
        assert "$0.0043   4.7 % of stop-at $0.09" in screens.line_with("settled")
        assert "~$0.0064   in all, as 40 samples so far" in screens.line_with("projected  ")
        assert "$0.0016   unsettled $0.0000" in screens.line_with("held  ")
        assert "$0.15   room $0.1441" in screens.line_with("cap  ")
        assert "wasted $0.0001" in screens.line_with("usable")
        assert "26 of 37 with ids    70.3 %" in screens.line_with("proved")
        assert "logprobs 11  streamed 15" in screens.line_with("proof by")
        assert "counted 7  canonical 3  conflict 1" in screens.line_with("no proof")
        assert "3 samples, same bytes cut otherwise" in screens.line_with("other ids")
        assert "+3 tok   +0.246 %   1 sample" in screens.line_with("drift  ")
        assert "10 / 37 trainable    27.0 %" in screens.text
        assert "1 sealed   14.2 MiB" in screens.line_with("shards")
        assert "27 waiting, growing 4.6/min" in screens.line_with("lag  ")
        assert "H200: load 83 %, 61.2 of 139.8 GiB" in screens.line_with("gpu  ")
        assert "fits, 76.7 GiB to spare" in screens.line_with("disk  ")
        assert "Needs attention (8)" in screens.text
        assert "> ▲ finding  s-000031" in screens.text
        assert "Shard 000000 sealed: 10 samples, 800 rows." in screens.text


async def test_the_small_dashboard_keeps_the_figures_that_matter(busy: Built) -> None:
    async with opened(busy, NARROW) as screens:
        assert len(screens.lines) == 24
        assert "● RUNNING  00:08:01" in screens.lines[0]
        assert "40 / 60  66.7 %   ETA 00:04:00" in screens.text
        assert "4 in flight   2 failed   p95 8.4 s" in screens.text
        # 4,269,135,764 picodollars for 40 of 60 samples.
        assert "$0.0043 settled, about $0.0064 in all, 4.7 % of stop-at $0.09, cap $0.15" in screens.text
        assert "held $0.0016   $3.3223 /1M usable   stop-at not reached before the end" in screens.text
        assert "drift +3 tok   proved 26 of 37   other ids 3" in screens.text
        assert "features 10, 14.2 MiB   waiting 27   disk fits, 76.7 GiB to spare" in screens.text
        assert "× failed   s-000023" in screens.text
        assert screens.lines[-1].split() == ("n/N Issue enter Open p Pause $ Limits : More X Stop q Detach".split())
        with busy.writer() as writer:
            writer.set_stop_at(5 * 10**9)
        await screens.look()
        assert "> ▲ spend    -            85.4 % of stop-at $0.0050" in screens.text
        await screens.press("enter")
        assert "Edit limits" in screens.text


@pytest.mark.slow
async def test_every_box_is_closed_on_every_screen_at_every_size(busy: Built) -> None:
    async with opened(busy, WIDE) as screens:
        for size in (WIDE, (200, 60), (100, 30), NARROW, (60, 16)):
            await screens.resize(size)
            for key in "2345671":
                await screens.press(key)
                assert len(screens.lines) == size[1]
                assert screens.text.count("┌") == screens.text.count("└"), screens.text
                for line in screens.lines[2:-1]:
                    assert line.count("┌") == line.count("┐"), screens.text
                    assert line.count("└") == line.count("┘"), screens.text


async def test_a_terminal_that_is_too_small_says_so_and_recovers(busy: Built) -> None:
    async with opened(busy, WIDE) as screens:
        await screens.resize((50, 12))
        assert "terminal 50x12, need 60x16; q leaves the run going" in screens.text
        assert "Generation" not in screens.text
        await screens.resize(NARROW)
        assert "Generation" in screens.text
        assert "40 / 60" in screens.text
        await screens.resize(WIDE)
        assert "queued 16" in screens.text


@pytest.mark.slow
async def test_issue_keys_walk_the_list_and_enter_opens_the_sample(busy: Built) -> None:
    async with opened(busy) as screens:
        await screens.press("n")
        assert "> × failed   s-000023" in screens.text
        await screens.press("N", "N")
        assert "> ▲ mismatch s-000006" in screens.text, "the list wraps around"
        await screens.press("enter")
        assert "s-000006" in screens.lines[2]
        assert "span 1/1" in screens.lines[2]
        await screens.press("escape")
        assert "[1 Run]" in screens.lines[1]


@pytest.mark.slow
async def test_tab_moves_between_the_lists_and_z_shows_the_charts(busy: Built) -> None:
    async with opened(busy) as screens:
        await screens.press("tab")
        assert screens.app.focused is not None
        assert screens.app.focused.id == "events"
        await screens.press("tab")
        assert screens.app.focused.id == "attention"
        await screens.press("z")
        assert "[7 Charts]" in screens.lines[1]
        await screens.press("escape")
        assert "[1 Run]" in screens.lines[1]


async def test_an_equal_read_of_the_ledger_paints_nothing(busy: Built) -> None:
    async with opened(busy) as screens:
        painted: list[Widget] = []
        for widget in screens.app.screen.query("*"):
            setattr(widget, "refresh", partial(_note, painted, widget))  # noqa: B010 - a method is replaced
        screens.app.action_refresh_now()
        await screens.look()
        assert painted == []


def _note(painted: list[Widget], widget: Widget, *regions: object, **kinds: bool) -> Widget:
    painted.append(widget)
    return widget


async def test_new_events_follow_and_figures_change_when_the_ledger_does(busy: Built) -> None:
    async with opened(busy) as screens:
        with busy.writer() as writer:
            writer.event("warn", "engine", "slow", "The text endpoint is slow.")
            writer.set_stop_at(80 * 10**9)
        await screens.look()
        assert "The text endpoint is slow." in screens.text
        assert "of stop-at $0.08" in screens.text
