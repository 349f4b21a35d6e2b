"""Help for one screen: its keys, made from the key table, and the words it uses."""

from textwrap import wrap
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen

from eagletui.tui.keymap import Keymap, keymap_of
from eagletui.tui.keys import APP_KEYS, PRINTED, VIEW_KEYS, Key, View
from eagletui.tui.widgets.safe_text import SafeText, name_panel, note_panel, stacked, styled

WORDS: Final[tuple[tuple[str, str], ...]] = (
    ("settled", "known costs of answered requests"),
    ("held", "worst-case cost reserved for requests in flight"),
    ("unsettled", "worst case of requests whose cost the provider has not told yet"),
    ("unattributed", "what the provider's key shows for requests that tell no cost"),
    ("stop-at", "no new request once this much is settled"),
    ("cap", "never committed beyond, worst case included"),
    ("projected", "what the whole run costs if the rest costs as what has ended"),
    ("limited by", "what keeps the pace from growing: cap, pace, endpoint, CPU or prompts"),
    ("counted / billed", "our token count / the provider's"),
    ("offset", "a named, proved constant between billed and counted"),
    ("drift", "billed - counted - offset; the percentage is of billed tokens"),
    ("usable", "dollars spent per million output tokens that may be trained on"),
    ("wasted", "dollars settled for attempts that brought no answer"),
    ("served, logprobs, streamed", "evidence that proves the token ids, best first"),
    ("inferred", "the target model chose among tokenizations"),
    ("counted", "canonical encoding, the count agrees; not a proof"),
    ("canonical", "canonical encoding, nothing to check it against"),
    ("conflict", "the count disagrees, or two kinds of evidence contradict each other"),
    ("other ids", "samples with the same bytes, but other ids than the canonical encoding"),
    ("span", "a run of bytes where two tokenizations differ"),
    ("shard", "a sealed file of hidden states"),
    ("lag", "samples whose hidden states could be computed and are not yet"),
    ("verified", "eagletui verify read the shards back, and every check held"),
    ("arbiter", "the target model, asked by eagletui arbitrate about answers without proof"),
)
_LIST_TITLE: Final = "In lists"


class HelpScreen(ModalScreen[None]):
    """All keys of a screen and the words on it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,f1", "dismiss", "Close", show=False),
        Binding("j", "scroll_help(1)", "Down", show=False),
        Binding("k", "scroll_help(-1)", "Up", show=False),
    ]

    def __init__(self, view: View) -> None:
        super().__init__()
        self._view = view

    def compose(self) -> ComposeResult:
        """Lay the page out."""
        with VerticalScroll(classes="dialog help"):
            yield SafeText(classes="help-keys", id="help-text")

    def on_mount(self) -> None:
        """Write the page."""
        box = self.query_one(VerticalScroll)
        name_panel(box, "Help")
        note_panel(box, "esc close")
        box.focus()
        self.call_after_refresh(self._write)

    def on_resize(self) -> None:
        """Wrap the lines anew."""
        self.call_after_refresh(self._write)

    def _write(self) -> None:
        text = self.query_one("#help-text", SafeText)
        text.show(stacked(help_lines(self._view, text.size.width, keymap_of(self.app))))

    def action_scroll_help(self, lines: int) -> None:
        """Scroll."""
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)


def help_lines(view: View, width: int, keymap: Keymap | None = None) -> list[Content]:
    """Write the keys of a screen, the keys of lists, the keys of the app, and the words, in two columns."""
    lines: list[Content] = []

    def add(name: str, cells: int, meaning: str) -> None:
        for number, part in enumerate(wrap(meaning, max(20, width - cells)) or [""]):
            lines.append(styled((f"  {'' if number else name}".ljust(cells), "$primary"), part))

    sections: list[tuple[str, tuple[Key, ...]]] = [("This screen", VIEW_KEYS[view])]
    sections += [(_LIST_TITLE, VIEW_KEYS["list"]), ("Everywhere", APP_KEYS)]
    for title, keys in sections:
        lines.append(styled((title, "bold")))
        for key in map((keymap or Keymap()).placed, keys):
            add(key_names(key), 19, key.help)
        lines.append(styled(""))
    lines.append(styled(("Words", "bold")))
    for word, meaning in WORDS:
        add(word, 29, meaning)
    return lines


def key_names(key: Key) -> str:
    """Write every key that does the same."""
    return " ".join(PRINTED.get(name, name) for name in key.keys.split(","))
