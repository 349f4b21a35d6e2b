"""The JSON shapes of OpenRouter's API, from https://openrouter.ai/docs/api_reference/overview. Pure.

Money is written as a JSON number with every digit, never through a float.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import msgspec

from eagletui.core.money import pico_to_usd_string
from eagletui.core.vocabulary import Vocabulary
from eagletui.embedded.backend import Answer
from eagletui.embedded.books import BookRow
from eagletui.embedded.deltas import TextDelta, split_deltas
from eagletui.embedded.market import (
    ENDPOINTS,
    HUGGING_FACE_ID,
    MODEL_NAME,
    MODEL_SLUG,
    Endpoint,
    Window,
)

K = TypeVar("K")
V = TypeVar("V")

SHAPES_KEPT: Final = 256
NON_RETRYABLE = ("model_not_found", "no_endpoints", "constraint_filtered")
SSE_COMMENT = b": OPENROUTER PROCESSING\n\n"
SSE_DONE = b"data: [DONE]\n\n"


def money(pico: int) -> msgspec.Raw:
    """Write picodollars as an exact JSON number of dollars."""
    return msgspec.Raw(pico_to_usd_string(pico).encode())


def encode(value: object) -> bytes:
    """Encode a value as JSON."""
    return msgspec.json.encode(value)


def event(value: object) -> bytes:
    """Encode one server-sent event."""
    return b"data: " + encode(value) + b"\n\n"


def error_object(
    code: int, message: str, *, error_type: str, availability: str | None = None, retry_after_s: int | None = None
) -> dict[str, Any]:
    """Build the `error` object of a refused or failed request."""
    error: dict[str, Any] = {"code": code, "message": message, "metadata": {"error_type": error_type}}
    if availability is not None:
        error["availability"] = {
            "code": availability,
            "retryable": availability not in NON_RETRYABLE,
            "retry_after": retry_after_s,
        }
    return error


@dataclass(frozen=True, slots=True)
class Shapes:
    """The shapes of answers given lately, because recorded ones are given again and again."""

    deltas: dict[tuple[int, ...], tuple[TextDelta, ...]] = field(default_factory=dict)
    """By output ids."""
    choices: dict[tuple[tuple[int, ...], tuple[float, ...] | None], tuple[tuple[bytes, int], ...]] = field(
        default_factory=dict
    )
    """Ends of events and their tokens, by output ids and the logprobs shown."""

    @staticmethod
    def keep(shapes: dict[K, V], key: K, value: V) -> None:
        """Add a shape, forgetting all others where there are too many."""
        if len(shapes) >= SHAPES_KEPT:
            shapes.clear()
        shapes[key] = value


@dataclass(frozen=True, slots=True)
class Shaper:
    """Gives one generation its shapes: a body, or the chunks of a stream."""

    generation_id: str
    created: int
    """Unix seconds."""
    endpoint: Endpoint
    vocabulary: Vocabulary
    logprobs: bool
    """The request asked for logprobs and the endpoint gives them."""
    shapes: Shapes

    def deltas(self, answer: Answer) -> tuple[TextDelta, ...]:
        """Split an answer into the steps of its stream."""
        known = self.shapes.deltas.get(answer.output_ids)
        if known is None:
            known = split_deltas(answer.output_ids, self.vocabulary)
            self.shapes.keep(self.shapes.deltas, answer.output_ids, known)
        return known

    def chunks(self, answer: Answer) -> Iterator[tuple[bytes, int]]:
        """Yield the events that carry text, each with the number of tokens that became visible with it."""
        key = (answer.output_ids, answer.logprobs if self.logprobs else None)
        known = self.shapes.choices.get(key)
        if known is None:
            known = tuple(self._choices(answer))
            self.shapes.keep(self.shapes.choices, key, known)
        head = b"data: " + encode(self._chunk([])).removesuffix(b"]}")
        for choice, tokens in known:
            yield head + choice, tokens

    def _choices(self, answer: Answer) -> Iterator[tuple[bytes, int]]:
        """Yield the part of each event that is the same whenever the answer is given."""
        position = 0
        for delta in self.deltas(answer):
            entries = self._entries(answer, position, len(delta.ids))
            position += len(delta.ids)
            if delta.text:
                choice = {
                    "index": 0,
                    "delta": {"role": "assistant", "content": delta.text},
                    "finish_reason": None,
                    "native_finish_reason": None,
                    "logprobs": entries,
                }
                yield encode(choice) + b"]}\n\n", len(delta.ids)

    def finish_chunk(self, answer: Answer, finish_reason: str | None = None) -> bytes:
        """Build the event that carries the finish reason, and the logprob of tokens that showed no text.

        Args:
            answer: as generated.
            finish_reason: another one than the answer's.
        """
        finish_reason = finish_reason or answer.finish_reason
        deltas = self.deltas(answer)
        silent = 0 if not deltas or deltas[-1].text else len(deltas[-1].ids)
        choice = {
            "index": 0,
            "delta": {"role": "assistant", "content": ""},
            "finish_reason": finish_reason,
            "native_finish_reason": finish_reason,
            "logprobs": self._entries(answer, len(answer.output_ids) - silent, silent) if silent else None,
        }
        return event(self._chunk([choice]))

    def usage_chunk(self, row: BookRow) -> bytes:
        """Build the event that carries the bill."""
        return event(self._chunk([]) | {"usage": usage(row)})

    def error_chunk(self, code: int, message: str, error_type: str) -> bytes:
        """Build the event that ends a stream in an error."""
        choice = {
            "index": 0,
            "delta": {"content": ""},
            "finish_reason": "error",
            "native_finish_reason": "error",
            "logprobs": None,
        }
        return event(self._chunk([choice]) | {"error": error_object(code, message, error_type=error_type)})

    def body(self, answer: Answer, row: BookRow) -> dict[str, Any]:
        """Build the body of a non-stream reply."""
        text = "".join(delta.text for delta in self.deltas(answer))
        choice = {
            "index": 0,
            "finish_reason": row.finish_reason,
            "native_finish_reason": row.finish_reason,
            "message": {"role": "assistant", "content": text, "refusal": None, "reasoning": None},
            "logprobs": self._entries(answer, 0, len(answer.output_ids)),
        }
        return self._envelope("chat.completion", [choice]) | {"usage": usage(row)}

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return self._envelope("chat.completion.chunk", choices)

    def _envelope(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.generation_id,
            "provider": self.endpoint.provider_name,
            "model": MODEL_SLUG,
            "object": kind,
            "created": self.created,
            "choices": choices,
        }

    def _entries(self, answer: Answer, start: int, count: int) -> dict[str, Any] | None:
        """Build logprob entries as vLLM does: one per sampled token, the stop token included with its literal text.

        Every entry has its own token's bytes, also inside a character (OpenAI's rule; vLLM leaves those empty).
        """
        if not self.logprobs:
            return None
        content = []
        for position in range(start, start + count):
            token = self.vocabulary.bytes_of(answer.output_ids[position])
            content.append(
                {
                    "token": token.decode("utf-8", "replace"),
                    "bytes": list(token),
                    "logprob": answer.logprobs[position],
                    "top_logprobs": [],
                }
            )
        return {"content": content, "refusal": None}


def usage(row: BookRow) -> dict[str, Any]:
    """Build the `usage` object of a billed generation."""
    return {
        "prompt_tokens": row.prompt_tokens,
        "completion_tokens": row.completion_tokens,
        "total_tokens": row.prompt_tokens + row.completion_tokens,
        "cost": money(row.cost_pico),
        "is_byok": False,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def pricing(endpoint: Endpoint) -> dict[str, Any]:
    """Build an endpoint's `pricing`: strings, USD per token."""
    return {
        "prompt": pico_to_usd_string(endpoint.prompt_pico),
        "completion": pico_to_usd_string(endpoint.completion_pico),
        "request": "0",
        "image": "0",
        "discount": 0,
    }


