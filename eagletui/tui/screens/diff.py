"""The token inspector: proved ids against the canonical encoding, the spans where they differ, and the tail."""

import asyncio
from functools import partial
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical

from eagletui.core.vocabulary import Vocabulary
from eagletui.ledger.reader_samples import SampleDetail
from eagletui.ledger.snapshot import Snapshot
from eagletui.tui import background, inspector_text
from eagletui.tui.end_token import expected_end
from eagletui.tui.inspection import Inspection, TailRow, inspect, tail_rows
from eagletui.tui.inspection_columns import SpanRow, span_columns, span_rows, tail_columns
from eagletui.tui.keys import View as ScreenView
from eagletui.tui.keys import bindings
from eagletui.tui.lane_lines import LaneLine, LaneOptions, View, lay_out, lay_out_one
from eagletui.tui.reply_text import Compared, ReplyPart, compare_texts, place_name, reply_parts, texts_sentence
from eagletui.tui.run_view import RunView
from eagletui.tui.sample_order import SampleOrder
from eagletui.tui.sample_text import sample_document
from eagletui.tui.screens.clip import copy_text, save_text
from eagletui.tui.screens.frame import FramedScreen
from eagletui.tui.theme import is_ascii
from eagletui.tui.widgets.ledger_table import LedgerTable
from eagletui.tui.widgets.safe_text import SafeText, name_panel, note_panel, stacked, styled
from eagletui.tui.widgets.text_pair import TextPair
from eagletui.tui.widgets.token_lane import TokenLane

