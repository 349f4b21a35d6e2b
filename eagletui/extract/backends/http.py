"""Talk to a model server over HTTP: requests, decoded answers, and what their failures mean."""

from typing import Any, Final, TypeVar

import httpx
import msgspec

from eagletui.core.text import clean_line
from eagletui.extract.backends.refusals import Unusable
from eagletui.extract.backends.states_server import Unanswered, Unreachable

TIMEOUT_S: Final = 600.0
"""A long prompt behind others takes minutes."""

_CONNECT_S: Final = 10.0
_SHOWN: Final = 300

T = TypeVar("T")


class ServerClient:
    """One server's address. Used from several threads at once."""

    def __init__(self, url: str, *, timeout_s: float = TIMEOUT_S) -> None:
        """Take an address; nothing is sent yet.

        Args:
            url: up to the port; a `/v1` behind it is left out.
            timeout_s: for a whole answer.
        """
        self.url = url.rstrip("/").removesuffix("/v1")
        self._client = httpx.Client(
            base_url=self.url,
            timeout=httpx.Timeout(timeout_s, connect=_CONNECT_S),
            trust_env=False,
            # Reading the list of authorities takes 20 ms, and nothing but https needs it; no redirect is followed.
            verify=not self.url.lower().startswith("http:"),
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def get(self, path: str, kind: type[T]) -> T | None:
        """Ask for a description of the server; None where it has none at that path.

        Raises:
            Unreachable: there is no server now.
            Unusable: it does not tell us, or there can be none at that address.
        """
        try:
            response = self._client.get(path)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            passes = isinstance(error, httpx.TransportError) and not isinstance(error, httpx.UnsupportedProtocol)
            kind_of = Unreachable if passes else Unusable
            raise kind_of(f"No server answers at {clean_line(self.url, 120)}: {_said(error)}") from error
        if response.status_code in (401, 403):
            raise self._refused(response)
        if response.status_code in _AWAY:
            raise Unreachable(f"The server answered {response.status_code}: {clean_line(response.text, _SHOWN)}")
        if response.status_code != 200:
            return None
        try:
            return (
                msgspec.convert(response.text, kind)
                if kind is str
                else msgspec.json.decode(response.content, type=kind)
            )
        except (msgspec.DecodeError, msgspec.ValidationError):
            return None

    def post(self, path: str, body: dict[str, Any], kind: type[T]) -> T:
        """Send a request.

        Raises:
            Unreachable: there is no server now.
            Unanswered: it failed in a way that may pass.
            Unusable: the server does not know such requests.
        """
        try:
            response = self._client.post(path, content=msgspec.json.encode(body), headers=_JSON)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise Unreachable(f"No server answers at {clean_line(self.url, 120)}: {_said(error)}.") from error
        except httpx.HTTPError as error:
            raise Unanswered(f"The request to {self.url} failed: {_said(error)}.") from error
        if response.status_code in (401, 403, 404, 405):
            raise self._refused(response)
        if response.status_code != 200:
            said = f"The server answered {response.status_code}: {clean_line(response.text, _SHOWN)}"
            raise Unreachable(said) if response.status_code in _AWAY else Unanswered(said)
        try:
            return msgspec.json.decode(response.content, type=kind)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise Unanswered(f"The server's answer cannot be read: {clean_line(str(error), _SHOWN)}.") from error

    def _refused(self, response: httpx.Response) -> Unusable:
        said = clean_line(response.text, _SHOWN)
        return Unusable(f"{self.url} answered {response.status_code} to {response.request.url.path}: {said}")


_AWAY: Final = (502, 503, 504)
"""What a proxy says of a server behind it that is being started."""

_JSON: Final = {"Content-Type": "application/json"}


def _said(error: Exception) -> str:
    return clean_line(str(error), _SHOWN) or type(error).__name__
