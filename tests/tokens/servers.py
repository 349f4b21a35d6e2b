"""How servers show a generation of known ids: the rules that were observed, applied to any token list."""

import codecs
from collections.abc import Iterator, Sequence
from typing import Any

from eagletui.core.vocabulary import Vocabulary

JsonObject = dict[str, Any]


def shown_groups(ids: Sequence[int], vocabulary: Vocabulary) -> Iterator[tuple[str, int]]:
    """Text and number of tokens of each step that shows something; what never becomes a character is held back.

    A token whose text would end inside a character is held back whole, with all that follows, until the text ends
    with a whole character. Bytes that cannot begin or go on with a character are shown as U+FFFD.
    """
    held: list[int] = []
    for token_id in ids:
        held.append(token_id)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(vocabulary.decode(held))
        if decoder.getstate()[0] or not text:
            continue
        yield text, len(held)
        held = []


def stream(
    ids: Sequence[int],
    vocabulary: Vocabulary,
    *,
    end_id: int | None,
    cuts: Sequence[int] = (),
    counts: bool = False,
    usage: bool = True,
) -> list[JsonObject]:
    """SSE objects of a stream.

    Args:
        ids: ordinary tokens.
        vocabulary: of the tokenizer.
        end_id: sampled last; None cuts the answer by `max_tokens`.
        cuts: how many tokens each event covers, repeated; empty is one a token.
        counts: send cumulative usage with every event.
        usage: send the final usage.
    """
    text_at: dict[int, str] = {}
    done = 0
    for text, size in shown_groups(ids, vocabulary):
        done += size
        text_at[done] = text
    events: list[JsonObject] = [_event({"role": "assistant", "content": ""}, 0 if counts else None)]
    at = step = 0
    while at < len(ids):
        upto = min(len(ids), at + (cuts[step % len(cuts)] if cuts else 1))
        text = "".join(text_at.get(position, "") for position in range(at + 1, upto + 1))
        if text:
            events.append(_event({"content": text}, upto if counts else None))
        at, step = upto, step + 1
    billed = len(ids) + (end_id is not None)
    finish = "length" if end_id is None else "stop"
    events.append(_event({}, billed if counts else None, finish))
    if usage:
        events.append({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": billed}})
    return events


def _event(delta: JsonObject, count: int | None, finish: str | None = None) -> JsonObject:
    event: JsonObject = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    if count is not None:
        event["usage"] = {"prompt_tokens": 5, "completion_tokens": count}
    return event


def whole(ids: Sequence[int], vocabulary: Vocabulary, *, end_id: int | None, logprobs: str) -> JsonObject:
    """A non-stream reply with logprobs as `vllm` or `llama.cpp` writes them."""
    groups = list(shown_groups(ids, vocabulary))
    entries: list[JsonObject] = []
    at = 0
    for text, size in groups:
        group = ids[at : at + size]
        at += size
        if logprobs == "vllm":
            entries += [_entry("", [])] * (size - 1)
            entries.append(_entry(text, list(text.encode())))
        else:
            entries.append({**_entry(text, list(vocabulary.decode(group))), "id": group[-1]})
    content = "".join(text for text, _ in groups)
    if logprobs == "vllm":
        entries += [_entry("", [])] * (len(ids) - at)
    elif at < len(ids):
        content += "\ufffd"
    if end_id is not None:
        literal = vocabulary.bytes_of(end_id)
        entries.append(
            _entry(literal.decode(), list(literal)) if logprobs == "vllm" else {**_entry("", []), "id": end_id}
        )
    return {
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": content},
                "finish_reason": "length" if end_id is None else "stop",
                "logprobs": {"content": entries},
            }
        ],
        "usage": {"prompt_tokens": 5, "completion_tokens": len(ids) + (end_id is not None)},
    }


def _entry(token: str, data: list[int]) -> JsonObject:
    return {"token": token, "bytes": data, "logprob": -0.5, "top_logprobs": []}
