"""The event that a stream is made of: one delta of content, perhaps with its logprobs, and nothing else of interest.

Thousands of these make an answer, so they are decoded straight into this shape and nothing else of them is made into
objects. Every field that `reply_reader` looks at and that is not read here must be absent or null; an event that has
one is not a usual event, and `reply_reader` reads it.
"""

from typing import Final

import msgspec

from eagletui.providers.decoding import UNDECODABLE

TOKEN_ID: Final = "token_id:"
"""How vLLM begins a token that is given by its id."""

UNKNOWN_LOGPROB: Final = -9999.0
"""OpenAI's value for a log probability that was not computed."""


class Entry(msgspec.Struct, gc=False):
    """One entry of `logprobs.content`."""

    token: str
    logprob: float
    bytes: list[int]
    id: None = None


class Logprobs(msgspec.Struct):
    """`logprobs` of a choice."""

    content: list[Entry]
    tokens: None = None


class ContentDelta(msgspec.Struct, gc=False):
    """`delta` of a choice."""

    content: str
    reasoning: None = None
    reasoning_content: None = None
    reasoning_details: None = None
    tool_calls: None = None
    refusal: None = None
    token_ids: None = None


class Choice(msgspec.Struct):
    """The only choice."""

    delta: ContentDelta
    index: int = 0
    logprobs: Logprobs | None = None
    finish_reason: None = None
    native_finish_reason: None = None
    error: None = None
    prompt_token_ids: None = None
    token_ids: None = None
    stop_reason: None = None
    matched_stop: None = None


class Event(msgspec.Struct):
    """A chunk of a stream."""

    choices: list[Choice]
    usage: None = None
    timings: None = None
    error: None = None
    verbose: None = msgspec.field(default=None, name="__verbose")
    prompt_token_ids: None = None
    openrouter_metadata: None = None


_DECODER: Final = msgspec.json.Decoder(Event)


def usual_choice(data: bytes) -> Choice | None:
    """Decode an event, or return None where it is not a usual one."""
    try:
        event = _DECODER.decode(data)
    except UNDECODABLE:
        return None
    if len(event.choices) != 1 or event.choices[0].index != 0:
        return None
    choice = event.choices[0]
    if choice.logprobs is not None:
        for entry in choice.logprobs.content:
            if not _is_plain(entry):
                return None
    return choice


def _is_plain(entry: Entry) -> bool:
    """Tell an entry that is what it says from one that gives an id, no logprob or something else than bytes."""
    if entry.logprob == UNKNOWN_LOGPROB or entry.token.startswith(TOKEN_ID):
        return False
    return not entry.bytes or (min(entry.bytes) >= 0 and max(entry.bytes) < 256)
