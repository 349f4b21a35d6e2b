"""The token inspector: proved ids against the canonical encoding, the spans where they differ, and the tail."""

from textwrap import wrap
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content

from eagletui.core.tokdiff import Lane
from eagletui.core.vocabulary import Vocabulary
from eagletui.ledger.reader_samples import SampleDetail
from eagletui.ledger.snapshot import Snapshot
from eagletui.tui import background, figures
from eagletui.tui.end_token import expected_end
from eagletui.tui.evidence_worth import worth
from eagletui.tui.inspection import (
    Inspection,
    TailRow,
    cause,
    describe_side,
    inspect,
    tail_rows,
    tail_verdict,
)
from eagletui.tui.inspection_columns import span_columns, tail_columns
from eagletui.tui.keys import View as ScreenView
from eagletui.tui.keys import bindings
from eagletui.tui.lane_lines import LaneOptions, View, lay_out, lay_out_one
from eagletui.tui.reply_text import Compared, compare_texts, reply_parts, texts_sentence
from eagletui.tui.run_view import RunView
from eagletui.tui.sample_order import SampleOrder
from eagletui.tui.sample_text import attempt_line, sample_document
from eagletui.tui.screens.clip import copy_text, save_text
from eagletui.tui.screens.frame import FramedScreen
from eagletui.tui.theme import is_ascii
from eagletui.tui.widgets.ledger_table import LedgerTable
from eagletui.tui.widgets.safe_text import Piece, SafeText, name_panel, note_panel, stacked, styled
from eagletui.tui.widgets.text_pair import TextPair
from eagletui.tui.widgets.token_lane import TokenLane

_LEGEND: Final = "· space  ⏎ newline  → tab  <E2> raw byte  [ ] differs"
_KINDS: Final = """~ same bytes, other ids
! different text
+ only proved (the API cut it)
- only canonical"""
_TALL_ROWS: Final = 30
_SIDE_CELLS: Final = 10
"""Of the labels beside what is said of a span."""
_ASCII_LEGEND: Final = ". space  \\n newline  -> tab  <E2> raw byte  [ ] differs"


