"""The installed program in a real pseudo-terminal: signals, size, refusal, farewell."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eagletui.ledger.locks import RoleLock
from eagletui.tui import terminal
from tests.tui.factory import Built

PROGRAM = "import sys; from eagletui.cli.app import main; main(sys.argv[1:])"
LEAVE_ALTERNATE_SCREEN = b"\x1b[?1049l"
PATIENCE_S = 60.0


class Terminal:
    """A program in a pseudo-terminal of its own session."""

    def __init__(
        self, arguments: list[str], environ: dict[str, str], size: tuple[int, int], program: str = PROGRAM
    ) -> None:
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            os.execve(sys.executable, [sys.executable, "-c", program, *arguments], environ)
        self.resize(size)
        self.output = b""
        self.ended = False

    def resize(self, size: tuple[int, int]) -> None:
        """Change the size, which the program is told by SIGWINCH."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))

    def write(self, data: bytes) -> None:
        """Press keys."""
        os.write(self._master, data)

    def read_until(self, part: bytes) -> None:
        """Wait until the program wrote something."""
        deadline = time.monotonic() + PATIENCE_S
        while part not in self.output:
            assert time.monotonic() < deadline, f"{part!r} never came:\n{self.output[-3000:]!r}"
            assert self._read(0.5), f"the program ended without {part!r}:\n{self.output[-3000:]!r}"

    def wait(self) -> int:
        """Wait for the end and give the exit code."""
        while self._read(0.5):
            pass
        _, status = os.waitpid(self.pid, 0)
        self.ended = True
        return os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        """End the program if it still runs."""
        if not self.ended:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._master)

    def _read(self, timeout_s: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], timeout_s)
        if not ready:
            return True
        try:
            data = os.read(self._master, 65_536)
        except OSError:
            # Linux reports the end of a pseudo-terminal's other side as an error.
            return False
        self.output += data
        return bool(data)


@contextmanager
def program(arguments: list[str], size: tuple[int, int] = (120, 36), **environ: str) -> Iterator[Terminal]:
    root = str(Path(__file__).parents[2])
    variables = {"PATH": os.environ["PATH"], "TERM": "xterm-256color", "LANG": "C.UTF-8", "PYTHONPATH": root}
    started = Terminal(arguments, variables | {"HOME": os.environ.get("HOME", "/")} | environ, size)
    try:
        yield started
    finally:
        started.close()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGHUP, 129), (signal.SIGTERM, 143)])
@pytest.mark.slow
def test_a_signal_restores_the_screen_and_says_that_the_run_goes_on(busy: Built, number: int, code: int) -> None:
    runs = str(busy.path.parent)
    with RoleLock(busy.path, "engine"), program(["attach", str(busy.path)], EAGLETUI_RUNS=runs) as shown:
        shown.read_until(b"Needs attention")
        os.kill(shown.pid, number)
        assert shown.wait() == code
    assert LEAVE_ALTERNATE_SCREEN in shown.output
    last = shown.output.decode().rstrip().splitlines()[-1]
    assert last.endswith(f"run b3-magicoder continues (pid {os.getpid()}). eagletui attach b3-magicoder")


@pytest.mark.slow
def test_q_leaves_at_once_after_a_change_of_size(busy: Built) -> None:
    runs = str(busy.path.parent)
    with program(["attach", str(busy.path), "--no-mouse"], (120, 36), EAGLETUI_RUNS=runs) as shown:
        shown.read_until(b"Needs attention")
        shown.resize((80, 24))
        shown.read_until(b"tok   proved")
        shown.write(b"q")
        assert shown.wait() == 0
    assert LEAVE_ALTERNATE_SCREEN in shown.output
    assert b"\x1b[?1000h" not in shown.output, "the mouse was left to the terminal"
    assert b"run b3-magicoder is interrupted. eagletui run b3-magicoder" in shown.output


@pytest.mark.slow
def test_the_terminal_going_away_ends_the_app_and_nothing_else(busy: Built) -> None:
    shown = Terminal(
        ["attach", str(busy.path)],
        {"PATH": os.environ["PATH"], "TERM": "xterm", "LANG": "C.UTF-8", "PYTHONPATH": str(Path(__file__).parents[2])},
        (80, 24),
    )
    shown.read_until(b"Needs attention")
    os.close(shown._master)
    _, status = os.waitpid(shown.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 129


def test_hostile_text_never_reaches_the_terminal(hostile: Built) -> None:
    with program(["attach", str(hostile.path)]) as shown:
        shown.read_until(b"Needs attention")
        shown.write(b"2")
        shown.read_until(b"isolate")
        shown.write(b"G")
        shown.read_until(b"s-000059")
        shown.write(b"q")
        shown.wait()
    drawn = shown.output.decode().replace("\x1b]22;default\x07", "")  # the library's own pointer shape
    for forbidden in (
        "\x07",
        "\x1b]",
        "\x1bP",
        "\x1b_",
        "\x1bc",
        "\x9b",
        "\x9d",
        "\u202e",
        "\u2066",
        "\u200b",
        "owned",
    ):
        assert forbidden not in drawn


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_terminal_that_cannot_draw_is_refused_with_what_to_do(busy: Built, term: str) -> None:
    with program(["attach", str(busy.path)], TERM=term) as shown:
        assert shown.wait() == 2
    assert b"From here: eagletui status RUN --watch, or eagletui inspect RUN." in shown.output


def test_without_a_terminal_the_app_is_refused(busy: Built) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "attach", str(busy.path)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.returncode == 2
    assert "This is not a terminal. From here: " in done.stderr
    assert done.stdout == ""


@pytest.mark.slow
def test_no_color_sends_no_colour(busy: Built) -> None:
    with program(["attach", str(busy.path)], NO_COLOR="1") as shown:
        shown.read_until(b"Needs attention")
        shown.write(b"q")
        shown.wait()
    for colour in (b"\x1b[38;", b"\x1b[48;", b";38;2;", b";38;5;", b";48;2;", b";48;5;"):
        assert colour not in shown.output


def test_the_environment_decides_pace_theme_and_glyphs() -> None:
    over_ssh = {"SSH_CONNECTION": "10.0.4.2 1 10.0.4.1 22", "TEXTUAL_FPS": "4"}
    terminal.prepare(over_ssh)
    assert over_ssh["TEXTUAL_FPS"] == "4", "what the person set stays"
    assert over_ssh["TEXTUAL_ANIMATIONS"] == "none"
    assert terminal.refresh_seconds(over_ssh) == 0.5
    assert terminal.refresh_seconds({}) == 0.25
    assert terminal.theme_name({"TERM": "xterm-256color"}) == "eagle-dark"
    assert terminal.theme_name({"TERM": "xterm", "COLORTERM": "truecolor"}) == "eagle-dark"
    assert terminal.theme_name({"TERM": "linux"}) == "eagle-mono"
    assert terminal.theme_name({"TERM": "xterm-256color", "NO_COLOR": ""}) == "eagle-mono"
    assert terminal.needs_ascii("ANSI_X3.4-1968")
    assert not terminal.needs_ascii("UTF-8")
