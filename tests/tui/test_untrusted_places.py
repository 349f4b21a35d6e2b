"""Hostile text in what the launcher, the verdicts, the bills and the commands bring to the screen."""

import json
from pathlib import Path

import pytest

from eagletui.core.text import clean_line
from eagletui.runs.folder import RunFolder
from eagletui.tui.program import Ran
from eagletui.tui.screens.compare import CompareScreen
from eagletui.tui.screens.dialogs import ConfirmDialog
from eagletui.tui.screens.sign_dialog import SignDialog
from eagletui.tui.widgets.entry import Entry
from tests.tui.driving import NARROW, WIDE, opened
from tests.tui.factory import HOSTILE, Built, stored
from tests.tui.test_untrusted_text import assert_harmless

STORED = tuple(stored(text) for text in HOSTILE)


def hostile_plan() -> str:
    """What a plan would be whose every text came from someone else."""
    endpoint = {
        "prompt_usd_per_million": HOSTILE[0],
        "completion_usd_per_million": "0.6",
        "logprobs": True,
        "stream": True,
        "ids": False,
    }
    return json.dumps(
        {
            "refusals": HOSTILE,
            "notes": HOSTILE,
            "samples": 1,
            "by_dataset": {text: {"samples": 1} for text in HOSTILE},
            "prompt_tokens": 1,
            "output_tokens_worst": 1,
            "endpoints": [{**endpoint, "tag": text, "quantization": text} for text in HOSTILE],
            "spend_usd": dict.fromkeys(("worst_case", "largest_hold", "stop_at", "cap", "full_pace_cap"), "1"),
            "in_flight": {"max": 1, "near_stop_at": 1},
            "disk_bytes": {"ledger": 1, "features": 1, "free": 1},
        }
    )


@pytest.mark.parametrize("ascii_", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.slow
async def test_a_hostile_config_and_its_plan_are_harmless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ascii_: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EAGLETUI_RUNS", str(tmp_path / "runs"))
    for number, text in enumerate(STORED):
        name = "".join(char for char in text[:40] if char not in "/\0")
        body = f'[run]\nname = "x"\n[model]\nid = {json.dumps(text)}\n[provider]\nkind = {json.dumps(text)}\n'
        (tmp_path / f"{number:02}{name}.toml").write_text(body, encoding="utf-8")
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "Hi."}\n', encoding="utf-8")
    (tmp_path / "!first.toml").write_text(
        '[run]\nname = "x"\n[prompts]\npath = "prompts.jsonl"\n[model]\nid = "\\u001b[31m[/x]"\ntokenizer = "t"\n'
        'format = "smollm2"\n[provider]\nkind = "vllm"\n[spend]\nstop_at_usd = "1"\ncap_usd = "2"\n',
        encoding="utf-8",
    )

    async def program(*arguments: str, outlives: bool = False) -> Ran:
        return Ran(2, hostile_plan(), "")

    async with opened(None, NARROW, program=program, ascii_=ascii_) as screens:
        await screens.press("ctrl+n")
        assert_harmless(screens)
        await screens.press("pagedown", "pagedown", "enter")
        assert_harmless(screens)
        await screens.press("g", "enter", "f5")
        assert "refused" in screens.text
        for _ in range(4):
            await screens.press("pagedown")
            assert_harmless(screens)
        await screens.resize(WIDE)
        for _ in range(4):
            await screens.press("pagedown")
            assert_harmless(screens)
        if ascii_:
            assert sorted({char for char in screens.text if not char.isascii()}) == []


@pytest.mark.slow
async def test_hostile_verdicts_endpoints_and_complaints_are_harmless(busy: Built, tmp_path: Path) -> None:
    with busy.writer() as writer:
        for text in STORED:
            writer.accept("b1_glaive", text, text, mismatched=1, samples=2)
            writer.upsert_endpoint(text or "x", text, text, text)
            writer.add_price(text or "x", prompt_usd="0.0000002", completion_usd="0.0000006")

    async def program(*arguments: str, outlives: bool = False) -> Ran:
        return Ran(2, "", HOSTILE[len(arguments) % len(HOSTILE)] + "".join(HOSTILE[:8]))

    async with opened(busy, NARROW, program=program) as screens:
        await screens.press("6")
        assert_harmless(screens)
        await screens.press("enter", *"rule", "enter", "right", "right", "enter")
        assert "Not signed: " in screens.text
        assert_harmless(screens)
        await screens.press("3")
        for _ in range(len(HOSTILE)):
            await screens.press("j")
            assert_harmless(screens)
        await screens.press("u")
        assert_harmless(screens)
        await screens.press("escape", "7", "e", "e")
        assert_harmless(screens)
        await screens.press("2", "e", "right", "enter")
        assert "Not exported: " in screens.text
        assert_harmless(screens)
        everything = "".join(HOSTILE)
        screens.app.push_screen(SignDialog(everything, [(text,) for text in HOSTILE]))
        await screens.settle()
        assert_harmless(screens)
        await screens.press("escape")
        screens.app.push_screen(ConfirmDialog(everything, HOSTILE, "Do", "Do not"))
        await screens.settle()
        assert_harmless(screens)
        await screens.press("escape")
        other = tmp_path / "[red]\x1b[31m[nope]"
        screens.app.push_screen(CompareScreen(RunFolder(busy.path), RunFolder(other)))
        await screens.settle()
        assert_harmless(screens)


async def test_a_field_to_type_in_shows_nothing_that_steers_a_terminal(busy: Built) -> None:
    async with opened(busy) as screens:
        await screens.press("2", "slash")
        field = screens.app.screen.query_one("#filter-input", Entry)
        for text in HOSTILE:
            field.edit(text)
            assert field.value == clean_line(text)
            await screens.settle()
            assert_harmless(screens)
