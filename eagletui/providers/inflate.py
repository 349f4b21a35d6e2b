"""Undo the compression of a body, bounded in size. We ask for none, but some relays compress all the same.

httpx would inflate a chunk whole, whatever it grows to: 16 KiB of zstd can hold half a gigabyte.
"""

import zlib
from collections.abc import AsyncIterator
from typing import Final

import httpx

from eagletui.providers.base import ProviderFailure

INFLATED_CODINGS: Final = ("gzip", "x-gzip", "deflate")
_GZIP_OR_ZLIB: Final = zlib.MAX_WBITS | 32
"""Let zlib tell the two headers apart."""


def is_coded(response: httpx.Response) -> bool:
    """Tell whether a body is compressed."""
    return response.headers.get("content-encoding", "identity").strip().lower() not in ("identity", "")


async def bounded_body(response: httpx.Response, limit_bytes: int) -> AsyncIterator[bytes]:
    """Yield the body of a response in pieces, its compression undone.

    Args:
        response: unread.
        limit_bytes: no more than this is yielded.

    Raises:
        ProviderFailure: more than the limit, a coding that cannot be undone, or damaged data.
    """
    coding = response.headers.get("content-encoding", "identity").strip().lower()
    inflater = zlib.decompressobj(_GZIP_OR_ZLIB) if coding in INFLATED_CODINGS else None
    if inflater is None and coding not in ("identity", ""):
        raise _unreadable(response, f"The reply is compressed as {coding[:40]!a}, which was not asked for.")
    room = limit_bytes
    assert isinstance(response.stream, httpx.AsyncByteStream)
    async for chunk in response.stream:
        if inflater is not None:
            try:
                chunk = inflater.decompress(chunk, room + 1)
            except zlib.error as error:
                raise _unreadable(response, f"The compressed reply is damaged ({error}).") from error
        room -= len(chunk)
        if room < 0:
            raise ProviderFailure(
                "too_large",
                f"The reply is larger than {limit_bytes / 2**20:.0f} MiB; the rest was not read.",
                http_status=response.status_code,
            )
        if chunk:
            yield chunk


def _unreadable(response: httpx.Response, sentence: str) -> ProviderFailure:
    return ProviderFailure("not_json", sentence, http_status=response.status_code)
