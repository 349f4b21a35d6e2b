"""A plain client of the embedded provider, written without the project's own."""

import json
from decimal import Decimal
from typing import Any, NamedTuple

import httpx

from tests.provider_fixture import ProviderHandle

NO_TLS = False
"""`verify` of plain http requests: loading certificates would take longer than the request."""
AUTH = {"Authorization": "Bearer test"}


class Streamed(NamedTuple):
    """What a stream brought."""

    generation_id: str
    lines: list[str]
    events: list[Any]
    """Decoded `data:` objects, without `[DONE]`; numbers with a point are decimals."""

    @property
    def texts(self) -> list[str]:
        """The non-empty pieces of content."""
        pieces = [choice["delta"].get("content", "") for event in self.events for choice in event["choices"]]
        return [piece for piece in pieces if piece]

    @property
    def usage(self) -> Any:
        """The usage of the last event that has one."""
        return next(event["usage"] for event in reversed(self.events) if "usage" in event)


def request_body(to: ProviderHandle, prompt: str = "Say hi.", **fields: Any) -> dict[str, Any]:
    """Build a request; `only` pins an endpoint."""
    only = fields.pop("only", None)
    body = {"model": to.model, "messages": [{"role": "user", "content": prompt}], "max_tokens": 120, **fields}
    return body if only is None else body | {"provider": {"only": [only]}}


def post(provider: ProviderHandle, body: object, headers: dict[str, str] = AUTH) -> httpx.Response:
    """Send a chat request that is answered in one piece."""
    return httpx.post(f"{provider.api_url}/chat/completions", json=body, headers=headers, timeout=60, verify=NO_TLS)


def ask(provider: ProviderHandle, prompt: str = "Say hi.", **fields: Any) -> Any:
    """Get a non-stream answer; numbers with a point are decimals."""
    response = post(provider, request_body(provider, prompt, **fields))
    assert response.status_code == 200, response.text
    return json.loads(response.text, parse_float=Decimal)


def stream(provider: ProviderHandle, prompt: str = "Say hi.", **fields: Any) -> Streamed:
    """Read a stream to its end."""
    body = request_body(provider, prompt, stream=True, **fields)
    url = f"{provider.api_url}/chat/completions"
    with httpx.stream("POST", url, json=body, headers=AUTH, timeout=60, verify=NO_TLS) as response:
        assert response.status_code == 200, response.read()
        lines = list(response.iter_lines())
        generation_id = response.headers["X-Generation-Id"]
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    events = [json.loads(item, parse_float=Decimal) for item in data if item != "[DONE]"]
    return Streamed(generation_id, lines, events)
