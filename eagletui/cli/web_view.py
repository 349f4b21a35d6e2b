"""The app in a browser on this machine: textual-serve behind a door that only the person who started it can open.

Every process of this machine can reach a loopback port, and so can any page in a browser here (DNS rebinding). So the
first visit needs a secret that is printed once and works once; it is traded for a cookie and a secret path, because a
cookie alone would be sent to every port of this host. Foreign names in `Host` and pages of other origins are refused.
"""

import asyncio
import hmac
import html
import re
import secrets
import shlex
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from aiohttp import web
from textual_serve.app_service import AppService
from textual_serve.server import Server, to_int

from eagletui.core.errors import InputError
from eagletui.core.text import clean_line

HOST: Final = "127.0.0.1"
COOKIE: Final = "eagletui"
_MAIN: Final = "import sys; from eagletui.cli.app import main; main(sys.argv[1:])"
_ENVIRONMENT: Final = ("COLORTERM=truecolor", "TERM=xterm-256color", "PYTHONUTF8=1")
_MOST_VISITORS: Final = 4
"""Each has a process of its own."""
_NOBODY: Final = "This page needs the address that eagletui attach --web printed; it opens once, in one browser."

_FOREIGN_FONT: Final = re.compile(r"<link[^>]*fonts\.googleapis\.com[^>]*>")
"""The template asks for it; the page's policy would refuse it, with an error in the browser's console."""
_KEYS_AT_ONCE: Final = """<script>
new MutationObserver((_, watch) => {
  const keys = document.querySelector(".xterm-helper-textarea");
  if (!keys || !document.body.classList.contains("-first-byte")) return;
  watch.disconnect();
  keys.focus();
  window.addEventListener("focus", () => keys.focus());
}).observe(document.body, {attributes: true, childList: true, subtree: true});
</script>
</body>"""
"""Gives the keys to the terminal from the start, and whenever its tab comes to the front, without a click into it."""

_END_S: Final = 5.0
"""How long a tab's process may take to end."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class _Tab(AppService):
    """The process of one tab; it does not outlive the tab."""

    async def run(self) -> None:
        """Pass on what it draws; the tab ends with it, however it ends."""
        await super().run()
        await self.remote_close()

    async def stop(self) -> None:
        """Ask it to leave; end it if it does not, or if nobody waits for it any more."""
        leaving = asyncio.create_task(self._leave())
        try:
            await asyncio.wait((leaving,), timeout=_END_S)  # not `timeout`: reading what it draws swallows a cancel
        finally:
            self.kill()
            await leaving

    async def _leave(self) -> None:
        await super().stop()
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            await self._process.wait()

    def kill(self) -> None:
        """End its process, if it has not ended."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def gone(self) -> None:
        """Wait until its process has ended."""
        if self._process is not None:
            await self._process.wait()


