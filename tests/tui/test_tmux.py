"""The installed program under tmux, as people on a GPU box use it: start, resize, leave, lose the line, come back."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from eagletui.runs.folder import RunFolder
from eagletui.runs.workers import workers
from tests.cli.conftest import CONFIG

PROGRAM = "import sys; from eagletui.cli.app import main; main(sys.argv[1:])"
PATIENCE_S = 120.0
SLOW = '[[fault]]\nkind = "slow"\nparams = { first_token_s = 1.0, tokens_per_s = 60.0 }\n'

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed: apt-get install tmux"),
]


class Tmux:
    """A tmux server of its own, without anyone's config."""

    def __init__(self, folder: Path) -> None:
        self._socket = str(folder / "tmux")
        root = str(Path(__file__).parents[2])
        keep = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        self._environ = keep | {"LANG": "C.UTF-8", "PYTHONPATH": root, "EAGLETUI_RUNS": str(folder / "runs")}

    def call(self, *arguments: str) -> str:
        """Run a tmux command."""
        command = ["tmux", "-S", self._socket, "-f", "/dev/null", *arguments]
        done = subprocess.run(command, env=self._environ, capture_output=True, text=True, check=False)
        return done.stdout

    def start(self, session: str, size: tuple[int, int], *arguments: str) -> None:
        """Open a terminal of a size with the program in it; the terminal stays when the program ends."""
        columns, rows = map(str, size)
        code = [sys.executable, "-c", PROGRAM, *arguments]
        self.call(
            "new-session", "-d", "-s", session, "-x", columns, "-y", rows, "sh", "-c", '"$@"; sleep 600', "sh", *code
        )

    def screen(self, session: str) -> str:
        """What the terminal shows."""
        return self.call("capture-pane", "-p", "-t", session)

    def press(self, session: str, *keys: str) -> None:
        """Press keys."""
        self.call("send-keys", "-t", session, *keys)

    def wait(self, session: str, holds: Callable[[str], bool], what: str) -> str:
        """Wait until the terminal shows something."""
        deadline = time.monotonic() + PATIENCE_S
        while not holds(shown := self.screen(session)):
            assert time.monotonic() < deadline, f"{what} never came:\n{shown}"
            time.sleep(0.05)
        return shown

    def wait_text(self, session: str, text: str) -> str:
        """Wait for a text, however the terminal wraps it."""
        return self.wait(session, lambda shown: text in shown, text)


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Tmux]:
    prompts = "".join(f'{{"id": "p{number}", "prompt": "Question {number}?"}}\n' for number in range(12))
    (tmp_path / "prompts.jsonl").write_text(prompts, encoding="utf-8")
    (tmp_path / "faults.toml").write_text(SLOW, encoding="utf-8")
    text = CONFIG.format(
        name="night",
        stop_at="0.0010",
        cap="0.0010",
        max_in_flight=2,
        temperature=1.0,
        provider='faults = "faults.toml"',
    )
    (tmp_path / "config.toml").write_text(text, encoding="utf-8")
    server = Tmux(tmp_path)
    yield server
    server.call("kill-server")
    folder = RunFolder(tmp_path / "runs" / "night")
    for worker in workers(folder):
        if worker.alive:
            with suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGKILL)


def test_a_paid_run_outlives_its_terminals_and_is_steered_from_another_one(tmux: Tmux, tmp_path: Path) -> None:
    tmux.start("first", (120, 36), "run", str(tmp_path / "config.toml"))
    tmux.wait_text("first", "Needs attention")
    assert "● RUNNING" in tmux.wait_text("first", "run night")
    tmux.call("resize-window", "-t", "first", "-x", "80", "-y", "24")
    tmux.wait(
        "first",
        lambda shown: "Drift, evidence and features" in shown and "proof by" not in shown,
        "the small dashboard",
    )
    tmux.press("first", "p")
    tmux.wait_text("first", "PAUSED by you")
    tmux.press("first", "p")
    tmux.wait("first", lambda shown: "PAUSED by you" not in shown, "the run that goes on")
    tmux.press("first", "q")
    tmux.wait_text("first", "eagletui attach night")

    tmux.start("second", (120, 36), "attach", "night")
    tmux.wait_text("second", "Needs attention")
    (engine,) = (worker for worker in workers(RunFolder(tmp_path / "runs" / "night")) if worker.role == "engine")
    tmux.call("kill-session", "-t", "second")
    assert engine.alive

    tmux.start("third", (80, 24), "attach", "night")
    shown = tmux.wait_text("third", "Needs attention")
    assert "NO ENGINE" not in shown, "the line that was lost took no worker along"
    tmux.wait("third", lambda shown: "PAUSED at" in shown, "a limit")
    tmux.press("third", "$")
    tmux.wait_text("third", "Edit limits")
    for key, then in (
        ("C-u", "stop-at must be an amount"),
        ("1.00", "stop-at is above the cap"),
        ("Down", "stop-at is above the cap"),
        ("C-u", "cap must be an amount"),
        ("1.00", "The run then goes on."),
        ("Enter", "Edit limits"),  # on to the button, past the consequence
        ("Enter", "RUNNING"),
    ):
        tmux.press("third", key)
        tmux.wait_text("third", then)
    tmux.wait("third", lambda shown: "PAUSED at" not in shown and "RUNNING" in shown, "the run that goes on")
    tmux.wait_text("third", "■ DONE")
    tmux.press("third", "q")
    tmux.wait_text("third", "eagletui attach night")
    folder = RunFolder(tmp_path / "runs" / "night")
    assert [worker.role for worker in workers(folder) if worker.alive and worker.role == "engine"] == []
