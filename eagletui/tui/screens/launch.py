"""The launcher: pick a config, edit what matters, see what the run will need, start it once nothing is in the way."""

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Horizontal, Vertical, VerticalScroll
from textual.timer import Timer
from textual.widgets import Input

from eagletui.config.run_config import RunConfig
from eagletui.core.errors import ConfigError, EagleError
from eagletui.core.money import usd_to_pico
from eagletui.runs.find import find
from eagletui.tui import background, figures
from eagletui.tui.keys import VIEW_KEYS, Key, View, bindings
from eagletui.tui.launching import (
    FIELDS,
    Field,
    Found,
    cost_line,
    draft_toml,
    edited,
    field_texts,
    find_configs,
    free_name,
    key_line,
    plan_lines,
    read_draft,
)
from eagletui.tui.screens.dialogs import ConfirmDialog
from eagletui.tui.screens.view_screen import ViewScreen
from eagletui.tui.theme import is_ascii
from eagletui.tui.widgets.entry import Entry
from eagletui.tui.widgets.key_bar import KeyBar
from eagletui.tui.widgets.ledger_table import Column, LedgerTable
from eagletui.tui.widgets.safe_text import Piece, SafeText, name_panel, note_panel, stacked, styled

_REST_S: Final = 0.6
"""A plan is worked out once nothing was typed for so long."""
_BY_KEY: Final = {field.key: field for field in FIELDS}


