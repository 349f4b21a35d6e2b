"""Hostile text reaches every screen and no terminal."""

import ast
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest

import eagletui.tui
from eagletui.core.errors import LedgerError
from eagletui.ledger.filters import SampleFilter
from eagletui.runs.folder import RunFolder
from eagletui.tui.messages import OrderDone, RunUnreadable
from eagletui.tui.sample_order import SampleOrder
from eagletui.tui.screens.samples import SamplesScreen
from tests.tui.driving import NARROW, WIDE, Screens, opened
from tests.tui.factory import HOSTILE, Built, stored

SOURCES = sorted(Path(next(iter(eagletui.tui.__path__))).rglob("*.py"))
ONE_DOOR = "safe_text.py"
CONTENT_MAKERS = {
    "Content",
    "Static",
    "Label",
    "Markdown",
    "RichLog",
    "Log",
    "Text",
    "TextArea",
    "Option",
    "Tab",
    "Tree",
}


def assert_harmless(screens: Screens) -> None:
    for strip in screens.app.screen._compositor.render_strips():
        for segment in strip:
            assert segment.control is None
            harmful = [char for char in segment.text if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")]
            assert harmful == [], repr(strip.text)


@pytest.mark.slow
async def test_hostile_text_in_the_ledger_is_harmless_on_every_screen(hostile: Built) -> None:
    async with opened(hostile, WIDE) as screens:
        assert_harmless(screens)
        await screens.press("2")
        screen = screens.app.screen
        assert isinstance(screen, SamplesScreen)
        for index in range(len(HOSTILE)):
            screen.table.move_to(index)
            await screens.settle()
            assert_harmless(screens)
        await screens.press("g", "enter")
        for _ in range(len(HOSTILE)):
            await screens.press("right_square_bracket")
            assert_harmless(screens)
        for key in ("i", "b", "t", "v", "y", "Y", "escape", *"34567", "question_mark", "escape", "colon", "escape"):
            await screens.press(key)
            assert_harmless(screens)


async def test_hostile_text_is_harmless_on_a_small_terminal(hostile: Built) -> None:
    async with opened(hostile, NARROW) as screens:
        for key in ("n", "enter", "t", "escape", "2", "pagedown", "pagedown", "f", "enter", "m", "5"):
            await screens.press(key)
            assert_harmless(screens)


@pytest.mark.slow
async def test_hostile_names_errors_filters_and_results_are_harmless(busy: Built) -> None:
    async with opened(busy, NARROW) as screens:
        await screens.press("2")
        screen = screens.app.screen
        assert isinstance(screen, SamplesScreen)
        for text in HOSTILE:
            screens.app.post_message(OrderDone(text, ok=True))
            await screens.settle()
            assert_harmless(screens)
            screens.app.post_message(RunUnreadable(LedgerError(text)))
            screen.show_only(SampleFilter(text=stored(text)))
            await screens.settle()
            assert_harmless(screens)
        for text in HOSTILE[8:16]:
            screens.app.open_sample(stored(text), SampleOrder(keys=(text,)))
            await screens.settle()
            assert_harmless(screens)
            await screens.press("escape")


async def test_a_run_folder_with_a_hostile_name_is_listed_and_opened(
    busy: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "runs"
    root.mkdir()
    busy.path.rename(root / "[red]\x1b[31m[nope]")
    monkeypatch.setenv("EAGLETUI_RUNS", str(root))
    async with opened(None, NARROW) as screens:
        assert_harmless(screens)
        assert "[red][nope]" in screens.text
        await screens.press("enter")
        await screens.look()
        assert_harmless(screens)
        assert "[1 Run]" in screens.lines[1]
        assert screens.app.folder == RunFolder(root / "[red]\x1b[31m[nope]")


@pytest.mark.slow
async def test_ascii_mode_draws_ascii_only(hostile: Built) -> None:
    async with opened(hostile, WIDE, ascii_=True) as screens:
        for key in ("n", "2", "f", "enter", "t", "v", "escape", *"34567", "question_mark", "escape", "X", "escape"):
            await screens.press(key)
            strange = sorted({char for char in screens.text if not char.isascii()})
            assert strange == [], f"{key}: {strange}\n{screens.text}"


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            yield name, node


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_the_code_has_one_door_for_text(path: Path) -> None:
    for name, call in calls(path):
        where = f"{path.name}:{call.lineno}: {name}"
        assert name not in ("from_markup", "from_ansi", "escape", "print"), where
        if path.name != ONE_DOOR:
            assert name not in CONTENT_MAKERS, f"{where} makes content outside the one door"
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        if name == "notify":
            markup = keywords.get("markup")
            assert isinstance(markup, ast.Constant), where
            assert markup.value is False, where
            assert not isinstance(call.args[0], ast.Name | ast.JoinedStr), f"{where}: clean the text first"
        if name == "Button":
            first = call.args[0]
            assert isinstance(first, ast.Call), where
            assert getattr(first.func, "id", "") == "styled", where
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Assign) and path.name != ONE_DOOR:
            for target in node.targets:
                if isinstance(target, ast.Attribute):
                    forbidden = ("border_title", "border_subtitle", "tooltip", "sub_title", "title")
                    assert target.attr not in forbidden, f"{path.name}:{node.lineno}: {target.attr}"


def test_the_walk_over_the_code_finds_what_it_looks_for(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("self.notify(f'{x}', markup=False)\n", encoding="utf-8")
    with pytest.raises(AssertionError):
        test_the_code_has_one_door_for_text(bad)
    bad.write_text("Static(text)\n", encoding="utf-8")
    with pytest.raises(AssertionError):
        test_the_code_has_one_door_for_text(bad)
    bad.write_text("panel.border_title = name\n", encoding="utf-8")
    with pytest.raises(AssertionError):
        test_the_code_has_one_door_for_text(bad)


async def test_the_palette_keeps_to_ascii_too(hostile: Built) -> None:
    async with opened(hostile, NARROW, ascii_=True) as screens:
        await screens.press(":")
        assert "Search for an action" in screens.text
        assert "Send the line" in screens.text
        assert sorted({char for char in screens.text if not char.isascii()}) == []
