"""vLLM, SGLang and llama.cpp: a direct server, no accounts, exact ids each in its own way.

The price is 0 unless the person types one; the money path is the same as for a router.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from eagletui.core.money import FREE, Price, hold_bound
from eagletui.core.reply import Reply
from eagletui.providers.base import (
    ChatRequest,
    Endpoint,
    GenerationRecord,
    KeyStatus,
    OnHeaders,
    RawReply,
    Timeouts,
)
from eagletui.providers.body import chat_body, encode, reply_limit_bytes
from eagletui.providers.transport import HttpTransport

ServerKind = Literal["vllm", "sglang", "llama.cpp"]


@dataclass(frozen=True, slots=True)
class ServerRow:
    """How one server is asked for exact ids."""

    base_url: str
    """Where it listens by default."""
    fields: dict[str, Any]
    """Added to every request."""


SERVERS: Final[dict[ServerKind, ServerRow]] = {
    "vllm": ServerRow("http://127.0.0.1:8000/v1", {"return_token_ids": True}),
    "sglang": ServerRow("http://127.0.0.1:30000/v1", {"return_token_ids": True}),
    "llama.cpp": ServerRow("http://127.0.0.1:8080/v1", {"return_tokens": True, "verbose": True}),
}
"""All three give ids in non-stream replies only, or most surely there (vLLM's parsers dropped ids from streams)."""


def _no_kwargs(reasoning: str) -> Mapping[str, Any]:
    return {}


class OpenAiCompatible:
    """One server, one endpoint."""

    def __init__(
        self,
        kind: ServerKind,
        base_url: str | None,
        *,
        key: str,
        timeouts: Timeouts,
        typed_price: Price | None,
        kwargs_for: Callable[[str], Mapping[str, Any]] = _no_kwargs,
    ) -> None:
        """Prepare a client; nothing is sent yet.

        Args:
            kind: which server.
            base_url: up to and including `/v1`; None for the server's default.
            key: the API key, or "".
            timeouts: limits of each part of a request.
            typed_price: the person's price; None: free.
            kwargs_for: variables for the server's chat template, by the `reasoning` of a request.
        """
        self._kind = kind
        self._row = SERVERS[kind]
        self._price = typed_price or FREE
        self._kwargs_for = kwargs_for
        self._transport = HttpTransport(base_url or self._row.base_url, key=key, timeouts=timeouts, headers={})

    async def aclose(self) -> None:
        """Close every connection."""
        await self._transport.aclose()

    async def endpoints(self) -> list[Endpoint]:
        """Return the server as the only endpoint, once it answers."""
        reply = await self._transport.get("/models")
        if reply.status != 200:
            raise self._transport.failure(reply)
        return [
            Endpoint(
                tag=self._kind,
                provider_name=self._kind,
                price=self._price,
                quantization=None,
                max_completion_tokens=None,
                supports_logprobs=True,
                supports_stream=True,
                supports_ids=True,
                price_source="local" if self._price.is_free else "config",
            )
        ]

    async def send(self, request: ChatRequest, on_headers: OnHeaders) -> RawReply:
        """Send one request and receive its body."""
        body = encode(self.request_body(request))
        return await self._transport.post(
            "/chat/completions",
            body,
            stream=request.stream,
            limit_bytes=reply_limit_bytes(request),
            on_headers=on_headers,
        )

    def request_body(self, request: ChatRequest) -> dict[str, Any]:
        """Return the JSON body of a request."""
        body = chat_body(request)
        if not request.stream:
            body.update(self._row.fields)
        kwargs = self._kwargs_for(request.sampling.reasoning)
        if kwargs:
            body["chat_template_kwargs"] = dict(kwargs)
        return body

    def cost(self, reply: Reply, endpoint: Endpoint) -> int | None:
        """Return tokens times the typed price: such a server states no cost."""
        if endpoint.price.is_free:
            return 0
        usage = reply.usage
        if usage is None or usage.prompt_tokens is None or usage.completion_tokens is None:
            return None
        return hold_bound(usage.prompt_tokens, usage.completion_tokens, endpoint.price)

    async def generation(self, generation_id: str) -> GenerationRecord | None:
        """Return None: such a server keeps no accounts."""
        return None

    async def key(self) -> KeyStatus | None:
        """Return None: such a server keeps no accounts."""
        return None
