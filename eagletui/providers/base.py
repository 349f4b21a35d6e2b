"""What every provider offers the engine, and the values that cross that edge."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol

from eagletui.core.chat import Prompt
from eagletui.core.errors import ProviderError
from eagletui.core.lifecycle import PauseReason
from eagletui.core.money import Price
from eagletui.core.reasoning_rule import ReasoningRule
from eagletui.core.reply import Reply, Usage

Encoding = Literal["json", "sse"]

FailureKind = Literal[
    "connect",
    "disconnect",
    "body_cut",
    "first_event_timeout",
    "event_timeout",
    "total_timeout",
    "aborted",
    "bad_request",
    "unauthorized",
    "credit",
    "key_limit",
    "forbidden",
    "price",
    "no_endpoint",
    "moderation",
    "rate_limited",
    "overloaded",
    "unavailable",
    "server_error",
    "unexpected_status",
    "not_json",
    "too_large",
    "empty_choices",
    "error_in_reply",
    "incomplete",
]
"""Everything that can go wrong with one attempt. `connect` is the only transport failure that sent nothing."""

OnHeaders = Callable[[str | None, int], Awaitable[None]]
"""Awaited with the generation id and the HTTP status before the body is read."""


class ProviderFailure(ProviderError):
    """One attempt failed; says what that means for the money, the sample and the run."""

    def __init__(
        self,
        kind: FailureKind,
        detail: str,
        *,
        void: bool = False,
        retryable: bool = True,
        retry_after_s: float | None = None,
        http_status: int | None = None,
        pause: PauseReason | None = None,
        cost_pico_usd: int | None = None,
        usage: Usage | None = None,
        generation_id: str | None = None,
    ) -> None:
        """Keep what is known.

        Args:
            kind: the class of failure.
            detail: one sentence; the provider's words where it gave any.
            void: nothing was sent, or it was refused before any work: the attempt costs nothing.
            retryable: another attempt may succeed.
            retry_after_s: the wait the provider asked for.
            http_status: None when no status line arrived.
            pause: the run must pause for this reason.
            cost_pico_usd: what the failed attempt cost, where the broken reply says so.
            usage: what the broken reply says was used.
            generation_id: from the broken reply's body, where it had come so far.
        """
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.void = void
        self.retryable = retryable
        self.retry_after_s = retry_after_s
        self.http_status = http_status
        self.pause = pause
        self.cost_pico_usd = cost_pico_usd
        self.usage = usage
        self.generation_id = generation_id

    def __reduce__(self) -> tuple[object, ...]:
        return _failure_again, (self.__dict__ | {"detail": self.detail},)


def _failure_again(fields: dict[str, Any]) -> ProviderFailure:
    """Make a failure of another process again."""
    kind, detail = fields.pop("kind"), fields.pop("detail")
    return ProviderFailure(kind, detail, **fields)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long each part of a request may take."""

    connect_s: float
    """TCP and TLS."""
    first_event_s: float
    """Until the first event of a stream; keep-alive comments do not count."""
    event_s: float
    """Between two events of a stream; keep-alive comments do not count."""
    total_s: float
    """The whole request."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How an answer is drawn."""

    temperature: float
    top_p: float
    top_k: int | None = None
    """None: not sent."""
    seed: int | None = None
    """None: not sent."""
    reasoning: str = "default"
    """`default` sends nothing; `off`, an effort (`low`, `medium`, `high`, ...) or a number of tokens is sent."""

    @property
    def parameters(self) -> frozenset[str]:
        """Names of the optional request parameters this sends, as endpoints list them."""
        optional = {"top_k": self.top_k, "seed": self.seed, "reasoning": None if self.reasoning == "default" else 1}
        return frozenset({"temperature", "top_p", *(name for name, value in optional.items() if value is not None)})


