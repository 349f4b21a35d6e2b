"""What an API said, normalised, with nothing repaired.

Every provider's body or event list is parsed into a `Reply` once (`providers/parse.py`); above that edge no
code looks at provider JSON.
"""

from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from eagletui.core.chat import ToolCall

FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "error"]
ReasoningKind = Literal["text", "summary", "encrypted"]

UNREADABLE: Final[tuple[ReasoningKind, ...]] = ("summary", "encrypted")
"""Kinds of reasoning that are not what the model wrote."""


class LogprobEntry(NamedTuple):
    """One entry of `choices[0].logprobs.content`."""

    token: str
    bytes_: bytes | None
    """The token's bytes; None when the server gave none, b"" when it gave an empty list."""
    logprob: float | None
    """Natural log; -9999.0 is OpenAI's "unknown" and arrives here as None."""
    id: int | None = None
    """The token id where the server sends one: llama.cpp's `id`, vLLM's `token_id:N`."""


class Delta(NamedTuple):
    """One streamed event that carried text, ids or a token count."""

    content: str = ""
    reasoning: str = ""
    tool_call: bool = False
    """The event carried a piece of a tool call, which is not raw model text."""
    token_ids: tuple[int, ...] | None = None
    """Ids of this event, where the server sends them."""
    completion_tokens: int | None = None
    """Cumulative count after this event, from per-event usage or timings; None when not sent."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What the provider billed."""

    prompt_tokens: int | None
    completion_tokens: int | None
    reasoning_tokens: int | None = None
    """Part of completion_tokens."""
    cached_tokens: int | None = None
    """Part of prompt_tokens."""
    cost_pico_usd: int | None = None
    """`usage.cost` in picodollars; None when the server states none."""


class Routed(NamedTuple):
    """What a router says it did with a request (`openrouter_metadata`)."""

    provider: str | None
    """Name of the provider it selected."""
    model: str | None


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer as the API gave it."""

    generation_id: str | None
    model: str | None
    endpoint: str | None
    """The provider behind the router (`provider`), or None for a direct server."""
    content: str | None
    reasoning: str | None
    reasoning_kind: ReasoningKind | None
    """None when there was no reasoning."""
    tool_calls: tuple[ToolCall, ...]
    finish_reason: FinishReason | None
    native_finish_reason: str | None
    usage: Usage | None
    token_ids: tuple[int, ...] | None = None
    """Output ids the server returned."""
    prompt_token_ids: tuple[int, ...] | None = None
    logprobs: tuple[LogprobEntry, ...] | None = None
    deltas: tuple[Delta, ...] | None = None
    """None for a non-stream reply."""
    stopped_by: int | str | None = None
    """What ended the answer where the server says: a token id or a stop string (`stop_reason`, `matched_stop`)."""
    names_stop: bool = False
    """The server has a field for `stopped_by`; where it is empty, the model's own end token ended the answer."""
    refusal: str | None = None
    error: str | None = None
    """The provider's error text, cleaned, when the answer ended in an error."""
    routed: Routed | None = None
    """None where no router says it."""
    notes: tuple[str, ...] = field(default=())
    """What was tolerated while parsing, in one phrase each (a second finish chunk, unknown reasoning kind)."""
