"""Every key of the app, as data: the bindings, the footer, the help and the palette are made from this table.

A key that changes a run carries its verb in capital letters only where it is hard to undo. Ids are stable, so that a
keymap can move a key.
"""

from dataclasses import dataclass
from typing import Final, Literal

from textual.binding import Binding, BindingType

View = Literal[
    "app",
    "run",
    "samples",
    "spend",
    "extract",
    "log",
    "verdicts",
    "charts",
    "diff",
    "attach",
    "launch",
    "compare",
    "list",
]
Footer = Literal["never", "wide", "always"]

PRINTED: Final = {
    "dollar_sign": "$",
    "question_mark": "?",
    "colon": ":",
    "slash": "/",
    "escape": "esc",
    "right_square_bracket": "]",
    "left_square_bracket": "[",
}
"""What is printed on keys whose Textual name says something else."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key and what it does."""

    id: str
    """Stable name for keymaps."""
    keys: str
    """Textual key names, comma-separated; the first is shown."""
    action: str
    label: str
    """One or two words for the footer and the palette."""
    help: str
    """One sentence for the help screen."""
    footer: Footer = "never"
    right: bool = False
    """At the right end of the footer: leaving and stopping."""
    changes_run: bool = False
    """Off in read-only mode."""
    shown: str = ""
    """How the footer writes the key, where its Textual name is not what is printed on it."""

    @property
    def name(self) -> str:
        """How the key is written on the screen."""
        first = self.keys.split(",")[0]
        return self.shown or PRINTED.get(first, first)


APP_KEYS: Final = (
    Key("app.run", "1", "app.view('run')", "Run", "The run at a glance."),
    Key("app.samples", "2", "app.view('samples')", "Samples", "Every sample, filtered and searched."),
    Key("app.spend", "3", "app.view('spend')", "Spend", "Where the money stands, by endpoint."),
    Key("app.extract", "4", "app.view('extract')", "Extract", "Hidden states: shards, rows, bytes, lag."),
    Key("app.log", "5", "app.view('log')", "Log", "What happened, newest last."),
    Key(
        "app.verdicts", "6", "app.view('verdicts')", "Verdicts", "Mismatches of each data set; sign for them or refuse."
    ),
    Key("app.charts", "7", "app.view('charts')", "Charts", "Throughput, dollars, drift and latency, drawn."),
    Key("app.launch", "ctrl+n", "app.view('launch')", "New run", "Pick a config, see its plan, start a run."),
    Key("app.attach", "a", "app.view('attach')", "Runs", "All runs here, live and finished; open one."),
    Key(
        "run.pause",
        "p",
        "app.pause",
        "Pause",
        "Pause or resume sending. What is in flight finishes and is paid.",
        "always",
        changes_run=True,
    ),
    Key(
        "run.limits",
        "dollar_sign",
        "app.limits",
        "Limits",
        "Edit stop-at and cap, with the consequence shown.",
        "always",
        changes_run=True,
        shown="$",
    ),
    Key(
        "run.pause_now",
        "P",
        "app.pause_now",
        "Pause now",
        "Pause and abandon what is in flight. Asks first and names the money at risk.",
        changes_run=True,
    ),
    Key(
        "run.stop",
        "X",
        "app.stop",
        "Stop",
        "End the run after what is in flight. Asks for the run's name.",
        "always",
        right=True,
        changes_run=True,
    ),
    Key("app.refresh", "R", "app.refresh_now", "Refresh", "Read the ledger now; where a worker died, start it again."),
    Key("app.palette", "colon,ctrl+p", "app.command_palette", "More", "Find any action by its name.", shown=":"),
    Key("app.help", "question_mark,f1", "app.help", "Help", "All keys of this screen.", shown="?"),
    Key("app.theme", "T", "app.next_theme", "Theme", "Dark, light or mono."),
    Key(
        "app.detach",
        "q",
        "app.detach",
        "Detach",
        "Leave the app. The run goes on; the last line says how to come back.",
        "always",
        right=True,
    ),
)
"""Keys that work on every screen."""

_ISSUES: Final = (
    Key("go.next", "n", "next_problem", "Issue", "Go to the next problem.", "always", shown="n/N"),
    Key("go.previous", "N", "previous_problem", "Previous", "Go to the previous problem."),
)
_COPY: Final = (
    Key("take.copy", "y", "copy", "Copy", "Send it to the terminal's clipboard (in tmux: set -s set-clipboard on)."),
    Key("take.save", "Y", "save", "Save", "Write it to a file in the run's clips folder and show the path."),
)
_BACK: Final = Key("go.back", "escape", "back", "Back", "Back to where you came from.", "always", True, shown="esc")
_STEERED: Final = ("run", "spend", "extract", "log")
"""Screens whose footer has room for the keys that steer the run; elsewhere they work all the same."""