class WebView:
    """One app for each tab, for one browser."""

    def __init__(self, arguments: Sequence[str], port: int, title: str) -> None:
        """Prepare.

        Args:
            arguments: of `eagletui`: what each tab runs.
            port: on loopback.
            title: of the page.
        """
        self.port = port
        self._title = clean_line(title, 80)
        self.ticket: str | None = secrets.token_urlsafe(24)
        """Opens the page once; None when it was used."""
        self._pass = secrets.token_urlsafe(24)
        self._prefix = f"/{secrets.token_urlsafe(24)}"
        self._visitors = 0
        self._tabs: set[_Tab] = set()
        """Whose processes may still be there."""
        command = shlex.join(["env", *_ENVIRONMENT, sys.executable, "-c", _MAIN, *arguments])
        self._server = Server(f"exec {command}", host=HOST, port=port, title=title, public_url=self.origin)

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return f"http://{HOST}:{self.port}"

    @property
    def address(self) -> str:
        """What a person opens."""
        return f"{self.origin}/?ticket={self.ticket}"

    def application(self) -> web.Application:
        """Build the server."""
        inner = web.Application(middlewares=[self._guard])
        inner.add_routes(
            [
                web.get("/", self._index, name="index"),
                web.get("/ws", self._socket, name="websocket"),
                web.get("/download/{key}", self._server.handle_download, name="download"),
                web.static("/static", self._server.statics_path, name="static"),
            ]
        )
        self._set_templates(inner)
        inner.on_cleanup.append(self._end_tabs)
        outer = web.Application(middlewares=[self._host_only])
        outer.router.add_get("/", self._admit)
        outer.add_subapp(self._prefix, inner)
        return outer

    def _set_templates(self, application: web.Application) -> None:
        import aiohttp_jinja2
        import jinja2

        aiohttp_jinja2.setup(application, loader=jinja2.FileSystemLoader(self._server.templates_path))

    @web.middleware
    async def _host_only(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse names that only look like this machine, and pages of other origins."""
        if request.host != f"{HOST}:{self.port}" or request.headers.get("Origin", self.origin) != self.origin:
            raise web.HTTPForbidden(text="This server answers to its own address only.")
        return await handler(request)

    async def _admit(self, request: web.Request) -> web.StreamResponse:
        """Trade the ticket for a cookie and the way in; a ticket works once."""
        given = request.query.get("ticket", "")
        if self.ticket is None or not _same(given, self.ticket):
            raise web.HTTPForbidden(text=_NOBODY)
        self.ticket = None
        reply = web.HTTPSeeOther(f"{self._prefix}/")
        reply.set_cookie(COOKIE, self._pass, path=f"{self._prefix}/", httponly=True, samesite="Strict")
        reply.headers.update(_headers(self.port))
        raise reply

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Ask for the cookie."""
        if not _same(request.cookies.get(COOKIE, ""), self._pass):
            raise web.HTTPForbidden(text=_NOBODY)
        reply = await handler(request)
        if not reply.prepared:
            reply.headers.update(_headers(self.port))
        return reply

    async def _index(self, request: web.Request) -> web.StreamResponse:
        page = await self._server.handle_index(request)
        assert isinstance(page, web.Response)
        head = f'<title>{html.escape(self._title)}</title><link rel="icon" href="data:,">\n  </head>'
        text = _FOREIGN_FONT.sub("", page.text or "").replace("</head>", head, 1)
        page.text = _KEYS_AT_ONCE.join(text.rsplit("</body>", 1))
        return page

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Origin") is None:
            raise web.HTTPForbidden(text="A browser says where its page is from.")
        if self._visitors >= _MOST_VISITORS:
            raise web.HTTPServiceUnavailable(text=f"{_MOST_VISITORS} tabs are open already; close one.")
        self._visitors += 1
        try:
            return await self._tab(request)
        finally:
            self._visitors -= 1

    async def _tab(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(heartbeat=15)
        await socket.prepare(request)

        async def close() -> None:
            await socket.close()

        tab = _Tab(
            self._server.command,
            write_bytes=socket.send_bytes,
            write_str=socket.send_str,
            close=close,
            download_manager=self._server.download_manager,
        )
        self._tabs.add(tab)
        try:
            await tab.start(to_int(request.query.get("width", ""), 80), to_int(request.query.get("height", ""), 24))
            await self._server._process_messages(socket, tab)
        finally:
            await tab.stop()
            self._tabs.discard(tab)  # only here: a stop that was cut short leaves it to the server's end
        return socket

    async def _end_tabs(self, _: web.Application) -> None:
        """End the processes of tabs whose visitors the server's end has cut off."""
        for tab in self._tabs:
            tab.kill()
        await asyncio.gather(*(tab.gone() for tab in self._tabs))

    async def serve(self, started: Callable[[], None]) -> None:
        """Serve until SIGINT or SIGTERM.

        Args:
            started: called when the port is open.

        Raises:
            InputError: the port is taken.
        """
        runner = web.AppRunner(self.application(), access_log=None, shutdown_timeout=2.0)
        await runner.setup()
        try:
            try:
                await web.TCPSite(runner, HOST, self.port).start()
            except OSError as error:
                raise InputError(f"--port: {self.port} cannot be opened: {error.strerror}. Choose another.") from error
            ended = asyncio.Event()
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                asyncio.get_running_loop().add_signal_handler(number, ended.set)
            started()
            await ended.wait()
        finally:
            await runner.cleanup()


def free_port() -> int:
    """Find a loopback port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _headers(port: int) -> dict[str, str]:
    """Let the page load from this server alone: its template would ask a font of another."""
    own = f"ws://{HOST}:{port}"
    return {
        "Content-Security-Policy": "default-src 'none'; script-src 'self' 'unsafe-inline' 'wasm-unsafe-eval';"
        f" style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; connect-src 'self' {own};"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())
