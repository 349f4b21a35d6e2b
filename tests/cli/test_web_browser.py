"""The app in a real browser: the page draws, loads nothing from elsewhere, and takes keys from the start."""

import asyncio
import base64
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from subprocess import DEVNULL
from typing import Any, Final

import aiohttp
import pytest

from eagletui.ledger.locks import RoleLock
from eagletui.ledger.reader import LedgerReader
from tests.cli.test_web_view import served, until
from tests.tui.factory import Built, busy_run

CHROMIUM: Final = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,800",
    "--remote-debugging-port=0",
)
PATIENCE_S: Final = 60.0
DRAWN: Final = "document.body.classList.contains('-first-byte') && document.activeElement.tagName == 'TEXTAREA'"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: apt-get install chromium"),
]


class Tab:
    """One page of the browser, driven over its debugging socket."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = count(1)
        self.requested: list[str] = []
        self.complaints: list[str] = []
        self._drawn = b""

    async def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol, and note what happens meanwhile."""
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        while True:
            message: dict[str, Any] = await self._socket.receive_json(timeout=PATIENCE_S)
            if message.get("id") == number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result
            told = message["params"]
            if message["method"] == "Network.requestWillBeSent":
                self.requested.append(told["request"]["url"])
            elif message["method"] == "Network.webSocketFrameReceived":
                frame = told["response"]
                self._drawn += base64.b64decode(frame["payloadData"]) if frame["opcode"] == 2 else b""
            elif message["method"] == "Runtime.exceptionThrown" or told.get("entry", {}).get("level") == "error":
                self.complaints.append(json.dumps(told))

    async def until(self, expression: str) -> None:
        """Wait until an expression of the page is true."""
        async with asyncio.timeout(PATIENCE_S):
            # A page tells nothing by itself.
            while not (await self.ask("Runtime.evaluate", expression=expression))["result"].get("value"):  # noqa: ASYNC110
                await asyncio.sleep(0.1)

    async def until_drawn(self, text: str) -> None:
        """Wait until the app has drawn a text."""
        async with asyncio.timeout(PATIENCE_S):
            while text.encode() not in self._drawn:
                await asyncio.sleep(0.1)  # the app draws in another process
                await self.ask("Runtime.evaluate", expression="0")  # what was drawn meanwhile comes with the answer

    async def press(self, key: str) -> None:
        """Press a key."""
        await self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, text=key)
        await self.ask("Input.dispatchKeyEvent", type="keyUp", key=key)


@asynccontextmanager
async def browser(profile: Path, client: aiohttp.ClientSession) -> AsyncIterator[Tab]:
    """Start a browser with a fresh profile and take its first page."""
    assert CHROMIUM is not None
    process = await asyncio.create_subprocess_exec(
        CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "about:blank", stdout=DEVNULL, stderr=DEVNULL
    )
    try:
        port_file = profile / "DevToolsActivePort"
        await until(lambda: port_file.exists() and port_file.read_text().count("\n") > 0)
        port = port_file.read_text().split("\n")[0]
        async with client.get(f"http://127.0.0.1:{port}/json") as reply:
            (page,) = [found for found in await reply.json() if found["type"] == "page"]
        async with client.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=0) as socket:
            tab = Tab(socket)
            for domain in ("Network", "Log", "Runtime", "Page"):
                await tab.ask(f"{domain}.enable")
            yield tab
    finally:
        process.terminate()
        await process.wait()


def _orders(built: Built) -> list[str]:
    with LedgerReader(built.ledger) as reader:
        return [order.verb for order in reader.commands_pending()]


async def test_orders_are_given_by_keys_where_they_are_allowed_and_only_there(tmp_path: Path) -> None:
    built = busy_run(tmp_path / "run")
    for options, orders in ((("--read-only",), []), ((), ["pause"])):
        with RoleLock(built.path, "engine"):
            async with (
                served("attach", *options, str(built.path)) as (view, client),
                browser(tmp_path / f"profile{len(options)}", client) as tab,
            ):
                await tab.ask("Page.navigate", url=view.address)
                await tab.until(DRAWN)
                await tab.until_drawn("with ids")
                await tab.press("p")
                await tab.press("q")
                await tab.until("document.body.classList.contains('-closed')")
                assert _orders(built) == orders
                assert [url for url in tab.requested if not url.startswith((view.origin, "data:", "ws:"))] == []
                assert tab.complaints == []
