"""The app: a viewer of ledgers that hands orders to their workers."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, ClassVar, Final

from textual import events
from textual.app import App, SystemCommand
from textual.binding import BindingType
from textual.command import CommandPalette
from textual.screen import Screen
from textual.worker import Worker, WorkerState

from eagletui.core.errors import EagleError, LedgerError
from eagletui.core.text import clean_line
from eagletui.core.vocabulary import Vocabulary, unpack_vocabulary
from eagletui.ledger.async_reader import AsyncReader
from eagletui.runs.folder import RunFolder
from eagletui.tui import background, orders
from eagletui.tui.keymap import Keymap
from eagletui.tui.keys import APP_KEYS, VIEW_KEYS, View, bindings
from eagletui.tui.messages import OrderDone, RunRead, RunUnreadable
from eagletui.tui.poller import Poller
from eagletui.tui.program import Program, run_program
from eagletui.tui.run_view import RunView
from eagletui.tui.sample_order import SampleOrder
from eagletui.tui.screens.attach import AttachScreen
from eagletui.tui.screens.diff import DiffScreen
from eagletui.tui.screens.extract import ExtractScreen
from eagletui.tui.screens.frame import FramedScreen
from eagletui.tui.screens.help import HelpScreen
from eagletui.tui.screens.log import LogScreen
from eagletui.tui.screens.run import RunScreen
from eagletui.tui.screens.samples import SamplesScreen
from eagletui.tui.screens.spend import SpendScreen
from eagletui.tui.screens.verdicts import VerdictsScreen
from eagletui.tui.screens.view_screen import ViewScreen
from eagletui.tui.standing import can_start
from eagletui.tui.stylesheet import ParsedOnce
from eagletui.tui.theme import THEMES
from eagletui.tui.tidying import Tidying


def _charts() -> FramedScreen:
    # The plotting library costs a tenth of the time to the first screen, so it is loaded when it is wanted.
    from eagletui.tui.screens.charts import ChartsScreen

    return ChartsScreen()


def _launch() -> ViewScreen:
    # So does the validation of configs, which no other screen needs.
    from eagletui.tui.screens.launch import LaunchScreen

    return LaunchScreen()


RUN_SCREENS: Final[Mapping[View, Callable[[], FramedScreen]]] = {
    "run": RunScreen,
    "samples": SamplesScreen,
    "spend": SpendScreen,
    "extract": ExtractScreen,
    "log": LogScreen,
    "verdicts": VerdictsScreen,
    "charts": _charts,
}
_WITHOUT_RUN: Final[tuple[View, ...]] = ("attach", "launch")
"""Screens that need no run."""
_VARIABLES: Final = ("frame", "quiet", "off", "proved", "rebuilt", "cursor")


class EagleApp(App[None]):
    """The cockpit of one run at a time. Closing it ends nothing but itself."""

    TITLE = "eagletui"
    CSS_PATH = "eagle.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]  # noqa: RUF012 - declared so by the base class
    VERTICAL_BREAKPOINTS = [(0, "-tiny"), (22, "-short"), (30, "-tall")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = bindings("app")

    def __init__(
        self,
        run: RunFolder | None,
        *,
        read_only: bool = False,
        refresh_s: float = 0.25,
        ascii_: bool = False,
        theme: str | None = None,
        clock: Callable[[], float] = time.time,
        keymap: Keymap | None = None,
        program: Program = run_program,
    ) -> None:
        """Open the app.

        Args:
            run: which run; None opens the picker.
            read_only: refuse everything that changes a run.
            refresh_s: how often the ledger is looked at.
            ascii_: draw with ASCII only.
            theme: one of the themes; by default dark, or mono where NO_COLOR asks for it.
            clock: Unix seconds.
            keymap: other keys than the table's.
            program: runs the commands whose work the screens leave to them: plan, run, accept, export.
        """
        no_color = "NO_COLOR" in os.environ
        # The base class picks the filter that drops colours while it starts, by whether they are the terminal's own.
        super().__init__(ansi_color=True if no_color else None)
        self.stylesheet = ParsedOnce(variables=self.get_css_variables())
        self.set_reactive(App.ansi_color, None)
        for known in THEMES:
            self.register_theme(known)
        self.theme = theme or ("eagle-mono" if no_color else "eagle-dark")
        self.set_class(ascii_, "-ascii")
        self.read_only = read_only
        self.program = program
        self.clock = clock
        self.folder = run
        self.view: RunView | None = None
        self.trouble: EagleError | None = None
        self._refresh_s = refresh_s
        self._reader: AsyncReader | None = None
        self._poller: Poller | None = None
        self._vocabulary: Vocabulary | None = None
        self._runs_opened = 0
        self.unwritten: set[asyncio.Event] = set()
        """Orders on their way into the ledger, each set when it is there; closing waits for them."""
        self._tidying = Tidying(time.monotonic)
        self.add_mode("attach", partial(self._new_screen, AttachScreen))
        self.add_mode("launch", partial(self._new_screen, _launch))
        self.placed_keys = keymap or Keymap()
        self.set_keymap(dict(self.placed_keys.moved))

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Let the themes that come with the library work too."""
        return {name: THEMES[0].variables[name] for name in _VARIABLES}

    @property
    def reader(self) -> AsyncReader:
        """The open ledger."""
        assert self._reader is not None
        return self._reader

    @property
    def how_to_change(self) -> str:
        """What a person does who may only look, and wants to change the run."""
        return "attach --web with --allow-orders" if self.is_web else "attach without --read-only"

    @property
    def has_run(self) -> bool:
        """Tell whether a run is open."""
        return self._reader is not None

    async def on_mount(self) -> None:
        """Take the signals, then open the run or the picker."""
        self._take_signals()
        self.set_interval(1.0, self._second_passed)
        if self.folder is None:
            await self.switch_mode("attach")
        else:
            await self.open_run(self.folder)

    async def on_unmount(self) -> None:
        """Close the ledger."""
        if self._reader is not None:
            await self._reader.close()

    async def open_run(self, folder: RunFolder) -> None:
        """Show a run from its first screen; the screens of the one before are dropped."""
        try:
            reader = await AsyncReader.open(folder.ledger_path, self.clock)
        except EagleError as error:
            self.trouble = error
            await self.switch_mode("attach")
            return
        await self._leave_run()
        self._runs_opened += 1
        for view, screen in RUN_SCREENS.items():
            self.add_mode(self._mode(view), partial(self._new_screen, screen))
        self.folder = folder
        self._reader = reader
        self._poller = Poller(folder, reader, self.clock, self.post_message)
        # The first read goes on while the first screen is made.
        background.start(self, "read the ledger", partial(self._poller.run, self._refresh_s), group="poll")
        await self.switch_mode(self._mode("run"))

    async def _leave_run(self) -> None:
        if self._reader is None:
            return
        self.workers.cancel_group(self, "poll")
        if self.current_mode != "attach":
            await self.switch_mode("attach")
        for view in RUN_SCREENS:
            await self.remove_mode(self._mode(view))
        self.view = self._vocabulary = None
        reader, self._reader = self._reader, None
        await reader.close()

    def _new_screen(self, make: Callable[[], Screen[Any]]) -> Screen[Any]:
        screen = make()
        # It takes its styles while it mounts. Without the mark the library styles the whole app twice for it.
        screen._css_update_count = self._css_update_count
        return screen

    def _mode(self, view: View) -> str:
        return view if view in _WITHOUT_RUN else f"{view}-{self._runs_opened}"

    def open_sample(self, key: str, order: SampleOrder, at: int = 0) -> None:
        """Open the inspector on a sample.

        Args:
            key: which sample.
            order: the list it stands in.
            at: its place there.
        """
        self.push_screen(DiffScreen(key, order, at))

    async def vocabulary(self) -> Vocabulary | None:
        """Give the run's table of bytes per id, read once; None where the run has none."""
        if self._vocabulary is None and self.folder is not None:
            self._vocabulary = await asyncio.to_thread(_read_vocabulary, self.folder)
        return self._vocabulary

    async def on_event(self, event: events.Event) -> None:
        """Note when a person does something, and go on as ever."""
        if isinstance(event, events.InputEvent):
            self._tidying.touched()
        await super().on_event(event)

    async def look_now(self) -> None:
        """Look at the ledger and show what is there."""
        if self._poller is not None:
            await self._poller.look()

    def on_run_read(self, message: RunRead) -> None:
        """Show a read of the ledger on the screen in front."""
        if message.view.folder != self.folder:
            return
        old, self.view, self.trouble = self.view, message.view, None
        for screen in self.screen_stack:
            if not isinstance(screen, FramedScreen):
                continue
            if old is not None and old.snapshot is message.view.snapshot:
                screen.show_frame(message.view)
            else:
                screen.show_view(message.view)

    def on_run_unreadable(self, message: RunUnreadable) -> None:
        """Keep the last figures, which now age, and say why."""
        self.trouble = message.error
        if not isinstance(self.screen, FramedScreen):
            return
        if self.view is None:
            self.screen.say((f"The ledger cannot be read: {message.error}", "$error"))
        else:
            self.screen.show_frame(self.view)

    def on_order_done(self, message: OrderDone) -> None:
        """Say what came of an order."""
        if isinstance(self.screen, FramedScreen):
            self.screen.say((message.sentence, "$primary" if message.ok else "$warning"))
        else:
            self.notify(clean_line(message.sentence), markup=False)
        if self._poller is not None:
            self._poller.look_now()

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Show every failure of background work; none passes silently."""
        if event.state is WorkerState.ERROR:
            what = f"{event.worker.name or event.worker.description}: {event.worker.error}"
            self.notify(clean_line(f"Failed to {what}"), severity="error", markup=False, timeout=20)

    def _second_passed(self) -> None:
        if os.getppid() == 1 and not os.isatty(0):
            # The terminal went away without a signal; the input thread would spin on its end of file.
            self.exit(return_code=129)
        if self._tidying.is_due():
            self._tidying.tidy()
        if self.view is not None:
            for screen in self.screen_stack:
                if isinstance(screen, FramedScreen):
                    screen.show_frame(self.view)

    def _take_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGHUP, signal.SIGTERM):
            try:
                loop.add_signal_handler(number, self._end, number)
            except (RuntimeError, ValueError):
                # Not on the main thread: whoever embeds the app there handles signals.
                return

    def _end(self, number: signal.Signals) -> None:
        self.exit(return_code=128 + number)

    async def action_view(self, view: View) -> None:
        """Go to a screen; on it already, back to its beginning."""
        if view not in _WITHOUT_RUN and not self.has_run:
            return
        if self.screen.is_modal:
            return
        if self.current_mode == self._mode(view):
            while len(self.screen_stack) > 1:
                await self.pop_screen()
        else:
            await self.switch_mode(self._mode(view))

    def action_help(self) -> None:
        """Show the keys and words of this screen."""
        screen = self.screen
        if isinstance(screen, ViewScreen):
            self.push_screen(HelpScreen(screen.VIEW))

    def action_next_theme(self) -> None:
        """Take the next theme."""
        names = [theme.name for theme in THEMES]
        at = names.index(self.theme) if self.theme in names else -1
        self.theme = names[(at + 1) % len(names)]

    async def action_detach(self) -> None:
        """Leave; the run goes on. An order that was just given is written first."""
        for written in tuple(self.unwritten):
            await written.wait()
        self.exit()

    def action_help_quit(self) -> None:
        """Say how to leave and how to stop."""
        if isinstance(self.screen, FramedScreen):
            self.screen.say("q leaves the app and the run goes on; X stops the run.")
        else:
            self.notify("q leaves the app; runs go on.", markup=False)

    def action_refresh_now(self) -> None:
        """Read the ledger now; offer to start a dead engine."""
        view = self.view
        if view is not None and can_start(view.snapshot):
            orders.ask_start(self)
        elif self._poller is not None:
            self._poller.look_now()

    def action_pause(self) -> None:
        """Pause or resume."""
        orders.pause_or_resume(self)

    def action_pause_now(self) -> None:
        """Pause and abandon what is in flight, after asking."""
        orders.ask_pause_now(self)

    def action_limits(self) -> None:
        """Edit stop-at and cap."""
        orders.edit_limits(self)

    def action_stop(self) -> None:
        """Stop the run, after asking."""
        orders.ask_stop(self)

    def action_command_palette(self) -> None:
        """Open the palette; its own prompt ends with a glyph that ASCII lacks."""
        if not isinstance(self.screen, CommandPalette):
            self.push_screen(CommandPalette(placeholder="Search for an action", id="--command-palette"))

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Offer every key's action by name in the palette."""
        own = VIEW_KEYS[screen.VIEW] if isinstance(screen, ViewScreen) else ()
        for key in map(self.placed_keys.placed, (*own, *APP_KEYS)):
            if key.id in ("app.palette",):
                continue
            target = self if key.action.startswith("app.") else screen

            async def act(action: str = key.action, target: Any = target) -> None:
                await target.run_action(action)

            yield SystemCommand(f"{key.label} ({key.name})", key.help, act)


def _read_vocabulary(folder: RunFolder) -> Vocabulary | None:
    try:
        return unpack_vocabulary(folder.vocabulary_path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise LedgerError(f"{folder.vocabulary_path}: {error}") from error