class LaunchScreen(ViewScreen):
    """A form at the left, its plan at the right; one under the other on narrow terminals."""

    VIEW: ClassVar[View] = "launch"
    BINDINGS: ClassVar[list[BindingType]] = bindings("launch")

    def __init__(self) -> None:
        super().__init__()
        self._config: RunConfig | None = None
        """What the form began with."""
        self._wanted: RunConfig | None = None
        """What the form says; None while a field cannot be used."""
        self._plan: Mapping[str, Any] | None = None
        """Of `_wanted`; None while it is worked out."""
        self._reason = "pick a config first"
        """Why the run cannot be started; '' when it can."""
        self._rest: Timer | None = None
        self._has_started = False

    def compose(self) -> ComposeResult:
        """Lay the lists and the form out."""
        yield SafeText(id="launch-title")
        with Container(id="body"):
            with Vertical(id="launch-left"):
                yield LedgerTable[Found](_columns(), empty="no config here", id="configs", classes="panel")
                with Vertical(id="form", classes="panel"):
                    for field in FIELDS:
                        with Horizontal(classes="form-row"):
                            yield SafeText(field.label, classes="form-label")
                            yield Entry(id=f"field-{field.id}", disabled=True)
            with VerticalScroll(id="plan", classes="panel", can_focus=False):
                yield SafeText(id="plan-text")
        yield SafeText(id="launch-note")
        yield KeyBar(self.VIEW, self.why_not)
        yield SafeText(id="too-small")

    def on_mount(self) -> None:
        """List the configs."""
        title = styled(("eagletui  ", "$quiet"), ("new run", "bold"), f"  in {Path.cwd()}", ascii_=is_ascii(self.app))
        self.query_one("#launch-title", SafeText).show(title)
        for panel, name in (("#configs", "Config"), ("#form", "Run"), ("#plan", "Plan")):
            name_panel(self.query_one(panel), name)
        self._begin()

    def _begin(self) -> None:
        self._let_edit(False)
        self.configs.disabled = False
        self.configs.focus()
        self._say_plan([("Pick a config with enter. Its plan is worked out at once; nothing is bought.",)])
        self._block("pick a config first")
        background.start(self, "list the configs", self._list, group="configs")

    @property
    def configs(self) -> LedgerTable[Found]:
        """The configs that are here."""
        return self.query_one("#configs", LedgerTable)

    def why_not(self, key: Key) -> str | None:
        """Give the reason a key cannot be used now, or None."""
        if key.id == "launch.start":
            return "read-only: open the app without --read-only" if self.eagle.read_only else self._reason or None
        if key.id == "launch.plan" and self._config is None:
            return "pick a config first"
        if len(key.name) == 1 and isinstance(self.focused, Input):
            return "the field takes it; esc leaves the field"
        return None

    async def _list(self) -> None:
        self.configs.fill(await asyncio.to_thread(find_configs))
        self._note()

    async def on_ledger_table_chosen(self, message: LedgerTable.Chosen) -> None:
        """Start from the config under the cursor."""
        found = self.configs.current
        if found is not None:
            self._take(found)

    def on_ledger_table_moved(self, message: LedgerTable.Moved) -> None:
        """Say what is wrong with the config under the cursor, if something is."""
        self._note()

    def _take(self, found: Found) -> None:
        try:
            config = read_draft(found.path)
        except ConfigError as error:
            self._config = self._wanted = self._plan = None
            self._block("the config has a fault")
            self._say_plan([((line, "$error"),) for line in str(error).splitlines()])
            return
        self._config = config
        texts = field_texts(config) | {"name": free_name(config.run.name)}
        for field in FIELDS:
            entry = self._input(field)
            entry.disabled = False
            entry.value = texts[field.id]
        name_panel(self.query_one("#form"), f"Run, from {found.name}")
        self._input(FIELDS[0]).focus()
        self._look(at_once=True)

    def _let_edit(self, may: bool) -> None:
        """Open or close the form and the list of configs."""
        self.configs.disabled = not may
        for field in FIELDS:
            self._input(field).disabled = not may

    def _input(self, field: Field) -> Input:
        return self.query_one(f"#field-{field.id}", Input)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Check the form, and plan once the person rests."""
        if self._config is not None:
            self._look()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go to the next field."""
        self.focus_next()

    def on_descendant_focus(self) -> None:
        """Explain the field; what is typed there is no key of the screen."""
        self._note()
        self.query_one(KeyBar).look_again()

    def _look(self, *, at_once: bool = False) -> None:
        assert self._config is not None
        texts = {field.id: self._input(field).value for field in FIELDS}
        faulty: dict[str, str] = {}
        try:
            wanted = edited(self._config, texts)
        except ConfigError as error:
            wanted = None
            faulty = dict(line.partition(": ")[::2] for line in str(error).splitlines())
        for field in FIELDS:
            self._input(field).set_class(field.key in faulty, "-faulty")
        if wanted is not None and wanted == self._wanted and self._plan is not None:
            return
        if self._rest is not None:
            self._rest.stop()
        self.workers.cancel_group(self, "plan")
        self._wanted, self._plan = wanted, None
        if wanted is None:
            first, what = next(iter(faulty.items()))
            self._block(f"{fault_name(first)}: {what}")
            self._say_plan([((f"{fault_name(at)}: {said}", "$error"),) for at, said in faulty.items()])
        else:
            self._block("the plan is being worked out")
            self._say_plan([(("Counting prompts and asking for prices ...", "$quiet"),)])
            self._rest = self.set_timer(0.01 if at_once else _REST_S, self.action_plan)

    def action_plan(self) -> None:
        """Work the plan out."""
        if self._rest is not None:
            self._rest.stop()
        if self._wanted is not None:
            self._block("the plan is being worked out")
            background.start(self, "plan the run", partial(self._make_plan, self._wanted), group="plan")

    async def _make_plan(self, wanted: RunConfig) -> None:
        with tempfile.TemporaryDirectory(prefix="eagletui-") as folder:
            ran = await self.eagle.program("plan", _write(folder, wanted), "--json")
        if wanted != self._wanted:
            return
        try:
            plan = json.loads(ran.output)
        except ValueError:
            plan = {"refusals": [ran.complaint]}
        self._plan = plan
        refusals = plan.get("refusals", [])
        self._say_plan(plan_lines(plan, key_line(wanted, os.environ)))
        self._block(f"refused: {refusals[0]}" if refusals else "")

    def action_start(self) -> None:
        """Ask, then start the run."""
        wanted, plan = self._wanted, self._plan
        if self._reason or wanted is None or plan is None or self.eagle.read_only:
            self._note(blocked=True)
            return
        stop_at, cap = (figures.usd_short(usd_to_pico(plan["spend_usd"][name])) for name in ("stop_at", "cap"))
        lines = [
            f"{wanted.model.id}",
            f"answers {', '.join(path.name for path in wanted.prompts.path)}.",
            f"{cost_line(plan)}.",
            f"Spends up to stop-at {stop_at}; never commits beyond the cap {cap}.",
            "The workers go on when this app is closed. X stops the run.",
        ]

        def done(act: bool | None) -> None:
            if act:
                self._block("the run is being started")
                self._let_edit(False)
                self._say_plan([("Starting the workers: prompts are read in, then the engine reports ready ...",)])
                background.start(self, "start the run", partial(self._start, wanted), group="start")

        title = f"Start run {wanted.run.name}"
        self.app.push_screen(ConfirmDialog(title, lines, "Start", "Not yet"), done)

    async def _start(self, wanted: RunConfig) -> None:
        # Where this screen goes away meanwhile, the folder stays: the command may not have read the config yet.
        folder = tempfile.mkdtemp(prefix="eagletui-")
        ran = await self.eagle.program("run", _write(folder, wanted), "--detach", outlives=True)
        shutil.rmtree(folder, ignore_errors=True)
        if ran.code != 0:
            self._let_edit(True)
            self._block("the run did not start; f5 works the plan out again")
            self._say_plan([((line, "$error"),) for line in ran.complaint.splitlines()])
            return
        try:
            run = find(wanted.run.name)
        except EagleError as error:
            self._say_plan([((str(error), "$error"),)])
            return
        self._has_started = True
        await self.eagle.open_run(run)

    def on_screen_resume(self) -> None:
        """Begin anew after a run was started."""
        if self._has_started:
            self._has_started = False
            self._config = self._wanted = self._plan = None
            self._begin()

    def _block(self, reason: str) -> None:
        self._reason = reason
        self._note()
        self.query_one(KeyBar).look_again()

    def _say_plan(self, lines: list[tuple[Piece, ...]]) -> None:
        ascii_ = is_ascii(self.app)
        self.query_one("#plan-text", SafeText).show(stacked([styled(*line, ascii_=ascii_) for line in lines]))

    def _note(self, *, blocked: bool = False) -> None:
        """Explain the field in front, and say whether the run can be started."""
        if not self.is_mounted:
            return
        pieces: list[Piece] = []
        focused = self.focused
        field = next((field for field in FIELDS if focused is not None and focused.id == f"field-{field.id}"), None)
        found = self.configs.current
        note_panel(self.query_one("#form"), field.help if field is not None else "")
        if field is None and found is not None and found.trouble and not blocked:
            self._say_note((f"{found.name}: {found.trouble}", "$error"))
            return
        start = self.eagle.placed_keys.placed(VIEW_KEYS[self.VIEW][0]).name
        if self.eagle.read_only:
            pieces.append(("Start is off: read-only.", "$warning"))
        elif self._reason:
            pieces.append((f"Start is off: {self._reason}", "bold $warning" if blocked else "$warning"))
        else:
            cost = f"{cost_line(self._plan)}: " if self._plan is not None else ""
            pieces.append((f"{cost}{start} starts the run.", "bold $success"))
        self._say_note(*pieces)

    def _say_note(self, *pieces: Piece) -> None:
        self.query_one("#launch-note", SafeText).show(styled(*pieces, ascii_=is_ascii(self.app)))

    def action_scroll_plan(self, pages: int) -> None:
        """Scroll the plan."""
        box = self.query_one("#plan", VerticalScroll)
        box.scroll_relative(y=pages * max(1, box.size.height - 1), animate=False)

    async def action_back(self) -> None:
        """From the form to the list of configs, from there to where one came from."""
        if isinstance(self.focused, Input):
            self.configs.focus()
        else:
            await self.eagle.action_view("run" if self.eagle.has_run else "attach")


def fault_name(key: str) -> str:
    """Name a dotted key as the form does."""
    return _BY_KEY[key].label if key in _BY_KEY else key


def _write(folder: str, config: RunConfig) -> str:
    path = Path(folder) / f"{config.run.name}.toml"
    path.touch(mode=0o600)
    path.write_text(draft_toml(config), encoding="utf-8")
    return str(path)


def _columns() -> tuple[Column[Found], ...]:
    return (
        Column("file", 26, lambda found: (found.name, "$error" if found.trouble else "")),
        Column("provider", 10, lambda found: found.provider or figures.UNKNOWN),
        Column("model", 0, lambda found: found.model or figures.UNKNOWN),
    )
