"""The baseline of streams: bare aiohttp on uvloop that splits and decodes events, and keeps nothing.

`python -m tests.bench.plain_client BODIES IN_FLIGHT` reads request bodies, one JSON a line after the URL on the first
line, and prints `{"cpu_s", "events", "samples", "wall_s"}`.
"""

import asyncio
import json
import sys
import time
from pathlib import Path

import aiohttp
import msgspec
import uvloop


async def read_all(url: str, bodies: list[bytes], in_flight: int) -> int:
    """Send every body and count the events of all replies."""
    decode = msgspec.json.Decoder().decode
    waiting = iter(bodies)
    events = 0
    headers = {"Authorization": "Bearer bench", "Content-Type": "application/json"}

    async def one_after_the_other(session: aiohttp.ClientSession) -> None:
        nonlocal events
        for body in waiting:
            async with session.post(url, data=body, headers=headers) as response:
                left = b""
                async for chunk in response.content.iter_any():
                    *whole, left = (left + chunk).split(b"\n\n")
                    for event in whole:
                        if event.startswith(b"data: {"):
                            decode(event[6:])
                            events += 1

    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        await asyncio.gather(*(one_after_the_other(session) for _ in range(in_flight)))
    return events


def main() -> None:
    """Read, send, count."""
    url, *bodies = Path(sys.argv[1]).read_bytes().splitlines()
    wall, cpu = time.monotonic(), time.process_time()
    events = uvloop.run(read_all(url.decode(), bodies, int(sys.argv[2])))
    figures = {
        "cpu_s": time.process_time() - cpu,
        "events": events,
        "samples": len(bodies),
        "wall_s": time.monotonic() - wall,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
