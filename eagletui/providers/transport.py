"""Carry requests over HTTP: httpx's API on aiohttp's transport, bodies kept byte for byte.

Stock httpx cannot hold 800 streams; httpx-aiohttp costs 38 microseconds an event against its 240.
"""

import asyncio
import functools
import ssl
import time
from dataclasses import dataclass, replace
from typing import Final

import aiohttp
import httpx
import httpx_aiohttp

from eagletui.core.text import clean_line
from eagletui.providers import errors
from eagletui.providers.base import ChatRequest, FailureKind, OnHeaders, ProviderFailure, RawReply, Timeouts
from eagletui.providers.body import reply_limit_bytes
from eagletui.providers.inflate import bounded_body
from eagletui.providers.key_scrub import KeyScrub
from eagletui.providers.receiving import Receiver, Watchdog

KEEP_ALIVE_S: Final = 4.0
"""Idle connections are closed before common servers (5 s) close them under a request on its way."""
ERROR_BODY_BYTES: Final = 65_536
ERROR_BODY_S: Final = 10.0
"""The status alone decides; its explanation is not waited for longer."""
GET_TIMEOUT_S: Final = 30.0
GET_BYTES: Final = 32 * 2**20
"""The largest list of models or endpoints is a tenth of this."""


@dataclass(frozen=True, slots=True)
class HttpReply:
    """A whole reply to a GET."""

    status: int
    headers: httpx.Headers
    body: bytes


@functools.cache
def _url(text: str) -> httpx.URL:
    return httpx.URL(text)


@functools.cache
def _authorities() -> ssl.SSLContext:
    return httpx.create_ssl_context()


