"""What each way a connection can end means for the money, on real sockets."""

import asyncio
import socket
import ssl
import struct
import subprocess
from pathlib import Path

import pytest

from eagletui.providers import receiving
from eagletui.providers.base import ProviderFailure, RawReply, Timeouts
from eagletui.providers.transport import HttpTransport
from tests.providers.scripted_server import Exchange, free_port, scripted_server

TIMEOUTS = Timeouts(connect_s=5.0, first_event_s=5.0, event_s=5.0, total_s=10.0)
KEY = "sk-marker-7c1e"
EVENT = b'data: {"choices":[]}\n\n'
EVENT_CHUNK = f"{len(EVENT):x}\r\n".encode() + EVENT + b"\r\n"
DONE = b"data: [DONE]\n\n"
LIMIT = 65_536


async def post(
    base_url: str,
    *,
    stream: bool = True,
    timeouts: Timeouts = TIMEOUTS,
    seen: list[tuple[str | None, int]] | None = None,
) -> RawReply:
    async def on_headers(generation_id: str | None, status: int) -> None:
        if seen is not None:
            seen.append((generation_id, status))

    transport = HttpTransport(base_url, key=KEY, timeouts=timeouts, headers={})
    try:
        return await transport.post("/chat/completions", b"{}", stream=stream, limit_bytes=LIMIT, on_headers=on_headers)
    finally:
        await transport.aclose()


async def failure_of(base_url: str, *, stream: bool = True, timeouts: Timeouts = TIMEOUTS) -> ProviderFailure:
    with pytest.raises(ProviderFailure) as caught:
        await post(base_url, stream=stream, timeouts=timeouts)
    return caught.value


async def test_a_refused_connection_is_void() -> None:
    failure = await failure_of(f"http://127.0.0.1:{free_port()}/api/v1")
    assert (failure.kind, failure.void, failure.retryable) == ("connect", True, True)


async def test_an_unknown_host_is_void() -> None:
    failure = await failure_of("http://no-such-host.invalid/api/v1")
    assert (failure.kind, failure.void) == ("connect", True)


@pytest.mark.parametrize("url", ["http://[::1/api/v1", "http://host:99999/api/v1", "ftp://host/api/v1"])
async def test_an_address_that_nothing_can_be_sent_to_is_void(url: str) -> None:
    failure = await failure_of(url)
    assert (failure.kind, failure.void) == ("connect", True)


async def test_a_connect_timeout_is_void() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        failure = await failure_of(
            f"http://127.0.0.1:{port}/api/v1", timeouts=Timeouts(connect_s=0.3, first_event_s=5, event_s=5, total_s=5)
        )
        for filler in fillers:
            filler.close()
    assert (failure.kind, failure.void) == ("connect", True)


async def test_a_server_that_does_not_speak_tls_is_void() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        failure = await failure_of(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/api/v1")
    assert (failure.kind, failure.void) == ("connect", True)


async def test_a_certificate_that_is_not_trusted_is_void(tmp_path: Path) -> None:
    received: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.read(1))
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*own_certificate(tmp_path))
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        failure = await failure_of(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/api/v1")
    assert received in ([], [b""]), "a byte of the request was sent"
    assert (failure.kind, failure.void) == ("connect", True)


def own_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate that nobody else trusts, and its key."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "1"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    return certificate, key


async def test_a_connection_that_breaks_while_the_request_is_written_is_not_void() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1_000)
        peer: socket.socket = writer.get_extra_info("socket")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        transport = HttpTransport(
            f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", key=KEY, timeouts=TIMEOUTS, headers={}
        )
        with pytest.raises(ProviderFailure) as caught:
            await transport.post(
                "/chat/completions", b"x" * 1_000_000, stream=True, limit_bytes=LIMIT, on_headers=no_headers
            )
        await transport.aclose()
    assert (caught.value.kind, caught.value.void) == ("disconnect", False)


async def no_headers(generation_id: str | None, status: int) -> None:
    raise AssertionError("headers arrived")


async def test_a_kept_connection_that_the_server_has_closed_is_not_void_and_nothing_is_sent_twice() -> None:
    async def act(exchange: Exchange) -> None:
        if len(server.received) == 1:
            await exchange.reply(200, b"{}", {"Content-Type": "application/json"})
        else:
            exchange.reset()

    async with scripted_server(act) as server:
        transport = HttpTransport(server.base_url, key=KEY, timeouts=TIMEOUTS, headers={})

        async def ask() -> RawReply:
            async def on_headers(generation_id: str | None, status: int) -> None:
                return None

            return await transport.post(
                "/chat/completions", b"{}", stream=False, limit_bytes=LIMIT, on_headers=on_headers
            )

        await ask()
        with pytest.raises(ProviderFailure) as caught:
            await ask()
        await transport.aclose()
        assert len(server.received) == 2
    assert (caught.value.kind, caught.value.void) == ("disconnect", False)


