"""How a model family writes an answer, and what a server keeps of it. Both are data, read from `formats/`.

An `OutputFormat` says who opens the reasoning, which literal glue stands between the parts, how a tool call is
spelled, and which token ends the answer for which finish reason. A `LossProfile` says what one server (and version)
strips or rewrites before the answer reaches the client. `core/assembly.py` puts the two together again: it undoes the
profile and returns the raw text as `Part`s.

Literals are written as the model emits them. A literal that is one added token of the tokenizer stands in
`OutputFormat.specials`; everything else is ordinary text and is encoded together with its neighbours.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal, NamedTuple

Field = Literal["reasoning", "content", "tool_call", "glue"]
FormatState = Literal["proved on served ids", "derived from the template", "from documentation"]
Opener = Literal["prompt", "model", "none"]
Codec = Literal["json", "parameters", "gemma-dict", "none"]
Absent = Literal["close", "glue", "nothing"]
Block = Literal["closed", "open", "none"]
TextUsability = Literal["usable", "text_suspect", "unusable"]


@dataclass(frozen=True, slots=True)
class Text:
    """A run of ordinary text. A special string inside it stays text."""

    text: str
    field: Field
    """Where it comes from; adjacent texts are still encoded in one pass."""


@dataclass(frozen=True, slots=True)
class Special:
    """One added token, named by its string. No id is known here."""

    text: str


Part = Text | Special


class Written(NamedTuple):
    """One way to write a stretch of the raw text."""

    parts: tuple[Part, ...] = ()
    weight: float = 1.0
    """How usual it is, against 1 for the standard way."""
    note: str = ""
    """What differs from the standard way; empty for that one."""


@dataclass(frozen=True, slots=True)
class Assembly:
    """One raw text that the server could have turned into the reply at hand."""

    parts: tuple[Part, ...]
    """The raw text in order, the end token included."""
    prior: float = 1.0
    """How likely this reading is before any count is looked at, relative to the other readings of the same reply."""
    usability: TextUsability = "usable"
    """What the text allows; the ids may lower it further."""
    reasons: tuple[str, ...] = ()
    """Why `usability` is not `usable`, one phrase each."""
    end: str | None = None
    """The special that the model sampled last; None when the answer was cut."""
    block: Block = "none"
    """Whether the raw text has a reasoning block, and whether it is closed."""
    close_at: int | None = None
    """Index in `parts` of the close tag's token; None without one."""
    refused: str | None = None
    """Why this kind of answer cannot be rebuilt from text at all (ids from the server still can)."""
    misfit: str | None = None
    """The reply holds something that the format has no place for: the format is wrong, and no count proves anything."""
    open_ended: bool = False
    """The answer was cut somewhere in its structural tail: the ids are the first `billed` of these parts."""
    note: str = ""
    """What this reading assumes beyond the plain one ("newline before </think>"); empty for the plain one."""
    verbatim: bool = True
    """The server keeps every field of this reply as the model wrote it, so a differing count is a differing cut."""
    unlisted: float = 0.0
    """Likelihood, on the scale of `prior`, of raw texts that give the same reply and are not among its readings."""

    @property
    def raw(self) -> str:
        """The raw text, specials at their literal text."""
        return "".join(part.text for part in self.parts)


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Where the reasoning stands in the raw text."""

    opened_by: Opener = "none"
    """Who writes the opener: the prompt ends with it, the model samples it, or there is no reasoning."""
    open: str = ""
    """The opener, with its glue, as the model samples it or as the prompt ends."""
    close: str = ""
    """The closing literal alone."""
    before_close: str = ""
    """Glue between the reasoning and `close`, which belongs to the raw text."""
    after_close: str = ""
    """Glue between `close` and the content."""
    after_open: str = ""
    """Glue that the model itself writes after the opener, and that servers hand out as part of the reasoning."""
    off: Mapping[str, object] = field(default_factory=dict)
    """Template kwargs that switch thinking off (any of them); the raw text then is the content alone."""
    on: Mapping[str, object] = field(default_factory=dict)
    """Template kwargs that switch thinking on (any of them), where the default is off."""
    default: bool = True
    """Whether the model thinks when the request says nothing."""
    absent: tuple[Absent, ...] = ("close",)
    """What the model writes when it thinks about nothing, the usual way first: its tags with nothing between, a block
    that holds only the glue, or no block at all."""
    history: Literal["kept", "dropped", "dropped before the last user turn", "kept in the tool loop"] = "dropped"
    """What the chat template does with the reasoning of earlier turns."""
    history_kwarg: str = ""
    """The template kwarg that keeps earlier reasoning, where there is one."""


@dataclass(frozen=True, slots=True)
class Content:
    """What stands around the content in formats that give it a header (Harmony); empty elsewhere."""

    open: str = ""
    """Header of the content of an answer without calls; written even when the content is empty."""
    open_with_tools: str = ""
    """Header of the content before calls; written only when there is content."""
    close_with_tools: str = ""
    """What closes the content before calls."""
    other_opens: tuple[str, ...] = ()
    """Other headers that occur in place of `open`."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """One other way to write the tool section. Fields that are None are inherited from `[tools]`."""

    name: str
    """Short name that a loss profile can list: which spellings the server recognises as a call."""
    weight: float
    """How likely against the standard spelling, which has 1."""
    open: str | None = None
    close: str | None = None
    each: str | None = None
    between: str | None = None
    parameter: str | None = None


@dataclass(frozen=True, slots=True)
class Tools:
    """How tool calls are written."""

    codec: Codec = "none"
    """How arguments become text (`core/codecs.py`): JSON, one `parameter` after another, Gemma's own notation."""
    open: str = ""
    """Before the first call."""
    close: str = ""
    """After the last call."""
    each: str = ""
    """One call, with the fields {id}, {name} and {arguments}."""
    parameter: str = ""
    """One parameter of the codec `parameters`, with the fields {key}, {value} and {string} ("true" or "false")."""
    between_parameters: str = ""
    """Between two parameters."""
    booleans: Literal["json", "python"] = "json"
    """How a boolean value is written: `true` or `True`."""
    between: str = ""
    """Between two calls."""
    before: str = ""
    """Glue before the section when there is no content."""
    before_with_content: str = ""
    """Glue between content and the section."""
    after: str = ""
    """Glue between the section and the end token."""
    id_form: str = ""
    """The id as the model writes it, with {name} and {index}; empty where ids are not part of the raw text."""
    spellings: tuple[Spelling, ...] = ()
    """Other ways that occur."""
    refused: str = ""
    """Why tool turns cannot be rebuilt from text; empty where they can."""


