"""What happens many times a second costs little: figures change where they stand, garbage waits for a quiet moment."""

import subprocess
import sys
from pathlib import Path

from tests.tui.driving import WIDE, opened
from tests.tui.factory import Built, answer, result_for, send


def _go_on(built: Built) -> None:
    built.clock.now += 0.25
    with built.writer() as writer:
        (attempt,) = send(writer, 1)
        answer(writer, attempt, result_for("It was windy, and the lamp was lit.", "streamed"))
        writer.event("info", "engine", "progress", f"{built.clock.now}")
        writer.beat("engine", ready=True)
        writer.tick()


async def test_figures_that_change_move_nothing_on_the_screen(busy: Built) -> None:
    async with opened(busy, WIDE) as screens:
        for keys in ("1", "2G", "3", "5"):
            await screens.press(*keys)
            _go_on(busy)
            await screens.look()
            before, layouts = screens.text, list[object]()
            screens.app.screen.screen_layout_refresh_signal.subscribe(screens.app.screen, layouts.append)
            for _ in range(2):
                _go_on(busy)
                await screens.look()
            assert screens.text != before, f"screen {keys[0]} shows what is new"
            assert layouts == [], f"screen {keys[0]} was laid out anew"


async def test_only_the_lines_that_changed_are_painted(busy: Built) -> None:
    async with opened(busy, WIDE) as screens:
        await screens.press("2")
        painted: list[int] = []
        table = screens.app.screen.query_one("#samples")
        render_line = table.render_line

        def counted(y: int) -> object:
            painted.append(y)
            return render_line(y)

        table.render_line = counted  # type: ignore[method-assign,assignment]
        await screens.press("j")
        assert sorted(set(painted)) == [1, 2], "the line that the cursor left, and the one it came to; 0 is the header"


def test_garbage_is_looked_for_when_nobody_presses_keys() -> None:
    command = [sys.executable, "-m", "tests.tui.tidied"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