@pytest.mark.parametrize(
    ("framing", "damage", "kinds"),
    [
        # aiohttp 3.14 says nothing of such a chunk: the watchdog sees the end, or the next reading does.
        ("Transfer-Encoding: chunked", EVENT_CHUNK + b"nonsense\r\n", ("event_timeout", "body_cut")),
        ("Content-Length: 5000", EVENT, ("body_cut",)),
    ],
    ids=["a chunk without a size", "fewer bytes than promised"],
)
async def test_a_body_that_breaks_its_own_framing_is_cut_and_may_have_been_billed(
    framing: str, damage: bytes, kinds: tuple[str, ...]
) -> None:
    reported = asyncio.Event()

    async def act(exchange: Exchange) -> None:
        head = f"HTTP/1.1 200 OK\r\nX-Generation-Id: gen-8\r\nContent-Type: text/event-stream\r\n{framing}\r\n\r\n"
        await exchange.send(head.encode())
        await reported.wait()
        await exchange.send(damage)
        exchange.close()

    async def on_headers(generation_id: str | None, status: int) -> None:
        reported.set()

    async with scripted_server(act) as server:
        timeouts = Timeouts(connect_s=5.0, first_event_s=5.0, event_s=0.3, total_s=10.0)
        transport = HttpTransport(server.base_url, key=KEY, timeouts=timeouts, headers={})
        raw = await transport.post("/chat/completions", b"{}", stream=True, limit_bytes=LIMIT, on_headers=on_headers)
        await transport.aclose()
    assert raw.generation_id == "gen-8"
    assert raw.cut is not None
    assert raw.cut.kind in kinds
    assert not raw.cut.void