@dataclass(frozen=True, slots=True)
class End:
    """The token that ends an answer, by finish reason. A cut answer (`length`) has none."""

    stop: str
    tool_calls: str = ""
    """Empty means the same as `stop`."""


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """How one model family writes an answer."""

    name: str
    title: str
    """The family as people call it."""
    state: FormatState
    """How we know."""
    source: str
    """Template, page or capture that the facts come from."""
    specials: tuple[str, ...]
    """Structural literals that are one added token each; all must resolve on the tokenizer."""
    end: End
    uncertain: tuple[str, ...] = ()
    """Structural literals that may or may not be one added token; `fitted` asks the tokenizer."""
    models: tuple[str, ...] = ()
    """Model ids (lower case, a prefix each) for which this format is offered."""
    reasoning: Reasoning = field(default_factory=Reasoning)
    content: Content = field(default_factory=Content)
    tools: Tools = field(default_factory=Tools)
    template: str = ""
    """The chat template this was derived from, without its folder; empty where there is none."""
    differs: str = ""
    """Why the raw text is not what that template renders, where it is not."""
    prompt_renderer: Literal["template", "none"] = "template"
    """`none`: the family has no Jinja template, and prompt ids come only from the server."""
    prompt_tools: Literal["as given", "sorted", "typescript"] = "as given"
    """How tools reach the template: as the request has them, with sorted keys, or also declared in TypeScript."""
    prompt_arguments: Literal["object", "text"] = "object"
    """How the arguments of earlier calls reach the template."""
    refuses: tuple[str, ...] = ()
    """What does not fit this format and is refused, one sentence each."""
    claimed_ids: Mapping[str, int] = field(default_factory=dict)
    """Ids that a source states for structural literals: an audit compares them, nothing else reads them."""

    def end_token(self, finish_reason: str | None) -> str | None:
        """Return the token that ends an answer, or None for a cut one."""
        if finish_reason in ("length", "error", "content_filter"):
            return None
        return self.end.tool_calls or self.end.stop if finish_reason == "tool_calls" else self.end.stop

    def thinks(self, template_kwargs: Mapping[str, object]) -> bool:
        """Say whether the prompt asks for thinking under these template kwargs."""
        if self.reasoning.opened_by == "none":
            return False
        if any(key in template_kwargs and template_kwargs[key] == value for key, value in self.reasoning.off.items()):
            return False
        if any(key in template_kwargs and template_kwargs[key] == value for key, value in self.reasoning.on.items()):
            return True
        return self.reasoning.default


def fitted(fmt: OutputFormat, known: Collection[str]) -> OutputFormat:
    """Settle a format's uncertain literals on a tokenizer.

    Args:
        fmt: as loaded.
        known: the tokenizer's special strings.

    Returns:
        The format with every uncertain literal that is an added token among its specials, the others as text.
    """
    found = tuple(literal for literal in fmt.uncertain if literal in known)
    return replace(fmt, specials=(*fmt.specials, *found), uncertain=()) if fmt.uncertain else fmt


