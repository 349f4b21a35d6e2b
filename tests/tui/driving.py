"""Drive the app by keys and read what is on the screen."""

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator, Iterator
from typing import Literal

from textual import _wait
from textual.pilot import Pilot

from eagletui.cli.app import main
from eagletui.core.lifecycle import WorkerRole
from eagletui.ledger.locks import RoleLock
from eagletui.runs.folder import RunFolder
from eagletui.tui.app import EagleApp
from eagletui.tui.keymap import Keymap
from eagletui.tui.program import Program, Ran
from tests.tui.factory import Built

Size = tuple[int, int]
WIDE: Size = (120, 36)
NARROW: Size = (80, 24)
_ROUNDS = 40
NEVER_S = 3_600.0
"""The app looks at the ledger only when the test says so."""

# The library looks every 20 ms whether the app rests, a third of the time of a test. The share of rest stays the same.
_wait.SLEEP_GRANULARITY, _wait.SLEEP_IDLE = 0.01, 0.01 / 20


class Screens:
    """The app under test."""

    def __init__(self, app: EagleApp, pilot: Pilot[None]) -> None:
        self.app = app
        self._pilot = pilot

    async def settle(self) -> None:
        """Wait until nothing is left to do but waiting for time.

        The library's pause takes a process that gets no processor for an idle one, so queues are looked at as well.
        """
        for _ in range(_ROUNDS):
            had_work = any(worker.group != "poll" for worker in self.app.workers)
            await self._pilot.pause()
            busy = [worker for worker in self.app.workers if worker.group != "poll" and not worker.is_finished]
            if busy:
                await self.app.workers.wait_for_complete(busy)
            elif not had_work and not self._has_mail():
                # What ended during the pause may have left a screen to lay out, so its round is not the last.
                return

    def _has_mail(self) -> bool:
        screen = self.app.screen
        if screen._layout_required or screen._repaint_required or screen._dirty_widgets:
            return True
        return any(node.message_queue_size for node in (self.app, *screen.walk_children(with_self=True)))

    async def look(self) -> None:
        """Let the app read the ledger now."""
        await self.app.look_now()
        await self.settle()

    async def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        for key in keys:
            await self._pilot.press(key)
            await self.settle()

    async def write(self, text: str) -> None:
        """Type text."""
        await self._pilot.press(*(_KEY_NAMES.get(char, char) for char in text))
        await self.settle()

    async def resize(self, size: Size) -> None:
        """Change the terminal's size."""
        await self._pilot.resize_terminal(*size)
        await self.settle()

    @property
    def lines(self) -> list[str]:
        """What is on the screen, line by line."""
        strips = self.app.screen._compositor.render_strips()
        return [strip.text for strip in strips]

    @property
    def text(self) -> str:
        """What is on the screen."""
        return "\n".join(self.lines)

    def line_with(self, part: str) -> str:
        """The first line that holds a text."""
        found = [line for line in self.lines if part in line]
        assert found, f"{part!r} is not on the screen:\n{self.text}"
        return found[0]


_KEY_NAMES = {
    " ": "space",
    ":": "colon",
    ">": "greater_than_sign",
    '"': "quotation_mark",
    "-": "minus",
    ".": "full_stop",
    "/": "slash",
    ",": "comma",
}


@contextlib.asynccontextmanager
async def opened(
    built: Built | None,
    size: Size = WIDE,
    *,
    theme: str | None = None,
    ascii_: bool = False,
    read_only: bool = False,
    workers: tuple[Literal["engine", "extractor"], ...] = ("engine", "extractor"),
    program: Program | None = None,
    keymap: Keymap | None = None,
) -> AsyncIterator[Screens]:
    """Open the app on a run whose workers hold their locks."""
    folder = None if built is None else RunFolder(built.path)
    app = EagleApp(
        folder,
        read_only=read_only,
        refresh_s=NEVER_S,
        ascii_=ascii_,
        theme=theme,
        clock=built.clock if built is not None else lambda: 1_760_000_881.0,
        program=program or in_process,
        keymap=keymap,
    )
    with locks(built, workers if built is not None else ()):
        async with app.run_test(size=size) as pilot:
            screens = Screens(app, pilot)
            if built is not None:
                await screens.look()
            await screens.settle()
            yield screens


async def in_process(*arguments: str, outlives: bool = False) -> Ran:
    """Run one of the program's commands here, beside the screens."""
    output, errors = io.StringIO(), io.StringIO()

    def call() -> int:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            try:
                main(arguments)
            except SystemExit as end:
                return end.code if isinstance(end.code, int) else 0

    code = await asyncio.to_thread(call)
    return Ran(code, output.getvalue(), errors.getvalue())


@contextlib.contextmanager
def locks(built: Built | None, roles: tuple[WorkerRole, ...]) -> Iterator[None]:
    """Hold the locks that living workers would hold."""
    with contextlib.ExitStack() as stack:
        for role in roles:
            assert built is not None
            stack.enter_context(RoleLock(built.path, role))
        yield