def reasoning_field(reasoning: str) -> Mapping[str, object]:
    """Return how the router is asked to think.

    Args:
        reasoning: `default`, `off`, an effort, or a number of tokens.
    """
    if reasoning == "off":
        return {"reasoning": {"enabled": False}}
    if reasoning == "default":
        return {}
    return {"reasoning": {"max_tokens": int(reasoning)} if reasoning.isdecimal() else {"effort": reasoning}}


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One request for one answer."""

    prompt: Prompt
    model_id: str
    endpoint: str | None
    """Tag that pins the endpoint behind a router; None for a direct server."""
    sampling: Sampling
    max_tokens: int
    stream: bool
    logprobs: bool
    max_price: Price | None
    """Hard ceiling the router must respect; None for a direct server."""
    quantization: str | None = None
    """Of the endpoint; None: not stated."""
    variants: tuple[str, ...] = ()
    """Other endpoints that the tag names as well."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One place a request can be pinned to."""

    tag: str
    provider_name: str
    price: Price
    """The highest price a request can meet: base and every conditional override, cache writes and reasoning at their
    own rates where those are dearer; discounts ignored."""
    quantization: str | None
    max_completion_tokens: int | None
    """None: no limit stated."""
    supports_logprobs: bool
    supports_stream: bool
    parameters: frozenset[str] = frozenset()
    """Names of the request parameters it obeys; empty: not stated."""
    supports_ids: bool = False
    """Returns output token ids."""
    supports_template_kwargs: bool = False
    """Hands `chat_template_kwargs` on to the chat template."""
    context_tokens: int | None = None
    """Prompt and answer together; None: not stated."""
    max_prompt_tokens: int | None = None
    """None: no limit of its own stated."""
    status: int | None = None
    """The router's own: 0 is well, below 0 it is degraded; None: not stated."""
    uptime_percent: float | None = None
    """Of the last half hour."""
    variants: tuple[str, ...] = ()
    """Tags of other endpoints that this one's tag names as well: `deepinfra` also names `deepinfra/turbo`."""
    model_names: tuple[str, ...] = ()
    """How it calls the model, beside the name that is asked for."""
    price_source: Literal["endpoints", "config", "local"] = "endpoints"
    raw_json: str = "{}"
    """The provider's own record, for the ledger."""


@dataclass(frozen=True, slots=True)
class Stranger:
    """An answer of another endpoint than the one asked, or of another model."""

    label: str
    """What its answers are filed under: a tag on offer where the name is that of one alone, else the name."""
    provider_name: str
    is_other_model: bool


@dataclass(frozen=True, slots=True)
class RawReply:
    """A body as received, byte for byte."""

    encoding: Encoding
    body: bytes
    http_status: int
    generation_id: str | None
    """From the `X-Generation-Id` header."""
    started_at: float
    """Monotonic seconds, like the next three."""
    headers_at: float
    first_event_at: float | None
    ended_at: float
    cut: ProviderFailure | None = None
    """Why the body ended early; None when it came whole."""


@dataclass(frozen=True, slots=True)
class GenerationRecord:
    """What the provider's accounting says about one generation."""

    generation_id: str
    cost_pico_usd: int
    prompt_tokens: int | None
    """Native tokens."""
    completion_tokens: int | None
    """Native tokens."""
    provider_name: str | None


@dataclass(frozen=True, slots=True)
class KeyStatus:
    """What the provider says about the key in use."""

    usage_pico_usd: int
    """Spent with this key, ever."""
    limit_pico_usd: int | None
    """None: the key has no limit."""
    remaining_pico_usd: int | None
    limit_reset: str | None = None
    """`daily`, `weekly`, `monthly`; None: never."""
    expires_at: datetime | None = None
    is_free_tier: bool = False


class Provider(Protocol):
    """A chat API: `openrouter.py` and `openai_compatible.py`."""

    async def endpoints(self) -> list[Endpoint]:
        """Fetch the endpoints that may answer this run, with their prices.

        Raises:
            ProviderFailure: the list cannot be fetched.
            ConfigError: no endpoint fits the config, or one has no price.
        """
        ...

    async def send(self, request: ChatRequest, on_headers: OnHeaders) -> RawReply:
        """Send one request and receive its body.

        Raises:
            ProviderFailure: no usable body began to arrive.
        """
        ...

    def cost(self, reply: Reply, endpoint: Endpoint) -> int | None:
        """Return what a reply cost in picodollars, or None when only `generation` can tell."""
        ...

    def stranger(self, reply: Reply, endpoint: Endpoint) -> Stranger | None:
        """Tell who answered where it was not the endpoint asked, or not the model. None: it was, or nothing says so."""
        ...

    async def generation(self, generation_id: str) -> GenerationRecord | None:
        """Ask what one generation cost. None: not known yet, or this provider keeps no accounts.

        Raises:
            ProviderFailure: the question failed.
        """
        ...

    async def key(self) -> KeyStatus | None:
        """Ask what the key has spent. None: this provider keeps no accounts.

        Raises:
            ProviderFailure: the question failed.
        """
        ...

    async def reasoning(self) -> ReasoningRule | None:
        """Ask what the model's reasoning allows. None: nothing says so.

        Raises:
            ProviderFailure: the question failed.
        """
        ...

    async def balance(self) -> int | None:
        """Ask what credits the account has left, in picodollars. None: this key may not know.

        Raises:
            ProviderFailure: the question failed.
        """
        ...

    def use_key(self, key: str) -> None:
        """Send another API key from here on; requests under way keep theirs."""
        ...

    async def aclose(self) -> None:
        """Close every connection."""
        ...