@dataclass(frozen=True, slots=True)
class Losses:
    """What one server does to the raw text of one family. The default keeps everything."""

    reasoning: Literal["verbatim", "rstrip", "strip"] = "verbatim"
    reasoning_in_content: bool = False
    """No reasoning parser: the markers and the reasoning may stand inside the content."""
    content: Literal["verbatim", "strip"] = "verbatim"
    content_with_tools: Literal["verbatim", "rstrip", "strip", "without-glue", "dropped", "after"] = "verbatim"
    """`without-glue` removes the glue before the section once, `dropped` loses the content whole, `after` means that
    content beside a call was written after it."""
    blank_content_with_tools: Literal["kept", "dropped"] = "kept"
    """Content of whitespace alone before a call."""
    special_text: Literal["kept", "removed"] = "kept"
    """What happens to a structural string that the model wrote as ordinary text."""
    arguments: Literal["verbatim", "trimmed", "coerced", "reserialised", "reserialised-ascii"] = "verbatim"
    """`trimmed` loses outer whitespace; `coerced` also converts values to the declared schema; `reserialised` parses
    and writes the JSON again."""
    values: Literal["verbatim", "stripped"] = "verbatim"
    """Text values of the codec `parameters`: `stripped` loses whitespace around them."""
    tool_ids: Literal["kept", "renumbered", "random"] = "kept"
    """`renumbered`: the index was replaced by a running one."""
    undeclared_calls: Literal["kept", "dropped"] = "kept"
    """A call to a tool that the request did not declare."""
    calls_without_tools: Literal["kept", "content", "dropped"] = "content"
    """A call though the request declared no tools."""
    text_after_calls: Literal["kept", "dropped", "content"] = "dropped"
    """`content`: it is appended to the content, so its place is lost."""
    implicit_close: bool = True
    """A tool opener ends the reasoning, so a missing close tag leaves no trace."""
    cut_calls: Literal["kept", "dropped", "content"] = "kept"
    """A call that `max_tokens` cut: handed out as a call (finish reason `tool_calls`), lost, or left in the content."""
    spellings: tuple[str, ...] = ()
    """Which other spellings of a call the server recognises; a call in another one would have stayed text."""
    all_spellings_known: bool = False
    """A call that the server handed out was written in one of those or in the standard one."""
    messages_joined_by: str = ""
    """What the server puts between several reasoning messages, or content messages, of one answer; empty where it has
    no such messages or their joint leaves no trace."""
    reasoning_tokens: Literal["unknown", "inside", "through-close"] = "unknown"
    """What `usage.reasoning_tokens` counts: the text inside the block, or everything up to and with the close tag."""


@dataclass(frozen=True, slots=True)
class LossRule:
    """Losses that hold for some formats."""

    formats: tuple[str, ...]
    changes: Mapping[str, object]
    """Fields of `Losses` that differ from the profile's default."""


@dataclass(frozen=True, slots=True)
class LossProfile:
    """What one server version strips or rewrites."""

    name: str
    """`SERVER` or `SERVER@VERSION`."""
    title: str
    source: str
    """Where the facts come from."""
    default: Losses = field(default_factory=Losses)
    rules: tuple[LossRule, ...] = ()
    """Applied in order; later ones win."""

    def losses(self, format_name: str) -> Losses:
        """Return what this server does to answers of one format."""
        found = self.default
        for rule in self.rules:
            if format_name in rule.formats:
                found = replace(found, **dict(rule.changes))  # type: ignore[arg-type]
        return found


RAW = LossProfile(name="raw", title="Nothing is stripped", source="by definition")
"""The profile that trusts every field."""


def split_specials(text: str, specials: Sequence[str], kind: Field = "glue") -> tuple[Part, ...]:
    """Cut structural text into specials and plain text.

    Args:
        text: literal text of a format file.
        specials: strings that are one added token each; the longest wins where several match.
        kind: the field of the plain pieces.

    Returns:
        The parts in order; their texts joined are `text`.
    """
    if not text:
        return ()
    if not specials:
        return (Text(text, kind),)
    pieces = _splitter(tuple(specials)).split(text)
    return tuple(Special(piece) if index % 2 else Text(piece, kind) for index, piece in enumerate(pieces) if piece)


@lru_cache(maxsize=256)
def _splitter(specials: tuple[str, ...]) -> re.Pattern[str]:
    ordered = sorted(specials, key=len, reverse=True)
    return re.compile(f"({'|'.join(re.escape(special) for special in ordered)})")