VIEW_KEYS: Final[dict[View, tuple[Key, ...]]] = {
    "run": (
        *_ISSUES,
        Key("run.open", "enter", "open", "Open", "Open the sample or screen that the line is about.", "always"),
        Key("run.panel", "tab", "next_panel", "Panel", "Move between needs-attention and events."),
        Key("run.zoom", "z", "zoom", "Charts", "Throughput, dollars, drift and latency, drawn.", "wide"),
        Key("take.copy", "y", "copy", "Copy", "Send the line under the cursor to the terminal's clipboard."),
    ),
    "samples": (
        Key("samples.open", "enter", "open", "Diff", "Open the token inspector on the sample.", "always"),
        *_ISSUES,
        Key(
            "samples.filter",
            "slash",
            "filter",
            "Filter",
            "Filter: evidence:streamed state:failed endpoint:x dataset:y spans>0; a text is searched as typed.",
            "always",
            shown="/",
        ),
        Key("samples.preset", "f", "preset", "Preset", "Next ready-made filter.", "always"),
        Key(
            "samples.sort",
            "s",
            "sort",
            "Sort",
            "Sort by drift, cost, output tokens, latency, or in order of ingestion.",
        ),
        Key("samples.reverse", "S", "reverse", "Reverse", "Turn the order around."),
        Key("samples.reload", "R", "reload", "Reload", "Read the list anew; the cursor stays on its sample."),
        Key("samples.preview", "v", "preview", "Preview", "Show or hide the preview."),
        Key("samples.mark", "space", "mark", "Mark", "Mark the sample for retry or export.", "wide"),
        Key("samples.unmark", "u", "unmark", "Unmark", "Take every mark away."),
        Key(
            "samples.export",
            "e",
            "export",
            "Export",
            "Write the marked samples, or all that fit the filter, as token ids in JSONL.",
            "wide",
            changes_run=True,
        ),
        Key(
            "samples.retry",
            "r",
            "retry",
            "Retry",
            "Ask again, at the price shown, for marked samples or this one, where failed, refused or set aside.",
            "wide",
            changes_run=True,
        ),
        *_COPY,
        _BACK,
    ),
    "spend": (
        Key(
            "spend.quarantine",
            "u",
            "quarantine",
            "Set aside",
            "Stop using the endpoint and set its answers since a time aside, with the price; or undo that.",
            "always",
            changes_run=True,
        ),
        Key("spend.samples", "s", "samples", "Samples", "Show the endpoint's samples.", "wide"),
        Key("spend.drift", "enter", "drift", "Drift", "Show the endpoint's samples that drift.", "wide"),
        _BACK,
    ),
    "extract": (
        Key("extract.list", "tab", "next_list", "Shards/sets", "The shards, or each data set's share.", "always"),
        _BACK,
    ),
    "verdicts": (
        Key(
            "verdicts.sign",
            "enter",
            "sign",
            "Sign",
            "Sign for the data set under the cursor, or refuse it. Asks for a name and a rule.",
            "always",
            changes_run=True,
        ),
        Key("verdicts.samples", "s", "samples", "Samples", "Show the mismatched samples of the data set.", "always"),
        _BACK,
    ),
    "charts": (
        Key("charts.next", "tab,right", "next_chart(1)", "Next", "The next chart.", "always", shown="tab"),
        Key("charts.previous", "shift+tab,left", "next_chart(-1)", "Previous", "The chart before."),
        Key("charts.zoom", "z", "zoom", "One/all", "One chart over the whole screen, or all of them.", "always"),
        Key("charts.endpoint", "e", "next_endpoint", "Endpoint", "Drift of the next endpoint.", "always"),
        _BACK,
    ),
    "log": (
        Key("log.filter", "slash", "filter", "Filter", "Show lines that hold a text.", "always", shown="/"),
        Key("log.follow", "t", "follow", "Follow", "Follow the newest line, or stop.", "always"),
        Key("log.level", "l", "level", "Level", "Debug, info, warn or error and above.", "always"),
        Key("log.open", "enter", "open", "Sample", "Open the sample that the line is about.", "always"),
        *_ISSUES,
        *_COPY,
        _BACK,
    ),
    "diff": (
        Key("diff.next", "n", "next_problem", "Span", "Go to the next span.", "always", shown="n/N"),
        Key("diff.previous", "N", "previous_problem", "Previous", "Go to the previous span."),
        Key(
            "diff.next_sample",
            "right_square_bracket",
            "step_sample(1)",
            "Sample",
            "Next sample of the list.",
            "always",
            shown="[ ]",
        ),
        Key(
            "diff.previous_sample",
            "left_square_bracket",
            "step_sample(-1)",
            "Previous sample",
            "Previous sample of the list.",
            shown="[",
        ),
        Key("diff.ids", "i", "toggle_ids", "Ids", "Show token ids, or their text.", "always"),
        Key("diff.bytes", "b", "toggle_bytes", "Bytes", "Show each token's bytes in hex.", "wide"),
        Key(
            "diff.wrap",
            "w",
            "toggle_wrap",
            "Wrap",
            "Wrap lines, or one row for each line of the text; h and l go along it.",
            "wide",
        ),
        Key("diff.spans", "m", "toggle_spans", "Spans", "Show or hide the list of spans.", "wide"),
        Key("diff.texts", "v", "toggle_texts", "Texts", "The reply's texts beside the rebuilt raw text.", "always"),
        Key("diff.tail", "t", "toggle_tail", "Tail", "The last ids, each alone and in context.", "always"),
        *_COPY,
        _BACK,
    ),
    "attach": (
        Key("attach.open", "enter", "open", "Open", "Open the run.", "always"),
        Key("attach.mark", "space", "mark", "Mark", "Mark the run for a comparison.", "always"),
        Key(
            "attach.compare",
            "c",
            "compare",
            "Compare",
            "Compare two marked runs side by side, or the marked one with the one under the cursor.",
            "always",
        ),
        Key("attach.launch", "n", "app.view('launch')", "New run", "Pick a config, see its plan, start.", "always"),
        _BACK,
    ),
    "launch": (
        Key("launch.start", "ctrl+r", "start", "Start", "Start the run, after asking.", "always", changes_run=True),
        Key("launch.plan", "f5", "plan", "Plan", "Work the plan out again.", "always"),
        Key("launch.next", "tab,down", "app.focus_next", "Next", "To the next field.", "always", shown="tab"),
        Key("launch.previous", "shift+tab,up", "app.focus_previous", "Previous", "To the field before."),
        Key("launch.up", "pageup", "scroll_plan(-1)", "Plan up", "Scroll the plan."),
        Key("launch.down", "pagedown", "scroll_plan(1)", "Scroll", "Scroll the plan.", "always", shown="pgdn"),
        _BACK,
    ),
    "compare": (
        Key("compare.open_left", "h", "open_run(0)", "Open left", "Open the run at the left.", "always"),
        Key("compare.open_right", "l", "open_run(1)", "Open right", "Open the run at the right.", "always"),
        _BACK,
    ),
    "list": (
        Key("list.up", "up,k", "move(-1)", "Up", "One line up."),
        Key("list.down", "down,j", "move(1)", "Down", "One line down."),
        Key("list.page_up", "pageup,ctrl+u", "move_page(-1)", "Page up", "One screen up."),
        Key("list.page_down", "pagedown,ctrl+d", "move_page(1)", "Page down", "One screen down."),
        Key("list.first", "home,g", "jump(0)", "First", "To the first line."),
        Key("list.last", "end,G", "jump(-1)", "Last", "To the last line."),
    ),
}
"""Keys of one screen. `list` holds for every list."""


def bindings(view: View) -> list[BindingType]:
    """Make Textual bindings of a screen's keys; the footer is drawn from the table, so none is shown by Textual."""
    keys = APP_KEYS if view == "app" else VIEW_KEYS[view]
    return [Binding(key.keys, key.action, key.label, show=False, tooltip=key.help, id=key.id) for key in keys]


def footer_keys(view: View, *, wide: bool) -> tuple[tuple[Key, ...], tuple[Key, ...]]:
    """Choose the keys of the footer: those at the left and those at the right end."""
    shown: tuple[Footer, ...] = ("wide", "always") if wide else ("always",)
    app_keys = [key for key in APP_KEYS if view in _STEERED or key.id == "app.detach"]
    keys = [key for key in (*VIEW_KEYS[view], *app_keys) if key.footer in shown]
    if not wide:
        keys.append(PALETTE_KEY)
    return tuple(key for key in keys if not key.right), tuple(key for key in keys if key.right)


PALETTE_KEY: Final = next(key for key in APP_KEYS if key.id == "app.palette")