def _trust(base_url: str) -> ssl.SSLContext:
    """Read the known authorities where they are needed; a server without TLS gets a context that trusts nobody."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if base_url.startswith("http://") else _authorities()


class HttpTransport:
    """One connection pool to one provider."""

    def __init__(self, base_url: str, *, key: str, timeouts: Timeouts, headers: dict[str, str]) -> None:
        """Prepare a client; nothing is opened yet.

        Args:
            base_url: up to and including the version part, without a trailing slash.
            key: the API key, or "" for a server without one. It is sent and never shown.
            timeouts: limits of each part of a request.
            headers: sent with every request.
        """
        self._base_url = base_url.rstrip("/")
        self._scrub = KeyScrub()
        self._timeouts = timeouts
        verify = _trust(self._base_url)
        timeout = httpx.Timeout(None, connect=timeouts.connect_s)
        self._connections = httpx_aiohttp.AiohttpTransport(
            verify=verify,
            client=lambda: aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ssl=verify, keepalive_timeout=KEEP_ALIVE_S),
                cookie_jar=aiohttp.DummyCookieJar(),
            ),
        )
        self._client = httpx.AsyncClient(
            transport=self._connections,
            timeout=timeout,
            headers={"Accept-Encoding": "identity", "User-Agent": "eagletui", **headers},
            trust_env=False,
        )
        self._extensions = {"timeout": timeout.as_dict()}
        self.use_key(key)

    def __repr__(self) -> str:
        return f"HttpTransport({self._base_url!r})"

    def use_key(self, key: str) -> None:
        """Send another key from here on; requests under way keep theirs.

        Args:
            key: "" for a server without one. It is sent and never shown.
        """
        self._client.headers.pop("Authorization", None)
        if key:
            self._client.headers["Authorization"] = f"Bearer {key}"
        self._scrub.add(key)
        self._post_headers = [*self._client.headers.multi_items(), ("Content-Type", "application/json")]

    async def aclose(self) -> None:
        """Close every connection."""
        await self._client.aclose()

    async def get(self, path: str, params: dict[str, str] | None = None) -> HttpReply:
        """Fetch a small JSON document.

        Raises:
            ProviderFailure: no reply; an HTTP error status is a reply.
        """
        body = bytearray()
        try:
            async with asyncio.timeout(GET_TIMEOUT_S):
                async with self._client.stream("GET", self._base_url + path, params=params) as reply:
                    async for chunk in bounded_body(reply, GET_BYTES):
                        body += chunk
        except TimeoutError as error:
            raise ProviderFailure("total_timeout", f"GET {path} had no answer in {GET_TIMEOUT_S:.0f} s.") from error
        except (httpx.HTTPError, httpx.InvalidURL, aiohttp.ClientError) as error:
            raise errors.from_transport(error, headers_seen=False, hide=self._scrub.words) from None
        return HttpReply(reply.status_code, reply.headers, self._scrub.body(bytes(body)))

    def failure(self, reply: HttpReply) -> ProviderFailure:
        """Map an error answer to a GET."""
        return errors.from_status(reply.status, reply.headers, reply.body, self._scrub.words)

    async def post(self, path: str, body: bytes, *, stream: bool, limit_bytes: int, on_headers: OnHeaders) -> RawReply:
        """Send one chat request and receive its body.

        Args:
            path: appended to the base URL.
            body: the JSON body.
            stream: a stream was asked for, so its first event has a deadline of its own.
            limit_bytes: a larger reply is no answer.
            on_headers: awaited before the body is read.

        Returns:
            The reply, with `cut` set where its body ended early.

        Raises:
            ProviderFailure: no reply with status 200 began.
        """
        loop = asyncio.get_running_loop()
        started_at = time.monotonic()
        total = loop.time() + self._timeouts.total_s
        first_event = min(total, loop.time() + self._timeouts.first_event_s) if stream else total
        response: httpx.Response | None = None
        receiver: Receiver | None = None
        try:
            request = httpx.Request(
                "POST",
                _url(self._base_url + path),
                headers=self._post_headers,
                content=body,
                extensions=self._extensions,
            )
            async with Watchdog(first_event) as watchdog:
                # The client's own way knows redirects, cookies and log-ins, which cost as much as the request itself.
                response = await self._connections.handle_async_request(request)
                generation_id = self._generation_id(response.headers)
                await on_headers(generation_id, response.status_code)
                if response.status_code != 200:
                    raise await self._refusal(response)
                receiver = Receiver(
                    response, watchdog, self._timeouts, generation_id, started_at, total, self._scrub.words
                )
                await receiver.receive(limit_bytes)
        except TimeoutError:
            failure = self._timed_out(loop.time() >= total, stream, receiver)
            if receiver is None:
                raise failure from None
            return self._reply(receiver, None if receiver.done else failure)
        except (httpx.HTTPError, httpx.InvalidURL, aiohttp.ClientError) as error:
            failure = errors.from_transport(error, headers_seen=response is not None, hide=self._scrub.words)
            if receiver is None:
                raise failure from None
            return self._reply(receiver, None if receiver.done else failure)
        finally:
            if response is not None:
                await _close(response)
        return self._reply(receiver, None)

    async def chat(self, request: ChatRequest, body: bytes, on_headers: OnHeaders) -> RawReply:
        """Send a request for an answer in the body that its provider gave it; see `post`."""
        return await self.post(
            "/chat/completions",
            body,
            stream=request.stream,
            limit_bytes=reply_limit_bytes(request),
            on_headers=on_headers,
        )

    def _reply(self, receiver: Receiver, cut: ProviderFailure | None) -> RawReply:
        reply = receiver.reply(cut)
        return replace(reply, body=self._scrub.body(reply.body, is_cut=cut is not None))

    def _generation_id(self, headers: httpx.Headers) -> str | None:
        value = headers.get("x-generation-id")
        return clean_line(self._scrub.words(value), 200) if value else None

    async def _refusal(self, response: httpx.Response) -> ProviderFailure:
        body, cut = bytearray(), b""
        try:
            async with asyncio.timeout(ERROR_BODY_S):
                async for chunk in bounded_body(response, ERROR_BODY_BYTES):
                    body += chunk
        except (TimeoutError, httpx.HTTPError, aiohttp.ClientError, ProviderFailure):
            cut = b" (the explanation was cut)"
        kept = self._scrub.body(bytes(body), is_cut=bool(cut)) + cut
        return errors.from_status(response.status_code, response.headers, kept, self._scrub.words)

    def _timed_out(self, total: bool, stream: bool, receiver: Receiver | None) -> ProviderFailure:
        kind: FailureKind
        if total or not stream:
            kind, limit_s, what = "total_timeout", self._timeouts.total_s, "No whole reply"
        elif receiver is None or receiver.first_event_at is None:
            kind, limit_s, what = "first_event_timeout", self._timeouts.first_event_s, "No first event"
        else:
            kind, limit_s, what = "event_timeout", self._timeouts.event_s, "No further event"
        return ProviderFailure(kind, f"{what} within {limit_s:g} s.", http_status=None if receiver is None else 200)


async def _close(response: httpx.Response) -> None:
    try:
        await response.aclose()
    except (httpx.HTTPError, aiohttp.ClientError):
        return  # The body was judged already; closing a broken connection has nothing to add.
