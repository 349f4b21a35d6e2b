"""What every screen of a run has around it: the top lines, the banner, the footer, and room in between."""

from textual import events
from textual.app import ComposeResult
from textual.containers import Container

from eagletui.core.lifecycle import FINISHED_RUNS
from eagletui.tui import standing
from eagletui.tui.keys import Key
from eagletui.tui.run_view import RunView
from eagletui.tui.screens.view_screen import ViewScreen
from eagletui.tui.theme import glyphs_of, is_ascii
from eagletui.tui.widgets.key_bar import KeyBar
from eagletui.tui.widgets.safe_text import Piece, SafeText, stacked, styled
from eagletui.tui.widgets.top_bar import TopBar, TopFigures


class FramedScreen(ViewScreen):
    """A screen of one run. Subclasses compose their body and paint a view into it."""

    _is_composed = False
    """Everything was mounted."""

    def compose(self) -> ComposeResult:
        """Lay the frame out."""
        yield TopBar(self.VIEW)
        yield SafeText(id="banner", classes="-hidden")
        with Container(id="body"):
            yield from self.compose_body()
        yield SafeText(id="note", classes="-hidden")
        yield KeyBar(self.VIEW, self.why_not, self.label)
        yield SafeText(id="too-small")

    def compose_body(self) -> ComposeResult:
        """Lay the middle out."""
        raise NotImplementedError

    def paint_view(self, view: RunView) -> None:
        """Put a read of the ledger on the screen."""
        raise NotImplementedError

    def on_mount(self) -> None:
        """Be ready for the first view."""
        self._is_composed = True

    @property
    def _can_paint(self) -> bool:
        """Tell whether the widgets are there: not before mounting, no more while the app closes."""
        return self._is_composed and self.is_attached and self.app.is_running

    def on_screen_resume(self) -> None:
        """Catch up with what happened while another screen was in front."""
        view = self.eagle.view
        if view is not None:
            self.call_after_refresh(self.show_view, view)

    def show_view(self, view: RunView) -> None:
        """Show a read of the ledger."""
        if not self._can_paint:
            return
        self.show_frame(view)
        self.paint_view(view)

    def show_frame(self, view: RunView) -> None:
        """Update what surrounds the body; also called when only time has passed."""
        if not self._can_paint:
            return
        now = self.eagle.clock()
        snapshot = view.snapshot
        figures = TopFigures(
            run=snapshot.run.name,
            subject=self.subject(view),
            status=standing.run_status(snapshot, now),
            elapsed=standing.elapsed(snapshot, now),
            workers=standing.worker_pieces(snapshot, now),
            ledger=standing.ledger_piece(view.read_at, now),
            read_only=self.eagle.read_only,
        )
        self.query_one(TopBar).show(figures)
        old = now - view.read_at > standing.LEDGER_STALE_AFTER_S
        self.set_class(old or standing.is_dead(snapshot) or standing.is_silent(snapshot, now), "-stale")
        again = view.restart_command, view.extract_command
        shown = standing.banners(snapshot, now, *again, view.last_words, view.network_disk)
        if self.eagle.trouble is not None:
            shown = (standing.unreadable(str(self.eagle.trouble)),)
        banner = self.query_one("#banner", SafeText)
        banner.set_class(not shown, "-hidden")
        glyphs, name = glyphs_of(self.app), self.eagle.placed_keys.name
        lines = [standing.banner_pieces(line, glyphs, name) for line in shown]
        banner.show(stacked([styled(*line, ascii_=is_ascii(self.app)) for line in lines]))
        self.query_one(KeyBar).look_again()

    def subject(self, view: RunView) -> str:
        """Name the model and the data sets."""
        model = view.snapshot.run.model_id.rsplit("/", 1)[-1]
        names = [dataset.name for dataset in view.snapshot.datasets]
        more = f" +{len(names) - 1}" if len(names) > 1 else ""
        return f"{model} / {names[0]}{more}" if names else model

    def say(self, *pieces: Piece) -> None:
        """Show a passing remark above the footer, until the next key."""
        note = self.query_one("#note", SafeText)
        note.set_class(not pieces, "-hidden")
        note.show(styled(*pieces, ascii_=is_ascii(self.app)))

    def on_key(self, event: events.Key) -> None:
        """Clear the remark."""
        self.say()

    def on_resize(self, event: events.Resize) -> None:
        """Say so where the terminal is too small, and draw for the new size."""
        super().on_resize(event)
        if self.eagle.view is not None:
            self.call_after_refresh(self.show_view, self.eagle.view)

    def why_not(self, key: Key) -> str | None:
        """Give the reason a key cannot be used now, or None."""
        if key.changes_run and self.eagle.read_only:
            return f"read-only: {self.eagle.how_to_change} to change the run"
        view = self.eagle.view
        if view is None or not key.changes_run:
            return None
        state = view.snapshot.run.state
        if key.id in ("run.pause", "run.pause_now", "run.stop") and state in FINISHED_RUNS:
            return f"the run is {state}"
        if key.id == "run.pause" and state == "paused":
            return _over_limit(view)
        return None

    def label(self, key: Key) -> str:
        """Say what a key does now."""
        view = self.eagle.view
        if key.id == "run.pause" and view is not None and view.snapshot.run.state == "paused":
            return "Resume"
        return key.label

    async def action_back(self) -> None:
        """Go back to where this screen was opened from."""
        await self.eagle.action_view("run")


def _over_limit(view: RunView) -> str | None:
    run, books = view.snapshot.run, view.snapshot.spend.books
    if run.pause_reason == "stop_at" and books.spent_pico >= books.stop_at_pico:
        return "over stop-at: raise it with $"
    if run.pause_reason == "cap" and books.committed_pico >= books.cap_pico:
        return "at the cap: raise it with $"
    return None
