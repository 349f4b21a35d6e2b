"""Read a chat completion request; refuse what the API would refuse."""

from typing import Any, Literal

import msgspec

from eagletui.embedded.market import DEMO_WINDOW, MAX_COMPLETION_TOKENS, MODEL_SLUG, ProviderRules, Window


class AskError(Exception):
    """The request is refused before anything is generated.

    Args:
        message: one sentence.
        status: the HTTP status.
        error_type: OpenRouter's `metadata.error_type`.
        availability: OpenRouter's `availability.code` where the refusal is about routing.
    """

    def __init__(
        self, message: str, *, status: int = 400, error_type: str = "invalid_request", availability: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.error_type = error_type
        self.availability = availability


class _Part(msgspec.Struct, frozen=True):
    type: Literal["text"]
    text: str


class AskMessage(msgspec.Struct, frozen=True):
    """One turn of the conversation as sent."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | tuple[_Part, ...] | None = None

    @property
    def text(self) -> str:
        """The turn's text; parts are joined."""
        if isinstance(self.content, tuple):
            return "".join(part.text for part in self.content)
        return self.content or ""


class Ask(msgspec.Struct, frozen=True):
    """A chat completion request. Parameters not named here are ignored, as OpenRouter ignores unsupported ones."""

    model: str
    messages: tuple[AskMessage, ...]
    stream: bool = False
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    logprobs: bool = False
    top_logprobs: int | None = None
    provider: ProviderRules = ProviderRules()

    @property
    def token_limit(self) -> int:
        """The most tokens the answer may have."""
        asked = self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens
        return MAX_COMPLETION_TOKENS if asked is None else asked

    @property
    def parameters(self) -> frozenset[str]:
        """Names of the optional parameters this request sets, as `supported_parameters` names them."""
        named: dict[str, Any] = {
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "seed": self.seed,
            "logprobs": self.logprobs or None,
            "top_logprobs": self.top_logprobs,
        }
        return frozenset(name for name, value in named.items() if value is not None)


def read_ask(body: bytes, window: Window = DEMO_WINDOW) -> Ask:
    """Decode and check a request body.

    Args:
        body: as received.
        window: an answer is cut to what it allows.

    Raises:
        AskError: with the status and sentence to answer.
    """
    try:
        ask = msgspec.json.decode(body, type=Ask)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise AskError(f"Invalid request: {error}") from error
    if ask.model != MODEL_SLUG:
        raise AskError(
            f"{ask.model} is not a valid model ID", error_type="model_not_found", availability="model_not_found"
        )
    if not ask.messages:
        raise AskError("Input must have at least 1 message.")
    for limit in (ask.max_tokens, ask.max_completion_tokens):
        if limit is not None and limit < 1:
            raise AskError(f"max_tokens must be at least 1, got {limit}.")
    if ask.temperature is not None and not 0 <= ask.temperature <= 2:
        raise AskError(f"temperature must be between 0 and 2, got {ask.temperature}.")
    if ask.top_p is not None and not 0 < ask.top_p <= 1:
        raise AskError(f"top_p must be above 0 and at most 1, got {ask.top_p}.")
    asked = [limit for limit in (ask.max_completion_tokens, ask.max_tokens) if limit is not None]
    limit = min([*asked[:1], window.completion_tokens])
    return msgspec.structs.replace(ask, max_completion_tokens=limit)
