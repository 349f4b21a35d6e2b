"""Lay two tokenizations out as lines: one lane where they agree, two where they differ.

Pure: values in, lines out. Widths are terminal cells.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from eagletui.core.text import cell_width, shorten, visible
from eagletui.core.tokdiff import Lane
from eagletui.core.vocabulary import Vocabulary

View = Literal["text", "ids", "bytes"]
Pieces = tuple[tuple[str, str], ...]

_OFFSET_CELLS: Final = 10
_CONTEXT_TOKENS: Final = 2
_PROVED: Final = "$proved underline"
_REBUILT: Final = "$rebuilt reverse"


@dataclass(frozen=True, slots=True)
class LaneLine:
    """One line of the inspector."""

    pieces: Pieces
    """Text and style."""
    span: int | None = None
    """Index of the first span it shows, counted from 0; None on lines of agreement."""
    is_head: bool = False
    """The first line of the block that shows the span."""


@dataclass(frozen=True, slots=True)
class LaneOptions:
    """How tokens are written."""

    width: int
    view: View = "text"
    ascii_: bool = False
    a_name: str = "proved"
    b_name: str = "canonical"

    @property
    def separator(self) -> str:
        """What stands between tokens; a model's own `|` is told apart where the terminal allows."""
        return "|" if self.ascii_ else "│"

    @property
    def label_cells(self) -> int:
        """Cells of the lane's name and the gap after it."""
        return max(len(self.a_name), len(self.b_name)) + 2

    @property
    def plain_room(self) -> int:
        """Cells for tokens on a line of agreement."""
        return max(20, self.width - _OFFSET_CELLS)

    @property
    def lane_room(self) -> int:
        """Cells for tokens on a doubled line."""
        return max(16, self.plain_room - self.label_cells)


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    cells: int
    bytes: int
    style: str = ""


@dataclass(slots=True)
class _Block:
    """Tokens that share a line, and the spans among them."""

    offset: int
    a: list[_Token] = field(default_factory=list)
    b: list[_Token] = field(default_factory=list)
    a_cells: int = 0
    b_cells: int = 0
    a_bytes: int = 0
    spans: tuple[tuple[int, Lane], ...] = ()

    def add(self, a: _Token, b: _Token) -> None:
        """Put one unit on each lane."""
        self.a.append(a)
        self.b.append(b)
        self.a_cells += a.cells + 1
        self.b_cells += b.cells + 1
        self.a_bytes += a.bytes

    def fits(self, cells: int, room: int) -> bool:
        """Tell whether a unit of so many cells still fits."""
        return max(self.a_cells, self.b_cells) + cells <= room

    def split_context(self) -> tuple["_Block", "_Block"]:
        """Cut a block of agreement before its last tokens, which will stand beside a span."""
        head, tail = _Block(self.offset), _Block(0)
        for token in self.a[:-_CONTEXT_TOKENS]:
            head.add(token, token)
        tail.offset = head.offset + head.a_bytes
        for token in self.a[-_CONTEXT_TOKENS:]:
            tail.add(token, token)
        return head, tail


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
    more = len(lane.a_ids) - len(lane.b_ids)
    count = f"{_ids(lane.a_ids)} against {_ids(lane.b_ids)} ({more:+})"
    match lane.kind:
        case "~":
            return f"same bytes, {count}"
        case "!":
            return f"different text, {count}"
        case "+":
            return f"only {a_name}, {_ids(lane.a_ids)} ({more:+})"
        case _:
            return f"only {b_name}, {_ids(lane.b_ids)} ({more:+})"


def span_figures(lane: Lane) -> str:
    """Give a span's ids on both sides, in figures."""
    more = len(lane.a_ids) - len(lane.b_ids)
    return f"{len(lane.a_ids)} -> {len(lane.b_ids)} ids  {more:+}"


def lay_out(lanes: Sequence[Lane], vocabulary: Vocabulary, options: LaneOptions) -> list[LaneLine]:
    """Lay out the lanes of one sample."""
    total = sum(lane.kind != "=" for lane in lanes)
    return [line for block in _blocks(lanes, vocabulary, options) for line in _draw(block, total, options)]


def lay_out_one(ids: Sequence[int], vocabulary: Vocabulary, options: LaneOptions) -> list[LaneLine]:
    """Lay out a tokenization that is compared with nothing."""
    return lay_out([Lane(0, 0, tuple(ids), tuple(ids), "=")], vocabulary, options)


def _blocks(lanes: Sequence[Lane], vocabulary: Vocabulary, options: LaneOptions) -> Iterator[_Block]:
    write = _Writer(vocabulary, options)
    block = _Block(0)
    span = 0
    for lane in lanes:
        if lane.kind == "=":
            for token in map(write.token, lane.a_ids):
                if not block.fits(token.cells, options.lane_room if block.spans else options.plain_room):
                    yield block
                    block = _Block(block.offset + block.a_bytes)
                block.add(token, token)
            continue
        a, b = write.side(lane.a_ids, _PROVED), write.side(lane.b_ids, _REBUILT)
        if not block.spans:
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

    def side(self, ids: Sequence[int], style: str) -> _Token:
        """Join one side of a span between brackets; a long side keeps its beginning and its count."""
        room = self._options.lane_room - 12
        texts: list[str] = []
        cells = 0
        for index, token in enumerate(map(self.token, ids)):
            if texts and cells + token.cells > room:
                texts.append(f"{'..' if self._options.ascii_ else '…'}{len(ids) - index} more")
                break
            texts.append(token.text)
            cells += token.cells + 1
        joined = "[" + self._options.separator.join(texts) + "]" if texts else "[none]"
        return _Token(joined, cell_width(joined), sum(self.token(token_id).bytes for token_id in ids), style)

    def _make(self, token_id: int) -> _Token:
        text = token_text(token_id, self._vocabulary, self._options.view, ascii_=self._options.ascii_)
        text = shorten(text, self._options.lane_room - 12, ascii_=self._options.ascii_)
        size = len(self._vocabulary.bytes_of(token_id)) if token_id in self._vocabulary else 0
        style = "$primary" if self._vocabulary.is_special(token_id) else ""
        return _Token(text, cell_width(text), size, style)


def _draw(block: _Block, total: int, options: LaneOptions) -> Iterator[LaneLine]:
    if not block.a:
        return
    offset = (f"{block.offset:,}".rjust(_OFFSET_CELLS - 2) + "  ", "$quiet")
    if not block.spans:
        yield LaneLine((offset, *_tokens(block.a, options)))
        return
    blank = (" " * _OFFSET_CELLS, "")
    first = block.spans[0][0]
    a_name, b_name = (name.ljust(options.label_cells) for name in (options.a_name, options.b_name))
    yield LaneLine((offset, (a_name, "bold"), *_tokens(block.a, options)), first, is_head=True)
    yield LaneLine((blank, (b_name, "bold"), *_tokens(block.b, options)), first)
    for index, lane in block.spans:
        note = f"{lane.kind} span {index + 1} of {total}: {span_words(lane, options.a_name, options.b_name)}"
        yield LaneLine((blank, (shorten(note, options.plain_room, ascii_=options.ascii_), "$quiet")), index)
    yield LaneLine((("", ""),), first)


def _tokens(tokens: Sequence[_Token], options: LaneOptions) -> Iterator[tuple[str, str]]:
    for index, token in enumerate(tokens):
        if index:
            yield (options.separator, "$frame")
        yield (token.text, token.style)


def _ids(ids: Sequence[int]) -> str:
    return "1 id" if len(ids) == 1 else f"{len(ids):,} ids"
