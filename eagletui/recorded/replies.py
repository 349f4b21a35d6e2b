"""Read recorded API replies from a file: what `reconstruct` and `arbitrate` take."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eagletui.core.chat import Prompt
from eagletui.core.errors import InputError, ReplyError
from eagletui.core.outputs import OutputFormat
from eagletui.core.reply import Reply
from eagletui.prompts.fields import Fault
from eagletui.prompts.messages import read_messages
from eagletui.providers.decoding import decode_json
from eagletui.providers.parse import parse_body, parse_events
from eagletui.recorded.lines import numbered_lines, problem, read_ids, read_text
from eagletui.tokens.formats import asked_thinking
from eagletui.tokens.load import Tokenizer


@dataclass(frozen=True, slots=True)
class Recorded:
    """One line of the input."""

    id: str
    line: int
    """1-based."""
    reply: Reply
    prompt: Prompt | None
    """None when the line has no readable request."""
    max_tokens: int | None
    stop_strings: tuple[str, ...]
    request: Mapping[str, object] | None
    truth_ids: tuple[int, ...] | None

    def thinking(self, fmt: OutputFormat) -> bool | None:
        """Whether the request switches thinking on or off; None where it says nothing."""
        return asked_thinking(fmt, self.request)

    @property
    def asked_model(self) -> str | None:
        """The model that the request names."""
        model = (self.request or {}).get("model")
        return model if isinstance(model, str) else None


def read_recorded(path: Path, tokenizer: Tokenizer | None) -> list[Recorded]:
    """Read a file of recorded replies.

    Raises:
        InputError: the first line that is not what the contract asks for, with its field.
    """
    return [_recorded(path, number, line, tokenizer) for number, line in numbered_lines(path)]


def _recorded(path: Path, number: int, line: bytes, tokenizer: Tokenizer | None) -> Recorded:
    try:
        value = decode_json(line)
        if not isinstance(value, dict):
            raise problem(path, number, None, value, 'an object with "id" and "response" or "events"')
        sample_id = value.get("id")
        if isinstance(sample_id, int) and not isinstance(sample_id, bool):
            sample_id = str(sample_id)
        sample_id = read_text(path, number, "id", sample_id)
        reply = _reply(path, number, value)
    except ReplyError as error:
        raise InputError(f"{path}:{number}: {error}") from error
    request = value.get("request")
    if request is not None and not isinstance(request, dict):
        raise problem(path, number, "request", request, "an object")
    limit = (request or {}).get("max_tokens", (request or {}).get("max_completion_tokens"))
    stop = (request or {}).get("stop")
    return Recorded(
        id=sample_id,
        line=number,
        reply=reply,
        prompt=_prompt(request),
        max_tokens=limit if isinstance(limit, int) and not isinstance(limit, bool) else None,
        stop_strings=_stop_strings(stop),
        request=request,
        truth_ids=read_ids(path, number, "truth_ids", value["truth_ids"], tokenizer) if "truth_ids" in value else None,
    )


def _stop_strings(stop: object) -> tuple[str, ...]:
    given = [stop] if isinstance(stop, str) else stop if isinstance(stop, list) else []
    return tuple(text for text in given if isinstance(text, str) and text)


def _reply(path: Path, number: int, value: Mapping[str, Any]) -> Reply:
    if "response" in value:
        return parse_body(value["response"])
    events = value.get("events")
    if events is None:
        raise problem(path, number, "response", "nothing", 'an API body, or "events" with the objects of a stream')
    if not isinstance(events, list):
        raise problem(path, number, "events", events, "a list of objects")
    return parse_events(events)


def _prompt(request: Mapping[str, Any] | None) -> Prompt | None:
    """The conversation of a request; None when it cannot be read, which costs only what needs it."""
    if not request or "messages" not in request:
        return None
    try:
        messages = read_messages(request["messages"], "messages")
    except Fault:
        return None
    tools = request.get("tools")
    return Prompt(messages, json.dumps(tools, ensure_ascii=False, default=str) if tools else None)
