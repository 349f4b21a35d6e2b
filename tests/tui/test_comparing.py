"""Two runs side by side."""

from pathlib import Path

import pytest

from tests.tui.driving import NARROW, WIDE, opened
from tests.tui.factory import Built, empty_run


@pytest.mark.slow
async def test_two_runs_are_marked_compared_and_one_is_opened(
    busy: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EAGLETUI_RUNS", str(tmp_path))
    empty_run(tmp_path / "fresh", "fresh", busy.clock)
    async with opened(None, NARROW) as screens:
        await screens.press("c")
        assert "Mark two runs with space" in screens.text
        while "b3-magicoder" not in screens.line_with(">"):
            await screens.press("j")
        await screens.press("space")
        assert "*b3-magicoder" in screens.line_with("b3-magicoder")
        while "fresh" not in screens.line_with(">"):
            await screens.press("j" if screens.line_with("fresh") > screens.line_with("magicoder") else "k")
        await screens.press("c")
        assert "compare b3-magicoder with fresh" in screens.lines[0]
        assert screens.line_with("  samples ").split() == ["│", "samples", "60", "0", "-60", "│"]
        assert screens.line_with("tokenizer").split()[2:5] == ["9a1c9a1c9a1c", "9a1c9a1c9a1c", "same"]
        await screens.resize(WIDE)
        assert screens.line_with("settled").split() == ["│", "settled", "$0.0043", "$0.0000", "-$0.0043", "│"]
        assert screens.line_with("streamed").split() == ["│", "streamed", "15", "0", "-15", "│"]
        await screens.press("escape", "c", "h")
        await screens.look()
        assert "run b3-magicoder" in screens.lines[0]
