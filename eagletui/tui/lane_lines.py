"""Lay two tokenizations out as lines: one lane where they agree, two where they differ.

Pure: values in, lines out. Widths are terminal cells.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from eagletui.core.text import cell_width, shorten, visible
from eagletui.core.tokdiff import Lane
from eagletui.core.vocabulary import Vocabulary
from eagletui.tui.span_table import PROVED, REBUILT, Pieces

View = Literal["text", "ids", "bytes"]

_OFFSET_CELLS: Final = 10
_CONTEXT_TOKENS: Final = 2
_BRACKETS: Final = 12
"""Cells kept free beside a long side of a span, for its brackets and its count."""
_UNWRAPPED_CELLS: Final = 1_000
"""Of a line of text that is not wrapped; a longer one goes on below."""
_LONG_SIDE_CELLS: Final = 200


@dataclass(frozen=True, slots=True)
class LaneOptions:
    """How tokens are written."""

    width: int
    view: View = "text"
    ascii_: bool = False
    a_name: str = "proved"
    b_name: str = "canonical"
    wrap: bool = True
    """Break lines at the width; else where the text itself has a line break."""

    @property
    def separator(self) -> str:
        """What stands between tokens; a model's own `|` is told apart where the terminal allows."""
        return "|" if self.ascii_ else "│"

    @property
    def label_cells(self) -> int:
        """Cells of the lane's name and the gap after it."""
        return max(len(self.a_name), len(self.b_name)) + 2

    @property
    def note_room(self) -> int:
        """Cells for what is said of a span."""
        return max(20, self.width - _OFFSET_CELLS)

    @property
    def plain_room(self) -> int:
        """Cells for tokens on a line of agreement."""
        return self.note_room if self.wrap else _UNWRAPPED_CELLS

    @property
    def lane_room(self) -> int:
        """Cells for tokens on a doubled line."""
        return max(16, self.plain_room - self.label_cells)

    @property
    def side_room(self) -> int:
        """Cells for one side of a span, and for one token."""
        return min(self.lane_room - _BRACKETS, _LONG_SIDE_CELLS)


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    cells: int
    bytes: int
    style: str = ""
    span: int | None = None
    """Which span it is a side of; None on tokens that both lists have."""
    pad: int = 0
    """Blank cells behind it, so that what follows stands below its like on the other lane."""
    ends_line: bool = False


@dataclass(slots=True)
class _Block:
    """Tokens that share a line, and the spans among them."""

    offset: int
    a: list[_Token] = field(default_factory=list)
    b: list[_Token] = field(default_factory=list)
    cells: int = 0
    """On either lane, a separator behind each unit."""
    a_bytes: int = 0
    spans: tuple[tuple[int, Lane], ...] = ()

    def add(self, a: _Token, b: _Token) -> None:
        """Put one unit on each lane, both as wide as the wider one."""
        wider = max(a.cells, b.cells)
        self.a.append(replace(a, pad=wider - a.cells) if a.cells < wider else a)
        self.b.append(replace(b, pad=wider - b.cells) if b.cells < wider else b)
        self.cells += wider + 1
        self.a_bytes += a.bytes

    def take(self, tokens: Sequence[_Token], start: int, room: int, *, wrap: bool) -> int:
        """Put as many of the tokens that both lists have on both lanes as fit, one at least on an empty block.

        Returns:
            The index of the first token that is left.
        """
        room -= self.cells
        cells = size = 0
        end = start
        for token in tokens[start : start + max(room, 1)]:
            if cells + token.cells > room and (self.a or end > start):
                break
            cells += token.cells + 1
            size += token.bytes
            end += 1
            if token.ends_line and not wrap:
                break
        self.a += tokens[start:end]
        self.b += tokens[start:end]
        self.cells += cells
        self.a_bytes += size
        return end

    def fits(self, cells: int, room: int) -> bool:
        """Tell whether a unit of so many cells still fits."""
        return self.cells + cells <= room

    def split_context(self) -> tuple["_Block", "_Block"]:
        """Cut a block of agreement before its last tokens, which will stand beside a span."""
        head, tail = _Block(self.offset), _Block(0)
        for token in self.a[:-_CONTEXT_TOKENS]:
            head.add(token, token)
        tail.offset = head.offset + head.a_bytes
        for token in self.a[-_CONTEXT_TOKENS:]:
            tail.add(token, token)
        return head, tail