_TALL_ROWS: Final = 30
_LAID_OUT_AT_ONCE: Final = 3_000
"""Tokens; longer answers are laid out beside the screen, which answers keys meanwhile."""


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
        self._parts: tuple[ReplyPart, ...] = ()
        self._wraps = True

    def compose_body(self) -> ComposeResult:
        """Lay out the stream, the list of spans and the explanation."""
        yield SafeText(id="crumbs")
        yield TextPair(id="texts", classes="-hidden")
        with Horizontal(id="diff-body"):
            with Vertical(id="tokens", classes="panel"):
                yield TokenLane(id="lane")
                yield LedgerTable[TailRow](tail_columns(), id="tail", empty="no ids", classes="-hidden")
                yield SafeText(id="no-ids", classes="-hidden")
            with Vertical(id="span-list", classes="panel"):
                yield LedgerTable[SpanRow](span_columns(), id="spans", empty="no span differs")
                yield SafeText(id="kinds")
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
    def spans(self) -> LedgerTable[SpanRow]:
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
        inspection = None
        parts: tuple[ReplyPart, ...] = ()
        if detail is not None and vocabulary is not None:
            inspection, parts = await asyncio.to_thread(_look_at, detail, vocabulary)
        if key != self._key:
            return
        self._detail, self._vocabulary = detail, vocabulary
        self._inspection, self._parts = inspection, parts
        self._show()

    def _show(self) -> None:
        detail, inspection = self._detail, self._inspection
        ascii_ = is_ascii(self.app)
        self._say_crumbs()
        has_ids = inspection is not None
        if detail is None or detail.reply is None:
            self._let_show_texts(False)
        self._show_texts()
        self.query_one("#no-ids").set_class(has_ids, "-hidden")
        self.lane.set_class(not has_ids or self._shows_tail, "-hidden")
        self.tail.set_class(not has_ids or not self._shows_tail, "-hidden")
        if inspection is None or self._vocabulary is None:
            why = inspector_text.why_no_ids(
                detail, self._key, has_vocabulary=self._vocabulary is not None, ascii_=ascii_
            )
            self.query_one("#no-ids", SafeText).show(stacked(why))
            self.query_one("#kinds", SafeText).say("")
            self.spans.fill([])
            name_panel(self.query_one("#span-panel"), "Evidence")
            self.query_one("#span-text", SafeText).say("There are no ids to compare.")
            return
        self.query_one("#kinds", SafeText).say("\n".join(inspector_text.kinds_lines(inspection)))
        self.spans.fill(span_rows(inspection, self._vocabulary, ascii_=ascii_), cursor=0)
        self.tail.fill(tail_rows(inspection.ids, self._vocabulary, ascii_=ascii_), cursor=len(inspection.ids))
        self.lane.span = 0 if inspection.spans else None
        self._lay_out()
        self._explain()

    @property
    def _shows_tail(self) -> bool:
        return self.query_one("#tokens").has_class("-tail")

    @property
    def _shows_texts(self) -> bool:
        return not self.query_one("#texts").has_class("-hidden")

    def _lay_out(self, *, keep_place: bool = False) -> None:
        """Write the tokens for the present width and view, and bring the current span into view."""
        inspection, vocabulary = self._inspection, self._vocabulary
        if inspection is None or vocabulary is None:
            return
        options = LaneOptions(
            self.lane.token_width, self._view, is_ascii(self.app), inspection.a_name, wrap=self._wraps
        )
        self._name_tokens()
        if len(inspection.ids) <= _LAID_OUT_AT_ONCE:
            self._show_lines(_lines(inspection, vocabulary, options), options, keep_place=keep_place)
        else:
            if not keep_place:
                self.lane.show([])
            work = partial(self._lay_out_beside, inspection, vocabulary, options, keep_place)
            background.start(self, "lay the tokens out", work, group="layout")

    async def _lay_out_beside(
        self, inspection: Inspection, vocabulary: Vocabulary, options: LaneOptions, keep_place: bool
    ) -> None:
        lines = await asyncio.to_thread(_lines, inspection, vocabulary, options)
        if inspection is self._inspection:
            self._show_lines(lines, options, keep_place=keep_place)

    def _show_lines(self, lines: list[LaneLine], options: LaneOptions, *, keep_place: bool) -> None:
        self.lane.show(lines, wrap=options.wrap, keep_place=keep_place)
        self.lane.go_to(self.lane.span)

    def _name_tokens(self) -> None:
        panel = self.query_one("#tokens")
        if self._shows_tail:
            name_panel(panel, "Last ids, each alone and in context")
            note_panel(panel, "")
            return
        name_panel(panel, f"Tokens: {inspector_text.legend(self._view, ascii_=is_ascii(self.app))}")
        note_panel(panel, f"as {self._view}, {'wrapped' if self._wraps else 'a line a row, h l go along it'}")

    def _say_crumbs(self) -> None:
        spans = 0 if self._inspection is None else len(self._inspection.spans)
        pieces = inspector_text.crumbs(
            self._detail,
            self._key,
            (self._at, len(self._order)),
            (self.lane.span or 0, spans),
            wide=self.app.size.width >= 100,
        )
        self.query_one("#crumbs", SafeText).show(styled(*pieces, ascii_=is_ascii(self.app)))

    def _explain(self) -> None:
        inspection, vocabulary, detail = self._inspection, self._vocabulary, self._detail
        if inspection is None or vocabulary is None or detail is None or detail.tokens is None:
            return
        panel, text = self.query_one("#span-panel"), self.query_one("#span-text", SafeText)
        ascii_ = is_ascii(self.app)
        if self._texts is not None and self._shows_texts:
            name_panel(panel, "Texts")
            note_panel(panel, "")
            text.show(styled(texts_sentence(self._texts), ascii_=ascii_))
            return
        run = self.eagle.view.snapshot.run if self.eagle.view is not None else None
        expected = None if run is None else expected_end(run.format, detail.row.finish_reason)
        end, is_right = inspector_text.end_line(inspection, detail, vocabulary, expected, ascii_=ascii_)
        span, note = self.lane.span, ""
        if self._shows_tail:
            name_panel(panel, "Tail")
            trimmed = "Cut in mid-character; the last partial one was dropped."
            text.show(stacked([end, styled(trimmed)] if detail.tokens.tail_trimmed else [end]))
        elif span is None or not inspection.spans:
            name_panel(panel, "Evidence")
            lines = inspector_text.evidence_lines(inspection, detail, ascii_=ascii_)
            text.show(stacked([end, *lines] if not is_right else lines))
        else:
            offset = inspection.spans[span].offset
            part = place_name(self._parts, detail.tokens.raw, offset)
            name_panel(panel, inspector_text.span_title(inspection, span, part))
            note = inspection.token_of(span)
            room = max(20, text.size.width)
            tall = self.app.size.height >= _TALL_ROWS
            lines = inspector_text.span_lines(inspection, span, detail, vocabulary, room, tall=tall, ascii_=ascii_)
            text.show(stacked([end, *lines] if not is_right else lines))
        note_panel(panel, note)

    def on_token_lane_resized(self, message: TokenLane.Resized) -> None:
        """Lay the tokens out for the new width."""
        self._lay_out(keep_place=True)
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
        self._say_crumbs()
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
        self._lay_out(keep_place=True)

    def action_toggle_wrap(self) -> None:
        """Break lines at the width, or only where the text has a line break."""
        self._wraps = not self._wraps
        self._lay_out()

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
        self._texts = compare_texts(self._parts, raw, ascii_=is_ascii(self.app))
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


def _look_at(detail: SampleDetail, vocabulary: Vocabulary) -> tuple[Inspection | None, tuple[ReplyPart, ...]]:
    """Work a sample out: a long answer takes a moment, so it is done beside the screen."""
    parts = () if detail.reply is None else tuple(reply_parts(detail.reply.body, detail.reply.encoding))
    return inspect(detail, vocabulary), parts


def _lines(inspection: Inspection, vocabulary: Vocabulary, options: LaneOptions) -> list[LaneLine]:
    if inspection.is_compared:
        return lay_out(inspection.lanes, vocabulary, options)
    return lay_out_one(inspection.ids, vocabulary, options)