def models(window: Window) -> dict[str, Any]:
    """Build `GET /models`: its price is the first endpoint's."""
    model = {
        "id": MODEL_SLUG,
        "name": MODEL_NAME,
        "hugging_face_id": HUGGING_FACE_ID,
        "context_length": window.context_tokens,
        "pricing": pricing(ENDPOINTS[0]),
        "top_provider": {"context_length": window.context_tokens, "max_completion_tokens": window.completion_tokens},
        "supported_parameters": sorted({name for e in ENDPOINTS for name in e.supported_parameters}),
        "is_trainable_text": True,
    }
    return {"data": [model]}


def endpoints(offer: Sequence[Endpoint], window: Window) -> dict[str, Any]:
    """Build `GET /models/{author}/{slug}/endpoints`.

    `supports_streaming` is this provider's own field (absent elsewhere: true): one endpoint answers in one piece only.
    """
    rows = [
        {
            "name": f"{endpoint.provider_name} | {MODEL_SLUG}",
            "tag": endpoint.tag,
            "provider_name": endpoint.provider_name,
            "quantization": endpoint.quantization,
            "context_length": window.context_tokens,
            "max_completion_tokens": window.completion_tokens,
            "max_prompt_tokens": None,
            "pricing": pricing(endpoint),
            "supported_parameters": list(endpoint.supported_parameters),
            "supports_implicit_caching": False,
            "supports_streaming": endpoint.streams,
            "status": 0,
            "uptime_last_30m": 100,
        }
        for endpoint in offer
    ]
    return {"data": {"id": MODEL_SLUG, "name": MODEL_NAME, "endpoints": rows}}


def generation(row: BookRow) -> dict[str, Any]:
    """Build `GET /generation`."""
    names = {endpoint.tag: endpoint.provider_name for endpoint in ENDPOINTS}
    return {
        "data": {
            "id": row.id,
            "model": MODEL_SLUG,
            "provider_name": names.get(row.provider, row.provider),
            "total_cost": money(row.cost_pico),
            "usage": money(row.cost_pico),
            "is_byok": False,
            "streamed": row.streamed,
            "cancelled": False,
            "finish_reason": row.finish_reason,
            "native_finish_reason": row.finish_reason,
            "tokens_prompt": row.prompt_tokens,
            "tokens_completion": row.completion_tokens,
            "native_tokens_prompt": row.prompt_tokens,
            "native_tokens_completion": row.completion_tokens,
            "native_tokens_reasoning": 0,
            "native_tokens_cached": 0,
            "created_at": datetime.fromtimestamp(row.created_at, UTC).isoformat(),
        }
    }


def key(spent_pico: int, limit_pico: int | None) -> dict[str, Any]:
    """Build `GET /key`."""
    return {
        "data": {
            "label": "embedded",
            "limit": None if limit_pico is None else money(limit_pico),
            "limit_remaining": None if limit_pico is None else money(max(0, limit_pico - spent_pico)),
            "limit_reset": None,
            "usage": money(spent_pico),
            "is_free_tier": False,
            "include_byok_in_limit": False,
        }
    }


def credits_left(bought_pico: int, spent_pico: int) -> dict[str, Any]:
    """Build `GET /credits`."""
    return {"data": {"total_credits": money(bought_pico), "total_usage": money(spent_pico)}}


def books(spent_pico: int, rows: list[BookRow]) -> dict[str, Any]:
    """Build `GET /embedded/books`."""
    return {"spent_pico": spent_pico, "rows": rows}