@dataclass(frozen=True, slots=True)
class LaneLine:
    """One line of the inspector. It is written when it is shown: a long answer has thousands."""

    options: LaneOptions
    block: _Block
    row: Literal["plain", "a", "b", "note", "gap"]
    span: int | None = None
    """Index of the first span it shows, counted from 0; None on lines of agreement."""
    total: int = 0
    """Spans in all."""

    @property
    def is_head(self) -> bool:
        """The first line of a block that shows spans."""
        return self.row == "a"

    def shows(self, span: int | None) -> bool:
        """Tell whether the line belongs to a span."""
        if self.row in ("note", "gap"):
            return self.row == "note" and self.span == span
        return any(number == span for number, _ in self.block.spans)

    def pieces(self, current: int | None = None) -> Pieces:
        """Text and style.

        Args:
            current: the span to bring out.
        """
        block, options = self.block, self.options
        offset = (f"{block.offset:,}".rjust(_OFFSET_CELLS - 2) + "  ", "$quiet")
        blank = (" " * _OFFSET_CELLS, "")
        match self.row:
            case "plain":
                return (offset, *_tokens(block.a, options, current))
            case "a":
                label = options.a_name.ljust(options.label_cells)
                return (offset, (label, "bold"), *_tokens(block.a, options, current))
            case "b":
                label = options.b_name.ljust(options.label_cells)
                return (blank, (label, "bold"), *_tokens(block.b, options, current))
            case "note":
                lane = next(lane for number, lane in block.spans if number == self.span)
                said = span_words(lane, options.a_name, options.b_name)
                note = f"{lane.kind} span {(self.span or 0) + 1} of {self.total}: {said}"
                tone = "bold" if self.span == current else "$quiet"
                return (blank, (shorten(note, options.note_room, ascii_=options.ascii_), tone))
            case _:
                return (("", ""),)

    @property
    def fixed(self) -> int:
        """How many of the pieces stay where they are when the tokens move: the offset and the lane's name."""
        return 1 if self.row == "plain" else 2

    @property
    def label_cells(self) -> int:
        """Cells of those pieces."""
        return _OFFSET_CELLS + (self.options.label_cells if self.row in ("a", "b") else 0)

    @property
    def cells(self) -> int:
        """How wide the line is."""
        return self.label_cells + self.block.cells

    def column(self, span: int) -> int:
        """Cells before a span among the tokens of its lane."""
        before = 0
        for token in self.block.a:
            if token.span == span:
                break
            before += token.cells + token.pad + 1
        return before


def token_text(token_id: int, vocabulary: Vocabulary, view: View, *, ascii_: bool = False) -> str:
    """Write one token as text, id or bytes. An id that names nothing stays visible."""
    if view == "ids":
        return str(token_id)
    if token_id not in vocabulary:
        return f"<no token {token_id}>"
    data = vocabulary.bytes_of(token_id)
    return data.hex(" ") if view == "bytes" else visible(data, ascii_=ascii_)


def span_words(lane: Lane, a_name: str = "proved", b_name: str = "canonical") -> str:
    """Say in a few words how a span differs."""
    counts = f"{_ids(lane.a_ids)} against {_ids(lane.b_ids)}"
    match lane.kind:
        case "~":
            return f"same {lane.length:,} byte{'s' * (lane.length != 1)}, {counts}"
        case "!":
            return f"different text, {counts}"
        case "+":
            return f"only {a_name}, {_ids(lane.a_ids)}"
        case _:
            return f"only {b_name}, {_ids(lane.b_ids)}"


def span_figures(lane: Lane) -> str:
    """Give how many ids a span has on both sides."""
    return f"{len(lane.a_ids):,} -> {len(lane.b_ids):,}"


