"""API keys that a server repeats: they stay out of what is kept and told."""

import pytest

from eagletui.providers.base import ProviderFailure, Timeouts
from eagletui.providers.transport import HttpTransport
from tests.providers.scripted_server import Act, Exchange, scripted_server

KEY = "sk-marker-7c1e"
LONG_KEY = "sk-or-v1-" + "0123456789abcdef" * 4
EVENT = b'data: {"choices":[]}\n\n'
TIMEOUTS = Timeouts(connect_s=5.0, first_event_s=5.0, event_s=5.0, total_s=10.0)
LIMIT = 65_536


async def _failure_with(key: str, act: Act) -> ProviderFailure:
    async with scripted_server(act) as server:
        transport = HttpTransport(server.base_url, key=key, timeouts=TIMEOUTS, headers={})
        try:
            with pytest.raises(ProviderFailure) as caught:
                await transport.post("/chat", b"{}", stream=True, limit_bytes=LIMIT, on_headers=_ignore)
        finally:
            await transport.aclose()
    return caught.value


async def _ignore(generation_id: str | None, status: int) -> None: ...


async def test_a_key_repeated_by_the_server_is_not_repeated_by_us() -> None:
    async def act(exchange: Exchange) -> None:
        assert f"authorization: bearer {KEY}" in exchange.head.lower()
        await exchange.reply(401, f'{{"error":{{"message":"Bad key {KEY}","code":401}}}}'.encode())

    failure = await _failure_with(KEY, act)
    assert (failure.kind, failure.pause) == ("unauthorized", "key_limit")
    assert KEY not in failure.detail
    assert KEY not in str(failure)
    assert "[key]" in failure.detail


async def test_a_key_as_short_as_a_word_goes_where_it_stands_as_a_key_and_stays_inside_words() -> None:
    async def act(exchange: Exchange) -> None:
        assert "authorization: bearer any" in exchange.head.lower()
        words = (
            "Too many requests with any key. Authorization: Bearer any; api_key='any', incorrect API key provided: any."
        )
        await exchange.reply(429, words.encode())

    failure = await _failure_with("any", act)
    assert failure.detail == (
        "HTTP 429: Too many requests with any key. Authorization: Bearer [key]; api_key='[key]', "
        "incorrect API key provided: [key]."
    )


@pytest.mark.parametrize(
    ("status", "before", "media_type"),
    [
        (401, '{"error":{"message":"' + "Bad key. " * 29, "application/json"),
        (401, "Bad key. " * 30, "text/plain"),
        (200, "<html>" + "Busy. " * 15, "text/html"),
    ],
    ids=("an explanation", "plain text", "a web page"),
)
async def test_a_key_at_the_place_where_words_are_cut_leaves_no_part_of_it(
    status: int, before: str, media_type: str
) -> None:
    after = '","code":401}}' if before.startswith("{") else ""

    async def act(exchange: Exchange) -> None:
        await exchange.reply(status, f"{before}{LONG_KEY}{after}".encode(), {"Content-Type": media_type})

    failure = await _failure_with(LONG_KEY, act)
    words = failure.detail + repr(failure.args)
    assert LONG_KEY[9:13] not in words
    assert "[key]" in words


async def test_another_key_is_sent_and_both_are_kept_out_of_words() -> None:
    sent: list[str] = []

    async def act(exchange: Exchange) -> None:
        sent.extend(line for line in exchange.head.split("\r\n") if line.lower().startswith("authorization"))
        await exchange.reply(401, f"{KEY} {LONG_KEY}".encode())

    async with scripted_server(act) as server:
        transport = HttpTransport(server.base_url, key=KEY, timeouts=TIMEOUTS, headers={})
        try:
            await transport.get("/key")
            transport.use_key(LONG_KEY)
            await transport.get("/key")
            with pytest.raises(ProviderFailure, match=r"HTTP 401: \[key\] \[key\]$"):
                await transport.post("/chat", b"{}", stream=False, limit_bytes=LIMIT, on_headers=_ignore)
            transport.use_key("")
            await transport.get("/key")
        finally:
            await transport.aclose()
    assert [line.split("Bearer ")[1] for line in sent] == [KEY, LONG_KEY, LONG_KEY]


@pytest.mark.parametrize("length", [20, 40, len(LONG_KEY) - 1])
async def test_an_explanation_that_breaks_off_inside_the_key_leaves_no_part_of_it(length: int) -> None:
    async def act(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 401 X\r\nContent-Length: 4000\r\n\r\nBad key " + LONG_KEY[:length].encode())
        exchange.close()

    failure = await _failure_with(LONG_KEY, act)
    words = failure.detail + repr(failure.args)
    assert LONG_KEY[9:13] not in words
    assert "was cut" in words


async def test_a_reply_that_breaks_off_inside_the_key_keeps_no_part_of_it() -> None:
    async def act(exchange: Exchange) -> None:
        await exchange.open_stream()
        await exchange.chunk(EVENT + b"data: " + LONG_KEY[:40].encode())
        exchange.close()

    async with scripted_server(act) as server:
        transport = HttpTransport(server.base_url, key=LONG_KEY, timeouts=TIMEOUTS, headers={})
        try:
            raw = await transport.post("/chat", b"{}", stream=True, limit_bytes=LIMIT, on_headers=_ignore)
        finally:
            await transport.aclose()
    assert raw.cut is not None
    assert raw.body == EVENT + b"data: [key]"
