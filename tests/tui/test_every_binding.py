"""Every key of every screen: its action exists, help and palette name it, and pressing it does that and nothing else.

The wide matrix (each screen, both sizes, dark and sixteen colours, an empty ledger and a full one) is for the slow
tests; one screen of it stays in the default suite.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any, Final, Literal

import pytest

from eagletui.runs.find import list_runs
from eagletui.tui import orders
from eagletui.tui.app import RUN_SCREENS, EagleApp
from eagletui.tui.keys import APP_KEYS, VIEW_KEYS, Key, View
from eagletui.tui.program import Ran
from eagletui.tui.sample_order import SampleOrder
from eagletui.tui.screens.attach import AttachScreen
from eagletui.tui.screens.compare import CompareScreen
from eagletui.tui.screens.diff import DiffScreen
from eagletui.tui.screens.help import help_lines, key_names
from eagletui.tui.screens.launch import LaunchScreen
from eagletui.tui.screens.view_screen import ViewScreen
from eagletui.tui.widgets.entry import Entry
from eagletui.tui.widgets.ledger_table import LedgerTable
from tests.tui.driving import NARROW, WIDE, Screens, Size, opened
from tests.tui.factory import Built, empty_run

VIEWS: Final = tuple(view for view in VIEW_KEYS if view != "list")
LISTS: Final[tuple[View, ...]] = ("run", "samples", "spend", "extract", "log", "verdicts", "attach", "compare")
"""Screens that open with a list in front."""
WAYS: Final[dict[View, tuple[str, ...]]] = {
    "run": ("1",),
    "samples": ("2",),
    "spend": ("3",),
    "extract": ("4",),
    "log": ("5",),
    "verdicts": ("6",),
    "charts": ("7",),
    "attach": ("a",),
    "launch": ("a", "n"),
    "compare": ("a",),
}


def screen_type(view: View) -> type[ViewScreen]:
    """The class of a screen."""
    found: dict[str, type[ViewScreen]] = {
        "attach": AttachScreen,
        "launch": LaunchScreen,
        "diff": DiffScreen,
        "compare": CompareScreen,
    }
    return found.get(view) or type(RUN_SCREENS[view]())


@pytest.mark.parametrize("view", VIEWS)
def test_every_action_exists_and_help_names_every_key(view: View) -> None:
    text = "\n".join(line.plain for line in help_lines(view, 200))
    for key in (*VIEW_KEYS[view], *VIEW_KEYS["list"], *APP_KEYS):
        owner: type[Any] = screen_type(view)
        if key.action.startswith("app."):
            owner = EagleApp
        elif key in VIEW_KEYS["list"]:
            owner = LedgerTable
        name = key.action.removeprefix("app.").split("(")[0]
        assert callable(getattr(owner, f"action_{name}", None)), f"{view}: {key.id} has no action"
        assert f"  {key_names(key)} " in text, f"{view}: {key.id} is not in the help"
        assert key.help in text


async def not_here(*arguments: str, outlives: bool = False) -> Ran:
    """Refuse every command: what keys start is tested elsewhere."""
    return Ran(2, "", f"{arguments[0]} is not run here")


_MOVES: Final = (["move(1)"], ["move(-1)"], ["move_page(1)"], ["move_page(-1)"])


@asynccontextmanager
async def watched(
    built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Screens, list[str]]]:
    """The app on a run beside another one, with every action it runs written down, and no way to leave."""
    monkeypatch.setattr(orders, "_APPLIED_WITHIN_S", 0.05)
    monkeypatch.setenv("EAGLETUI_RUNS", str(tmp_path))
    empty_run(tmp_path / "another", "another")
    done: list[str] = []
    async with opened(built, program=not_here) as screens:
        run = screens.app.run_action

        async def run_action(action: Any, *args: Any, **kwargs: Any) -> bool:
            done.append(action if isinstance(action, str) else f"{action[1]}{action[2] or ''}")
            return await run(action, *args, **kwargs)

        monkeypatch.setattr(screens.app, "run_action", run_action)
        monkeypatch.setattr(screens.app, "action_detach", lambda: None)
        yield screens, done


async def go_to(screens: Screens, view: View) -> None:
    """Bring a screen to the front, from wherever the last key led."""
    app = screens.app
    for _ in range(8):
        screen = app.screen
        if isinstance(app.focused, Entry) and view != "launch":
            await screens.press("escape")
        elif isinstance(screen, ViewScreen) and screen.VIEW == view:
            return
        elif screen.is_modal or (view not in ("diff", "compare") and isinstance(screen, DiffScreen | CompareScreen)):
            await app.pop_screen()
            await screens.settle()
        elif isinstance(screen, LaunchScreen):
            await screens.press("escape")
        elif view == "diff":
            app.open_sample("s-000025", SampleOrder(keys=["s-000025", "s-000012"]))
            await screens.settle()
        elif view == "compare" and isinstance(screen, AttachScreen):
            app.push_screen(CompareScreen(*list_runs()[:2]))
            await screens.settle()
        else:
            await screens.press(*WAYS[view])
    raise AssertionError(f"{view} cannot be reached from {app.screen}")


async def press_every_key(screens: Screens, done: list[str], view: View, keys: tuple[Key, ...]) -> None:
    """Press each name of each key on a screen and see its action run; a screen's own keys go before the app's."""
    own = {name for key in VIEW_KEYS[view] for name in key.keys.split(",")} if keys is APP_KEYS else set[str]()
    for key in keys:
        for name in key.keys.split(","):
            if name in own:
                continue
            await go_to(screens, view)
            done.clear()
            await screens.press(name)
            # A list in front takes enter and, among the fields of the launcher, the keys that move in it.
            by_list = (name == "enter" and "choose" in done) or (view == "launch" and done[:1] in _MOVES)
            assert by_list or key.action in done, f"{view}: {name} ran {done}, not {key.action}"
            assert "Failed to" not in screens.text, f"{view}: {name}\n{screens.text}"
            screens.app.theme = screens.app.theme if key.id != "app.theme" else "eagle-dark"


async def test_every_key_of_the_spend_screen_does_what_it_says(
    busy: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watched(busy, tmp_path, monkeypatch) as (screens, done):
        await screens.resize(NARROW)
        await press_every_key(screens, done, "spend", VIEW_KEYS["spend"])


@pytest.mark.slow
@pytest.mark.parametrize(("view", "ledger"), [*product(VIEWS, ("empty", "full"))])
async def test_every_key_of_every_screen_does_what_it_says(
    view: View, ledger: Literal["empty", "full"], busy: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = busy if ledger == "full" else empty_run(tmp_path / "fresh", "fresh")
    async with watched(built, tmp_path, monkeypatch) as (screens, done):
        await go_to(screens, view)
        found = {command.title for command in screens.app.get_system_commands(screens.app.screen)}
        wanted = (*VIEW_KEYS[view], *APP_KEYS)
        assert found == {f"{key.label} ({key.name})" for key in wanted if key.id != "app.palette"}
        sizes: tuple[Size, ...] = (WIDE, NARROW)
        for size, theme in product(sizes, ("eagle-dark", "eagle-mono")):
            await screens.resize(size)
            screens.app.theme = theme
            await press_every_key(screens, done, view, VIEW_KEYS[view])
        if view in LISTS:
            await press_every_key(screens, done, view, VIEW_KEYS["list"])
        if view != "launch":  # its fields take what is typed
            await press_every_key(screens, done, view, APP_KEYS)