def lay_out(lanes: Sequence[Lane], vocabulary: Vocabulary, options: LaneOptions) -> list[LaneLine]:
    """Lay out the lanes of one sample."""
    total = sum(lane.kind != "=" for lane in lanes)
    return [line for block in _blocks(lanes, vocabulary, options) for line in _lines(block, total, options)]


def lay_out_one(ids: Sequence[int], vocabulary: Vocabulary, options: LaneOptions) -> list[LaneLine]:
    """Lay out a tokenization that is compared with nothing."""
    return lay_out([Lane(0, 0, tuple(ids), tuple(ids), "=")], vocabulary, options)


def _blocks(lanes: Sequence[Lane], vocabulary: Vocabulary, options: LaneOptions) -> Iterator[_Block]:
    write = _Writer(vocabulary, options)
    block = _Block(0)
    span = 0
    for lane in lanes:
        if lane.kind == "=":
            tokens, at = list(map(write.token, lane.a_ids)), 0
            while at < len(tokens):
                room = options.lane_room if block.spans else options.plain_room
                at = block.take(tokens, at, room, wrap=options.wrap)
                if at < len(tokens) or (block.a[-1].ends_line and not options.wrap):
                    yield block
                    block = _Block(block.offset + block.a_bytes)
            continue
        a, b = write.side(lane.a_ids, PROVED, span), write.side(lane.b_ids, REBUILT, span)
        if not block.spans and options.wrap:
            before, block = block.split_context()
            yield before
        if not block.fits(max(a.cells, b.cells), options.lane_room):
            yield block
            block = _Block(block.offset + block.a_bytes)
        block.add(a, b)
        block.spans = (*block.spans, (span, lane))
        span += 1
    yield block


class _Writer:
    """Tokens as units of text, each made once."""

    def __init__(self, vocabulary: Vocabulary, options: LaneOptions) -> None:
        self._vocabulary = vocabulary
        self._options = options
        self._made: dict[int, _Token] = {}

    def token(self, token_id: int) -> _Token:
        token = self._made.get(token_id)
        if token is None:
            token = self._made[token_id] = self._make(token_id)
        return token

    def side(self, ids: Sequence[int], style: str, span: int) -> _Token:
        """Join one side of a span between brackets; a long side keeps its beginning and its count."""
        room = self._options.side_room
        texts: list[str] = []
        cells = 0
        for index, token in enumerate(map(self.token, ids)):
            if texts and cells + token.cells > room:
                texts.append(f"{'..' if self._options.ascii_ else '…'}{len(ids) - index} more")
                break
            texts.append(token.text)
            cells += token.cells + 1
        joined = "[" + self._options.separator.join(texts) + "]" if texts else "[none]"
        return _Token(joined, cell_width(joined), sum(self.token(token_id).bytes for token_id in ids), style, span)

    def _make(self, token_id: int) -> _Token:
        text = token_text(token_id, self._vocabulary, self._options.view, ascii_=self._options.ascii_)
        text = shorten(text, self._options.side_room, ascii_=self._options.ascii_)
        data = self._vocabulary.bytes_of(token_id) if token_id in self._vocabulary else b""
        style = "$primary" if self._vocabulary.is_special(token_id) else ""
        return _Token(text, cell_width(text), len(data), style, ends_line=b"\n" in data)


def _lines(block: _Block, total: int, options: LaneOptions) -> Iterator[LaneLine]:
    if not block.a:
        return
    if not block.spans:
        yield LaneLine(options, block, "plain")
        return
    first = block.spans[0][0]
    yield LaneLine(options, block, "a", first)
    yield LaneLine(options, block, "b", first)
    for number, _ in block.spans:
        yield LaneLine(options, block, "note", number, total)
    yield LaneLine(options, block, "gap", first)


def _tokens(tokens: Sequence[_Token], options: LaneOptions, current: int | None) -> Iterator[tuple[str, str]]:
    for index, token in enumerate(tokens):
        if index:
            yield (options.separator, "$frame")
        is_current = token.span is not None and token.span == current
        yield (token.text, f"bold {token.style}" if is_current else token.style)
        if token.pad:
            yield (" " * token.pad, "")


def _ids(ids: Sequence[int]) -> str:
    return "1 token" if len(ids) == 1 else f"{len(ids):,} tokens"
