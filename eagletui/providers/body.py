"""The part of a chat request that every OpenAI-shaped server shares."""

from typing import Any, Final

import msgspec

from eagletui.core.chat import Message
from eagletui.providers.base import ChatRequest

BASE_REPLY_BYTES: Final = 8 * 2**20
"""Room for what a server sends beside the answer, such as the prompt's ids."""
TOKEN_BYTES: Final = 4096
"""An event with one token, its logprob and a router's envelope takes about 700."""

_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")


def chat_body(request: ChatRequest) -> dict[str, Any]:
    """Return the common fields; providers add their own."""
    sampling = request.sampling
    body: dict[str, Any] = {
        "model": request.model_id,
        "messages": [_message(message) for message in request.prompt.messages],
        "max_tokens": request.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "stream": request.stream,
    }
    if sampling.top_k is not None:
        body["top_k"] = sampling.top_k
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    if request.logprobs:
        body["logprobs"] = True
    if request.stream:
        body["stream_options"] = {"include_usage": True}
    if request.prompt.tools_json is not None:
        body["tools"] = msgspec.Raw(request.prompt.tools_json.encode())
    return body


def reply_limit_bytes(request: ChatRequest) -> int:
    """Return how large a reply can be; a larger one is no answer to the request."""
    return BASE_REPLY_BYTES + request.max_tokens * TOKEN_BYTES


def encode(body: dict[str, Any]) -> bytes:
    """Write a body as JSON; decimals become exact numbers."""
    return _ENCODER.encode(body)


def _message(message: Message) -> dict[str, Any]:
    fields: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning is not None:
        fields["reasoning"] = message.reasoning
    if message.tool_calls:
        fields["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        fields["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        fields["name"] = message.name
    return fields