class DiffScreen(FramedScreen):
    """One sample's tokens."""

    VIEW: ClassVar[ScreenView] = "diff"
    BINDINGS: ClassVar[list[BindingType]] = bindings("diff")

    def __init__(self, key: str, order: SampleOrder, at: int) -> None:
        """Open on a sample.

        Args:
            key: which sample.
            order: the list it was opened from.
            at: its place there.
        """
        super().__init__()
        self._key = key
        self._order = order
        self._at = at
        self._detail: SampleDetail | None = None
        self._inspection: Inspection | None = None
        self._vocabulary: Vocabulary | None = None
        self._view: View = "text"
        self._seen: Snapshot | None = None
        self._texts: Compared | None = None

    def compose_body(self) -> ComposeResult:
        """Lay out the stream, the list of spans and the explanation."""
        yield SafeText(id="crumbs")
        yield TextPair(id="texts", classes="-hidden")
        with Horizontal(id="diff-body"):
            with Vertical(id="tokens", classes="panel"):
                yield SafeText(id="legend")
                yield TokenLane(id="lane")
                yield LedgerTable[TailRow](tail_columns(), id="tail", empty="no ids", classes="-hidden")
                yield SafeText(id="no-ids", classes="-hidden")
            with Vertical(id="span-list", classes="panel"):
                yield LedgerTable[tuple[int, Lane]](span_columns(), id="spans", empty="no span differs")
                yield SafeText(_KINDS, id="kinds")
        with Vertical(id="span-panel", classes="panel"):
            yield SafeText(id="span-text")

    def on_mount(self) -> None:
        """Read the sample."""
        self._name_tokens()
        name_panel(self.query_one("#span-list"), "Spans")
        self.lane.focus()
        self._read()

    @property
    def lane(self) -> TokenLane:
        """The token stream."""
        return self.query_one("#lane", TokenLane)

    @property
    def spans(self) -> LedgerTable[tuple[int, Lane]]:
        """The list of spans."""
        return self.query_one("#spans", LedgerTable)

    @property
    def tail(self) -> LedgerTable[TailRow]:
        """The last ids."""
        return self.query_one("#tail", LedgerTable)

    def paint_view(self, view: RunView) -> None:
        """Read the sample again while it has no answer yet."""
        if self._detail is not None and self._detail.tokens is None and view.snapshot is not self._seen:
            self._seen = view.snapshot
            self._read()

    def _read(self) -> None:
        background.start(self, "read the sample", self._read_sample, group="sample")

    async def _read_sample(self) -> None:
        key = self._key
        detail = await self.eagle.reader.sample(key)
        vocabulary = await self.eagle.vocabulary()
        if key != self._key:
            return
        self._detail, self._vocabulary = detail, vocabulary
        self._inspection = None if detail is None or vocabulary is None else inspect(detail, vocabulary)
        self._show()

    def _show(self) -> None:
        detail, inspection = self._detail, self._inspection
        ascii_ = is_ascii(self.app)
        self.query_one("#crumbs", SafeText).show(self._crumbs(ascii_))
        self.query_one("#legend", SafeText).show(
            styled((_ASCII_LEGEND if ascii_ else _LEGEND, "$quiet"), ascii_=ascii_)
        )
        has_ids = inspection is not None
        if detail is None or detail.reply is None:
            self._let_show_texts(False)
        self._show_texts()
        self.query_one("#no-ids").set_class(has_ids, "-hidden")
        self.query_one("#legend").set_class(not has_ids, "-hidden")
        self.lane.set_class(not has_ids or self._shows_tail, "-hidden")
        self.tail.set_class(not has_ids or not self._shows_tail, "-hidden")
        if inspection is None or self._vocabulary is None:
            self.query_one("#no-ids", SafeText).show(stacked(self._why_no_ids(detail, ascii_)))
            self.spans.fill([])
            name_panel(self.query_one("#span-panel"), "Evidence")
            self.query_one("#span-text", SafeText).say("There are no ids to compare.")
            return
        self._lay_out()
        self.spans.fill(list(enumerate(inspection.spans)), cursor=0)
        self.tail.fill(tail_rows(inspection.ids, self._vocabulary, ascii_=ascii_), cursor=len(inspection.ids))
        self.lane.go_to(0 if inspection.spans else None)
        self._explain()

    @property
    def _shows_tail(self) -> bool:
        return self.query_one("#tokens").has_class("-tail")

    @property
    def _shows_texts(self) -> bool:
        return not self.query_one("#texts").has_class("-hidden")

    def _lay_out(self, *, keep_place: bool = False) -> None:
        if self._inspection is None or self._vocabulary is None:
            return
        name = self._inspection.a_name
        options = LaneOptions(self.lane.token_width, self._view, is_ascii(self.app), name)
        if self._inspection.is_compared:
            lines = lay_out(self._inspection.lanes, self._vocabulary, options)
        else:
            lines = lay_out_one(self._inspection.ids, self._vocabulary, options)
        self.lane.show(lines, keep_place=keep_place)
        self._name_tokens()

    def _name_tokens(self) -> None:
        name_panel(self.query_one("#tokens"), "Last ids, each alone and in context" if self._shows_tail else "Tokens")
        note_panel(self.query_one("#tokens"), "" if self._shows_tail else f"as {self._view}")

    def _crumbs(self, ascii_: bool) -> Content:
        detail = self._detail
        wide = self.app.size.width >= 100
        pieces: list[Piece] = [("2 Samples > ", "$quiet")] if wide else []
        pieces.append((self._key, "bold"))
        if len(self._order) > 1:
            pieces.append((f" {self._at + 1:,}/{len(self._order):,}", "$quiet"))
        if detail is None:
            pieces.append("   no such sample")
            return styled(*pieces, ascii_=ascii_)
        row = detail.row
        gap = "   " if wide else "  "
        spans = 0 if self._inspection is None else len(self._inspection.spans)
        if spans:
            pieces.append((f"{gap}span {(self.lane.span or 0) + 1}/{spans}", "$proved"))
        pieces.append(
            f"{gap}billed {figures.count(row.billed_output_tokens)}{gap}counted {figures.count(row.output_tokens)}"
            f"{gap}drift {figures.signed(row.drift_tokens)}"
        )
        if row.evidence is not None:
            pieces.append(f"{gap}{row.evidence}, {row.usability}")
        return styled(*pieces, ascii_=ascii_)

    def _why_no_ids(self, detail: SampleDetail | None, ascii_: bool) -> list[Content]:
        if detail is None:
            return [styled(f"There is no sample {self._key}.", ascii_=ascii_)]
        row = detail.row
        lines: list[Content] = []
        if detail.tokens is not None and self._vocabulary is None:
            lines.append(styled(("The run folder has no vocabulary, so ids cannot be shown as text.", "$warning")))
        elif detail.tokens is not None:
            lines.append(styled("This format is used at text level: there are no ids. The raw text follows."))
            lines += [styled(line, ascii_=ascii_) for line in detail.tokens.raw.splitlines()[:200]]
        else:
            lines.append(styled(f"No ids: the sample is {row.state.replace('_', ' ')}."))
        if row.failure_kind:
            lines.append(styled((f"{row.failure_kind}: {row.failure_detail or ''}", "$error"), ascii_=ascii_))
        lines += [styled(attempt_line(attempt), ascii_=ascii_) for attempt in detail.attempts]
        return lines

    def _explain(self) -> None:
        inspection, vocabulary, detail = self._inspection, self._vocabulary, self._detail
        if inspection is None or vocabulary is None or detail is None or detail.tokens is None:
            return
        panel, text = self.query_one("#span-panel"), self.query_one("#span-text", SafeText)
        ascii_ = is_ascii(self.app)
        if self._texts is not None and self._shows_texts:
            name_panel(panel, "Texts")
            text.show(styled(texts_sentence(self._texts), ascii_=ascii_))
            return
        if self._shows_tail:
            run = self.eagle.view.snapshot.run if self.eagle.view is not None else None
            finish = detail.row.finish_reason
            expected = expected_end(run.format, finish) if run is not None else None
            sentence, good = tail_verdict(inspection.ids, vocabulary, expected, finish)
            trimmed = "   Cut in mid-character; the last partial one was dropped." if detail.tokens.tail_trimmed else ""
            name_panel(panel, "Tail")
            text.show(styled((sentence + trimmed, "" if good else "bold $error"), ascii_=is_ascii(self.app)))
            return
        spans = inspection.spans
        reason = detail.tokens.reason
        if not spans or self.lane.span is None:
            name_panel(panel, "Evidence")
            believed = worth(detail.tokens.evidence)
            text.show(stacked([styled(inspection.note), styled(believed), styled((reason, "$quiet"), ascii_=ascii_)]))
            return
        lane = spans[self.lane.span]
        name_panel(panel, f"Span {self.lane.span + 1} of {len(spans)}")
        lines: list[Content] = []
        for name, ids, tone in ((inspection.a_name, lane.a_ids, "$proved"), ("canonical", lane.b_ids, "$rebuilt")):
            numbers, data = describe_side(ids, vocabulary)
            lines.append(styled((f"{name:<{_SIDE_CELLS}}", tone), f"{numbers}   ", (data, "$quiet")))
        lines += self._hanging("cause", f"{lane.kind} {cause(lane, vocabulary)}")
        if self.app.size.height >= _TALL_ROWS:
            lines += self._hanging("evidence", worth(detail.tokens.evidence))
        text.show(stacked(lines))

    def _hanging(self, label: str, sentence: str) -> list[Content]:
        """Write a sentence beside its label, its further lines below its first."""
        room = max(20, self.query_one("#span-text").size.width - _SIDE_CELLS)
        parts = wrap(sentence, room, break_on_hyphens=False)
        return [
            styled(((label if number == 0 else "").ljust(_SIDE_CELLS), "$quiet"), part)
            for number, part in enumerate(parts)
        ]

    def on_token_lane_resized(self, message: TokenLane.Resized) -> None:
        """Lay the tokens out for the new width."""
        span = self.lane.span
        self._lay_out(keep_place=True)
        self.lane.go_to(span)
        self._explain()

    def on_ledger_table_moved(self, message: LedgerTable.Moved) -> None:
        """Go to the span chosen in the list."""
        if message.table is self.spans and self.spans.has_focus:
            self._go_to(message.index)

    def on_ledger_table_chosen(self, message: LedgerTable.Chosen) -> None:
        """Go to the span chosen in the list."""
        if message.table is self.spans:
            self._go_to(message.index)

    def _go_to(self, span: int) -> None:
        self.lane.go_to(span)
        self.spans.move_to(span)
        self.query_one("#crumbs", SafeText).show(self._crumbs(is_ascii(self.app)))
        self._explain()

    def _step_span(self, by: int) -> None:
        spans = 0 if self._inspection is None else len(self._inspection.spans)
        if not spans:
            self.say("No span differs in this sample.")
            return
        if self._shows_tail:
            self.action_toggle_tail()
        if self._shows_texts:
            self.action_toggle_texts()
        self._go_to(((self.lane.span or 0) + by) % spans)

    def action_next_problem(self) -> None:
        """Go to the next span."""
        self._step_span(1)

    def action_previous_problem(self) -> None:
        """Go to the previous span."""
        self._step_span(-1)

    async def action_step_sample(self, by: int) -> None:
        """Go to a neighbour in the list that the sample was opened from."""
        key = await self._order.key_at(self.eagle.reader, self._at + by)
        if key is None:
            self.say("That was the last sample of the list." if by > 0 else "That was the first sample of the list.")
            return
        self._key, self._at = key, self._at + by
        self._detail = self._inspection = None
        self.lane.span = None
        self._read()

    def action_toggle_ids(self) -> None:
        """Show ids, or text."""
        self._set_view("ids")

    def action_toggle_bytes(self) -> None:
        """Show bytes, or text."""
        self._set_view("bytes")

    def _set_view(self, view: View) -> None:
        self._view = "text" if self._view == view else view
        span = self.lane.span
        self._lay_out(keep_place=True)
        self.lane.go_to(span)

    def action_toggle_spans(self) -> None:
        """Show or hide the list of spans; on narrow terminals it takes the place of the stream."""
        self.query_one("#diff-body").toggle_class("-spans")

    def action_toggle_texts(self) -> None:
        """Show the reply's texts beside the raw text rebuilt from them, or the tokens."""
        detail = self._detail
        if detail is None or detail.reply is None:
            self.say("There is no reply to show.")
            return
        show = not self._shows_texts
        self._let_show_texts(show)
        self._show_texts()
        if show:
            self.query_one("#texts", TextPair).focus_left()
        else:
            self.lane.focus()
        self._explain()

    def _let_show_texts(self, show: bool) -> None:
        self.query_one("#texts").set_class(not show, "-hidden")
        self.query_one("#diff-body").set_class(show, "-hidden")

    def _show_texts(self) -> None:
        detail = self._detail
        if detail is None or detail.reply is None or not self._shows_texts:
            return
        raw = "" if detail.tokens is None else detail.tokens.raw
        parts = reply_parts(detail.reply.body, detail.reply.encoding)
        self._texts = compare_texts(parts, raw, ascii_=is_ascii(self.app))
        pair = self.query_one("#texts", TextPair)
        pair.show("left", f"Reply as returned, {detail.reply.encoding}", self._texts.reply)
        pair.show("right", "Raw text, rebuilt", self._texts.raw or (("(not rebuilt yet)", "$quiet"),))

    def action_toggle_tail(self) -> None:
        """Show the last ids, or the stream."""
        if self._shows_texts:
            self.action_toggle_texts()
        self.query_one("#tokens").toggle_class("-tail")
        has_ids = self._inspection is not None
        self.lane.set_class(not has_ids or self._shows_tail, "-hidden")
        self.tail.set_class(not has_ids or not self._shows_tail, "-hidden")
        (self.tail if self._shows_tail else self.lane).focus()
        self._name_tokens()
        self._explain()

    async def action_back(self) -> None:
        """Back to the list."""
        await self.app.pop_screen()

    def action_copy(self) -> None:
        """Copy the span, or the tail."""
        if self._inspection is None or self._detail is None:
            return
        if self._shows_tail:
            copy_text(self, "\n".join(f"{row.position} {row.token_id} {row.alone}" for row in self.tail_rows()))
        elif self._inspection.spans and self.lane.span is not None:
            lane = self._inspection.spans[self.lane.span]
            ids = f"{self._inspection.a_name} {list(lane.a_ids)} canonical {list(lane.b_ids)}"
            copy_text(self, f"{self._key} byte {lane.offset}: {ids}")
        else:
            copy_text(self, f"{self._key} ids {list(self._inspection.ids)}")

    def tail_rows(self) -> list[TailRow]:
        """The rows of the tail view."""
        return [row for index in range(self.tail.row_count) if (row := self.tail.row_at(index)) is not None]

    def action_save(self) -> None:
        """Save everything about the sample to a file."""
        if self._detail is not None:
            save_text(self, self._key, sample_document(self._detail))