async def test_events_that_gathered_before_the_connection_broke_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "GATHER_PART", 1e9)
    reported = asyncio.Event()
    paused = asyncio.Event()
    take = receiving.Receiver._take

    def noted(receiver: receiving.Receiver, chunk: bytes) -> bool:
        news = take(receiver, chunk)
        if receiver._body.count(b"data:") >= 2:
            paused.set()
        return news

    monkeypatch.setattr(receiving.Receiver, "_take", noted)

    async def act(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 5000\r\n\r\n")
        await reported.wait()
        for _ in range(2):
            await exchange.send(EVENT)
        await paused.wait()
        await exchange.send(EVENT + b"data: [DONE]\n\n")
        exchange.reset()

    async def on_headers(generation_id: str | None, status: int) -> None:
        reported.set()

    async with scripted_server(act) as server:
        timeouts = Timeouts(connect_s=5.0, first_event_s=5.0, event_s=5.0, total_s=10.0)
        transport = HttpTransport(server.base_url, key=KEY, timeouts=timeouts, headers={})
        raw = await transport.post("/chat/completions", b"{}", stream=True, limit_bytes=LIMIT, on_headers=on_headers)
        await transport.aclose()
    assert raw.body.endswith(b"data: [DONE]\n\n")
    assert raw.cut is None, "the whole answer is here"


async def test_a_reset_after_the_request_was_received_is_not_void() -> None:
    async def act(exchange: Exchange) -> None:
        exchange.reset()

    async with scripted_server(act) as server:
        failure = await failure_of(server.base_url)
        assert len(server.received) == 1, "the POST must not be sent twice"
    assert (failure.kind, failure.void, failure.http_status) == ("disconnect", False, None)


async def test_a_close_before_the_headers_is_not_void() -> None:
    async def act(exchange: Exchange) -> None:
        exchange.close()

    async with scripted_server(act) as server:
        failure = await failure_of(server.base_url)
        assert len(server.received) == 1
    assert (failure.kind, failure.void) == ("disconnect", False)


async def test_bytes_that_are_not_http_are_not_void() -> None:
    async def act(exchange: Exchange) -> None:
        await exchange.send(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")

    async with scripted_server(act) as server:
        failure = await failure_of(server.base_url)
    assert (failure.kind, failure.void) == ("disconnect", False)


async def test_a_disconnect_in_the_body_keeps_the_generation_id_and_what_arrived() -> None:
    async def act(exchange: Exchange) -> None:
        await exchange.open_stream("gen-77")
        await exchange.chunk(EVENT)
        exchange.close()

    seen: list[tuple[str | None, int]] = []
    async with scripted_server(act) as server:
        raw = await post(server.base_url, seen=seen)
    assert seen == [("gen-77", 200)]
    assert raw.generation_id == "gen-77"
    assert raw.body == EVENT
    assert raw.cut is not None
    assert (raw.cut.kind, raw.cut.void, raw.cut.http_status) == ("body_cut", False, 200)


async def test_the_generation_id_is_reported_before_the_body_is_read() -> None:
    reported = asyncio.Event()

    async def act(exchange: Exchange) -> None:
        await exchange.open_stream("gen-5")
        await reported.wait()
        await exchange.chunk(DONE)
        await exchange.chunk(b"")

    async def on_headers(generation_id: str | None, status: int) -> None:
        reported.set()

    async with scripted_server(act) as server:
        timeouts = Timeouts(connect_s=5.0, first_event_s=5.0, event_s=0.3, total_s=10.0)
        transport = HttpTransport(server.base_url, key=KEY, timeouts=timeouts, headers={})
        raw = await transport.post("/chat/completions", b"{}", stream=True, limit_bytes=LIMIT, on_headers=on_headers)
        await transport.aclose()
    assert raw.cut is None


async def test_comments_do_not_count_as_events() -> None:
    async def act(exchange: Exchange) -> None:
        await exchange.open_stream()
        while not exchange.writer.is_closing():
            await exchange.chunk(b": OPENROUTER PROCESSING\n\n")
            await asyncio.sleep(0.02)  # the pace of the comments, not a wait

    async with scripted_server(act) as server:
        raw = await post(server.base_url, timeouts=Timeouts(connect_s=5, first_event_s=0.3, event_s=5, total_s=5))
    assert raw.cut is not None
    assert (raw.cut.kind, raw.cut.void) == ("first_event_timeout", False)
    assert raw.first_event_at is None


async def test_silence_after_the_first_event_is_an_event_timeout() -> None:
    async def act(exchange: Exchange) -> None:
        await exchange.open_stream()
        await exchange.chunk(EVENT)
        await asyncio.Event().wait()

    async with scripted_server(act) as server:
        raw = await post(server.base_url, timeouts=Timeouts(connect_s=5, first_event_s=5, event_s=0.2, total_s=5))
    assert raw.cut is not None
    assert (raw.cut.kind, raw.cut.void) == ("event_timeout", False)


async def test_no_headers_of_a_stream_is_a_first_event_timeout_and_not_void() -> None:
    async def act(exchange: Exchange) -> None:
        await asyncio.Event().wait()

    async with scripted_server(act) as server:
        failure = await failure_of(
            server.base_url, timeouts=Timeouts(connect_s=5, first_event_s=0.2, event_s=5, total_s=5)
        )
    assert (failure.kind, failure.void) == ("first_event_timeout", False)


async def test_a_slow_whole_reply_is_held_to_the_total_limit_only() -> None:
    async def act(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{")
        await asyncio.Event().wait()

    async with scripted_server(act) as server:
        raw = await post(
            server.base_url, stream=False, timeouts=Timeouts(connect_s=5, first_event_s=0.05, event_s=0.05, total_s=0.3)
        )
    assert raw.cut is not None
    assert (raw.cut.kind, raw.cut.void) == ("total_timeout", False)
    assert raw.ended_at - raw.started_at >= 0.3


async def test_a_whole_stream_is_kept_byte_for_byte() -> None:
    pieces = [b": c\n\n", b'data: {"a":"\xe2', b'\x82\xac [DONE]"}\n', b"\n", b"da", b"ta: [DO", b"NE]\n\n"]

    async def act(exchange: Exchange) -> None:
        await exchange.open_stream()
        for piece in pieces:
            await exchange.chunk(piece)
        await exchange.chunk(b"")

    async with scripted_server(act) as server:
        raw = await post(server.base_url)
    assert raw.body == b"".join(pieces)
    assert raw.encoding == "sse"
    assert raw.cut is None
    assert raw.first_event_at is not None


async def test_a_reset_after_the_end_marker_loses_nothing() -> None:
    async def act(exchange: Exchange) -> None:
        await exchange.open_stream()
        await exchange.chunk(EVENT + DONE)
        exchange.close()

    async with scripted_server(act) as server:
        raw = await post(server.base_url)
    assert raw.cut is None
    assert raw.body == EVENT + DONE


async def test_a_web_page_with_status_200_is_a_failure_that_may_have_been_billed() -> None:
    async def act(exchange: Exchange) -> None:
        await exchange.reply(200, b"<html>Just a moment...</html>", {"Content-Type": "text/html; charset=utf-8"})

    async with scripted_server(act) as server:
        failure = await failure_of(server.base_url)
    assert (failure.kind, failure.void, failure.retryable) == ("not_json", False, True)
    assert "Just a moment" in failure.detail
