"""A TCP server on loopback that reads one HTTP request at a time and answers with bytes the test wrote."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

Act = Callable[["Exchange"], Awaitable[None]]


@dataclass
class Exchange:
    """One received request and the way back."""

    head: str
    """Request line and headers."""
    body: bytes
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        """Send bytes at once."""
        self.writer.write(data)
        await self.writer.drain()

    async def reply(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        """Send a whole reply with a length."""
        lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        await self.send(("\r\n".join(lines) + "\r\n\r\n").encode() + body)

    async def open_stream(self, generation_id: str = "gen-1") -> None:
        """Send the headers of a chunked event stream."""
        await self.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
            b"X-Generation-Id: " + generation_id.encode() + b"\r\n\r\n"
        )

    async def chunk(self, data: bytes) -> None:
        """Send one chunk of a chunked body; empty ends it."""
        await self.send(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def reset(self) -> None:
        """Break the connection with a TCP reset."""
        peer: socket.socket = self.writer.get_extra_info("socket")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    def close(self) -> None:
        """Close the connection in order."""
        self.writer.close()


@dataclass
class ScriptedServer:
    """Where it listens and what it received."""

    base_url: str
    received: list[Exchange] = field(default_factory=list)


@asynccontextmanager
async def scripted_server(act: Act) -> AsyncIterator[ScriptedServer]:
    """Serve until the block ends; `act` answers every request."""
    server_state = ScriptedServer("")
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        try:
            while not writer.is_closing():
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = next(
                    (
                        int(line.split(":")[1])
                        for line in head.split("\r\n")
                        if line.lower().startswith("content-length")
                    ),
                    0,
                )
                exchange = Exchange(head, await reader.readexactly(length), writer)
                server_state.received.append(exchange)
                await act(exchange)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server_state.base_url = f"http://127.0.0.1:{port}/api/v1"
    try:
        yield server_state
    finally:
        server.close()
        for writer in writers:
            writer.close()
        await server.wait_closed()


def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
