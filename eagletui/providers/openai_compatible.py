"""vLLM, SGLang and llama.cpp: a direct server, no accounts, exact ids each in its own way (`id_ways`).

The price is 0 unless the person types one; the money path is the same as for a router.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from eagletui.core.chat import Message, Prompt
from eagletui.core.errors import ConfigError, ReplyError
from eagletui.core.money import FREE, Price, hold_bound
from eagletui.core.reasoning_rule import ReasoningRule
from eagletui.core.reply import Reply
from eagletui.core.text import clean_line
from eagletui.providers.base import (
    ChatRequest,
    Endpoint,
    FailureKind,
    GenerationRecord,
    KeyStatus,
    OnHeaders,
    ProviderFailure,
    RawReply,
    Sampling,
    Stranger,
    Timeouts,
)
from eagletui.providers.body import chat_body, encode
from eagletui.providers.decoding import decode_as
from eagletui.providers.id_ways import PROBE_TOKENS, WAYS, ServerKind, Way
from eagletui.providers.reading import read_reply
from eagletui.providers.transport import HttpTransport

BASE_URLS: Final[Mapping[ServerKind, str]] = {
    "vllm": "http://127.0.0.1:8000/v1",
    "sglang": "http://127.0.0.1:30000/v1",
    "llama.cpp": "http://127.0.0.1:8080/v1",
}
"""Where each listens by default."""

_LOOKS_ON: Final[tuple[FailureKind, ...]] = ("bad_request", "no_endpoint", "unexpected_status", "server_error")
"""Refusals of a probe after which the next way is tried: servers answer unknown fields with any of these."""


class _Model(msgspec.Struct):
    id: str


class _ModelList(msgspec.Struct):
    data: list[_Model]


async def _ignore_headers(generation_id: str | None, http_status: int) -> None:
    """A probe has no attempt to note them for."""


def _no_kwargs(reasoning: str) -> Mapping[str, Any]:
    return {}


class OpenAiCompatible:
    """One server, one endpoint."""

    def __init__(
        self,
        kind: ServerKind,
        base_url: str | None,
        *,
        model_id: str,
        key: str,
        timeouts: Timeouts,
        typed_price: Price | None,
        kwargs_for: Callable[[str], Mapping[str, Any]] = _no_kwargs,
    ) -> None:
        """Prepare a client; nothing is sent yet.

        Args:
            kind: which server.
            base_url: up to and including `/v1`; None for the server's default.
            model_id: as the server names it.
            key: the API key, or "".
            timeouts: limits of each part of a request.
            typed_price: the person's price; None: free.
            kwargs_for: variables for the server's chat template, by the `reasoning` of a request.
        """
        self._kind = kind
        self._model_id = model_id
        self._way: Way | None = None
        self._price = typed_price or FREE
        self._kwargs_for = kwargs_for
        self._transport = HttpTransport(base_url or BASE_URLS[kind], key=key, timeouts=timeouts, headers={})

    def use_key(self, key: str) -> None:
        """Send another API key from here on."""
        self._transport.use_key(key)

    async def aclose(self) -> None:
        """Close every connection."""
        await self._transport.aclose()

    async def endpoints(self) -> list[Endpoint]:
        """Return the server as the only endpoint, once it answers; the first time, find out how it gives ids."""
        reply = await self._transport.get("/models")
        if reply.status != 200:
            raise self._transport.failure(reply)
        self._require_model(reply.body)
        if self._way is None:
            self._way = await self._probe()
        return [
            Endpoint(
                tag=self._kind,
                provider_name=self._kind,
                price=self._price,
                quantization=None,
                max_completion_tokens=None,
                supports_logprobs=self._way.proof != "none",
                supports_stream=True,
                supports_ids=self._way.proof == "ids",
                price_source="local" if self._price.is_free else "config",
                raw_json=encode({"ids": self._way.name}).decode(),
            )
        ]

    def _require_model(self, body: bytes) -> None:
        try:
            served = [model.id for model in decode_as(body, _ModelList).data]
        except ReplyError:
            return  # a server that lists its models otherwise says in the probe whether it knows this one
        if served and self._model_id not in served:
            raise ConfigError(
                f"[model] id: found {clean_line(self._model_id, 80)}, expected a name that the {self._kind} server at "
                f"[provider] base_url serves: {clean_line(', '.join(served), 300)}."
            )

    async def _probe(self) -> Way:
        """Ask for a few tokens in each way, best first, and return the first that the server knows.

        Raises:
            ProviderFailure: the server cannot be reached, or refuses even a plain request.
        """
        for way in WAYS[self._kind]:
            try:
                reply = read_reply(await self._ask(way))
            except ProviderFailure as failure:
                if failure.kind not in _LOOKS_ON or way is WAYS[self._kind][-1]:
                    raise
                continue
            if way.is_known(reply):
                return way
        raise ProviderFailure("not_json", f"The {self._kind} server gives no readable answer.")  # pragma: no cover

    async def _ask(self, way: Way) -> RawReply:
        request = ChatRequest(
            prompt=Prompt((Message("user", "Hi"),)),
            model_id=self._model_id,
            endpoint=None,
            sampling=Sampling(temperature=0.0, top_p=1.0),
            max_tokens=PROBE_TOKENS,
            stream=False,
            logprobs=False,
            max_price=None,
        )
        body = encode(chat_body(request) | dict(way.fields))
        return await self._transport.chat(request, body, _ignore_headers)

    async def send(self, request: ChatRequest, on_headers: OnHeaders) -> RawReply:
        """Send one request and receive its body."""
        return await self._transport.chat(request, encode(self.request_body(request)), on_headers)

    def request_body(self, request: ChatRequest) -> dict[str, Any]:
        """Return the JSON body of a request."""
        body = chat_body(request)
        if self._way is not None and (not request.stream or request.logprobs):
            body.update(self._way.fields)
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

    def stranger(self, reply: Reply, endpoint: Endpoint) -> Stranger | None:
        """Return None: nobody else stands behind such a server."""
        return None

    async def generation(self, generation_id: str) -> GenerationRecord | None:
        """Return None: such a server keeps no accounts."""
        return None

    async def key(self) -> KeyStatus | None:
        """Return None: such a server keeps no accounts."""
        return None

    async def reasoning(self) -> ReasoningRule | None:
        """Return None: such a server does not say."""
        return None

    async def balance(self) -> int | None:
        """Return None: such a server keeps no accounts."""
        return None
