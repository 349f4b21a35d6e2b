"""API bodies and stream objects to a `Reply`. Pure, and the only place that knows provider JSON.

Shapes: OpenAI chat and text completions as OpenRouter, vLLM, SGLang and llama.cpp write them, llama.cpp's native
`/completion` (`tokens`, `timings`, `__verbose`) and SGLang's native `/generate` (`output_ids`, `meta_info`).
What can be read without guessing is read and noted; what cannot raises `ReplyError`.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from eagletui.core.errors import ReplyError
from eagletui.core.reply import LogprobEntry, Reply, Usage
from eagletui.providers.decoding import UNDECODABLE, decode_json
from eagletui.providers.fields import (
    JsonObject,
    count_of,
    ids_of,
    list_of,
    logprob_of,
    object_of,
    predicted_of,
    shown,
    text_of,
)
from eagletui.providers.reply_reader import ReplyReader
from eagletui.providers.usual_events import usual_choice

_FLOAT_DECODER: Final = msgspec.json.Decoder()
"""For events without money, several times as fast: only costs need every digit."""


def _decode_event(data: bytes) -> Any:
    if b"cost" in data:
        return decode_json(data)
    try:
        return _FLOAT_DECODER.decode(data)
    except UNDECODABLE:
        return decode_json(data)


def split_sse(body: bytes) -> list[Any]:
    """Decode the `data:` objects of an event stream, in order; comments and `[DONE]` are skipped.

    Raises:
        ReplyError: a `data:` field is not JSON.
    """
    return [_decode_event(data) for data in _data_fields(body)]


def _data_fields(body: bytes) -> Iterator[bytes]:
    if b"\r" in body:
        body = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    for block in body.split(b"\n\n"):
        # Nearly every event is one line.
        if block.startswith(b"data: ") and b"\n" not in block:
            data = block[6:]
        else:
            fields = [line[5:].removeprefix(b" ") for line in block.split(b"\n") if line.startswith(b"data:")]
            data = b"\n".join(fields)
        if data.startswith(b"{") or data.strip() not in (b"[DONE]", b""):
            yield data


def parse_body(body: bytes | str | JsonObject) -> Reply:
    """Parse a non-stream reply.

    Args:
        body: the body as received, or the decoded object.

    Raises:
        ReplyError: it is no completion at all.
    """
    document = decode_json(body) if isinstance(body, bytes | str) else body
    reader = ReplyReader()
    root = object_of(document, "response")
    if "choices" not in root and "error" not in root:
        return _parse_native([root], reader, streamed=False)
    reader.envelope(root)
    choice = reader.first_choice(root)
    message = choice.get("message")
    if message is None:
        message = {"content": choice.get("text")}
    message = object_of(message, "choices[0].message")
    reader.message(message)
    reader.choice(choice)
    reader.entries(choice.get("logprobs"))
    reader.usage(root)
    return reader.reply(streamed=False)


def parse_events(events: Sequence[Any]) -> Reply:
    """Parse a streamed reply.

    Args:
        events: decoded `data:` objects, in order.

    Raises:
        ReplyError: an event is no completion chunk at all.
    """
    reader = ReplyReader()
    roots = [object_of(event, f"events[{index}]") for index, event in enumerate(events)]
    if not roots:
        raise ReplyError("field events: found an empty list, expected the objects of a stream")
    if not any("choices" in root or "error" in root for root in roots):
        return _parse_native(roots, reader, streamed=True)
    for root in roots:
        _take_event(root, reader)
    return reader.reply(streamed=True)


def parse_stream(body: bytes) -> Reply:
    """Parse a streamed reply as received, in half the time of `parse_events(split_sse(body))`.

    What stands beside the choices is read from the first event and from those that are not `usual_events`, as the last
    ones are not.

    Raises:
        ReplyError: an event is not JSON or no completion chunk at all.
    """
    reader = ReplyReader()
    number = -1
    for number, data in enumerate(_data_fields(body)):
        choice = usual_choice(data) if number else None
        if choice is not None:
            reader.usual(choice)
            continue
        root = object_of(_decode_event(data), f"events[{number}]")
        if number == 0 and "choices" not in root and "error" not in root:
            return parse_events(split_sse(body))
        _take_event(root, reader)
    if number < 0:
        raise ReplyError("field events: found an empty stream, expected the objects of a stream")
    return reader.reply(streamed=True)


def _take_event(root: JsonObject, reader: ReplyReader) -> None:
    reader.envelope(root)
    choice = reader.first_choice(root, streamed=True)
    usage = reader.usage(root)
    if not choice:
        return
    delta = choice.get("delta")
    delta = {"content": choice.get("text")} if delta is None else object_of(delta, "choices[0].delta")
    ids = ids_of(choice.get("token_ids", delta.get("token_ids")), "choices[0].token_ids")
    count = usage if usage is not None else predicted_of(root)
    reader.delta(delta, ids, count)
    reader.choice(choice)
    reader.entries(choice.get("logprobs"))


def _parse_native(roots: Sequence[JsonObject], reader: ReplyReader, *, streamed: bool) -> Reply:
    """llama.cpp's `/completion` and SGLang's `/generate`, whole or streamed."""
    for root in roots:
        text = root.get("content", root.get("text"))
        if not isinstance(text, str) or not {"tokens", "tokens_predicted", "output_ids", "meta_info"} & root.keys():
            found = ", ".join(sorted(root)[:8]) or "an empty object"
            raise ReplyError(f"field choices: found nothing (only {shown(found)}), expected a list of choices")
        meta = root.get("meta_info") or {}
        meta = object_of(meta, "meta_info")
        ids = ids_of(root.get("tokens", root.get("output_ids")), "tokens")
        count = count_of(root.get("tokens_predicted", meta.get("completion_tokens")))
        prompt = count_of(root.get("tokens_evaluated", meta.get("prompt_tokens")))
        if streamed:
            reader.delta({"content": text}, ids, count)
        else:
            reader.message({"content": text})
            reader.token_ids = ids or None
        if root.get("stop") is not False:
            reader.native_finish(root, meta)
            reader.billed = Usage(prompt, count) if count is not None else None
        reader.model = reader.model or text_of(root.get("model"))
        reader.entries({"content": root.get("completion_probabilities")})
        for entry in list_of(meta.get("output_token_logprobs")):
            if isinstance(entry, list | tuple) and len(entry) >= 2 and count_of(entry[1]) is not None:
                token = entry[2] if len(entry) > 2 and isinstance(entry[2], str) else ""
                reader.logprobs.append(LogprobEntry(token, None, logprob_of(entry[0]), entry[1]))
    return reader.reply(streamed=streamed)
