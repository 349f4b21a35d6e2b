"""The app in a browser: one person gets in, once, and nobody else can look or steer."""

import asyncio
import re
import shlex
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http.cookies import SimpleCookie
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from eagletui.cli import web_view
from eagletui.cli.web_view import HOST, WebView, free_port
from tests.cli.conftest import Command
from tests.tui.factory import empty_run


@asynccontextmanager
async def served(*arguments: str) -> AsyncIterator[tuple[WebView, aiohttp.ClientSession]]:
    """A real server on a real port, and a client that keeps no cookies by itself."""
    view = WebView(arguments, free_port(), "b3-magicoder")
    runner = web.AppRunner(view.application(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, HOST, view.port).start()
    try:
        async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as client:
            yield view, client
    finally:
        await runner.cleanup()


async def _admitted(view: WebView, client: aiohttp.ClientSession) -> tuple[str, str]:
    """Open the printed address; return the address of the page and the cookie."""
    async with client.get(view.address, allow_redirects=False) as reply:
        assert reply.status == 303
        set_cookie = reply.headers["Set-Cookie"]
        (cookie,) = SimpleCookie(set_cookie).values()
        assert "HttpOnly" in set_cookie
        assert "SameSite=Strict" in set_cookie
        assert cookie["path"] == reply.headers["Location"], "other ports of this host never see the cookie"
        return view.origin + reply.headers["Location"], f"{cookie.key}={cookie.value}"


async def test_the_printed_address_opens_the_page_once() -> None:
    async with served() as (view, client):
        address = view.address
        page, cookie = await _admitted(view, client)
        async with client.get(page, headers={"Cookie": cookie}) as reply:
            assert reply.status == 200
            text = await reply.text()
            assert f"ws://{HOST}:{view.port}/" in text
            assert "<title>b3-magicoder</title>" in text
            assert "googleapis" not in text, "nothing is asked of another server"
            assert text.index("keys.focus()") < text.index("</body>"), "the terminal has the keys without a click"
            policy = reply.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "https:" not in policy
        (script,) = re.findall(r'src="([^"]+\.js)"', text)
        async with client.get(script, headers={"Cookie": cookie}) as reply:
            assert reply.status == 200
        async with client.get(address, allow_redirects=False) as reply:
            assert reply.status == 403


async def test_without_the_secrets_nothing_is_shown() -> None:
    async with served() as (view, client):
        for path in ("/", "/?ticket=", "/?ticket=guess", "/?ticket=%ff"):
            async with client.get(view.origin + path, allow_redirects=False) as reply:
                assert reply.status == 403
        async with client.get(view.origin + "/ws") as reply:
            assert reply.status == 404
        page, cookie = await _admitted(view, client)
        for headers in ({}, {"Cookie": cookie[:-1]}):
            for path in ("", "ws", "static/js/textual.js", "download/x"):
                async with client.get(page + path, headers=headers) as reply:
                    assert reply.status == 403


async def test_a_rebound_name_or_a_foreign_page_cannot_open_or_steer_it() -> None:
    async with served() as (view, client):
        for host in ("evil.example", f"evil.example:{view.port}", f"localhost:{view.port}", HOST):
            async with client.get(view.address, headers={"Host": host}, allow_redirects=False) as reply:
                assert reply.status == 403
        page, cookie = await _admitted(view, client)
        for origin in ("http://evil.example", "null", f"http://{HOST}:1", f"https://{HOST}:{view.port}", None):
            headers = {"Cookie": cookie} | ({} if origin is None else {"Origin": origin})
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await client.ws_connect(page + "ws", headers=headers)
            assert refused.value.status == 403


async def test_a_tab_shows_the_app_read_only_and_its_process_ends_with_it(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    built = empty_run(tmp_path_factory.mktemp("web") / "b3-magicoder")
    async with served("attach", "--read-only", str(built.path)) as (view, client):
        page, cookie = await _admitted(view, client)
        headers = {"Cookie": cookie, "Origin": view.origin}
        socket = await client.ws_connect(page + "ws?width=120&height=36", headers=headers)
        async with asyncio.timeout(60), socket:
            await socket.send_json(["resize", {"width": 120, "height": 36}])
            shown = ""
            while not ("b3-magicoder" in shown and "read-only" in shown):
                message = await socket.receive()
                assert message.type in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT), message
                shown += message.data.decode("utf-8", "replace") if isinstance(message.data, bytes) else message.data
            await socket.send_json(["stdin", "q"])
            while (message := await socket.receive()).type in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT):
                pass
            assert message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSING, aiohttp.WSMsgType.CLOSED)


async def until(holds: Callable[[], bool]) -> None:
    """Wait for what another process does."""
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - another process makes it so
            await asyncio.sleep(0.02)


def _is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@asynccontextmanager
async def _hanging_tab(tmp_path: Path) -> AsyncIterator[tuple[aiohttp.ClientWebSocketResponse, int]]:
    """A tab whose process draws nothing, reads nothing and ignores a request to end; and that process."""
    view = WebView((), free_port(), "hangs")
    pid_file = tmp_path / "pid"
    code = f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    view._server.command = f"exec {shlex.join([sys.executable, '-c', code])}"
    runner = web.AppRunner(view.application(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, HOST, view.port).start()
    try:
        async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as client:
            page, cookie = await _admitted(view, client)
            async with client.ws_connect(
                page + "ws",
                headers={"Cookie": cookie, "Origin": view.origin},
                timeout=aiohttp.ClientWSTimeout(ws_close=30),
            ) as socket:
                await until(lambda: pid_file.exists() and pid_file.read_text() != "")
                yield socket, int(pid_file.read_text())
    finally:
        await runner.cleanup()


async def test_a_tabs_process_that_does_not_leave_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_view, "_END_S", 0.1)
    async with _hanging_tab(tmp_path) as (socket, pid):
        await socket.close()
        await until(lambda: not _is_there(pid))


async def test_a_server_that_ends_leaves_no_process_of_a_tab(tmp_path: Path) -> None:
    async with _hanging_tab(tmp_path) as (_, pid):
        pass
    assert not _is_there(pid)


def test_options_that_do_not_fit_are_refused(eagletui: Command) -> None:
    for arguments in (("--port", "1"), ("--allow-orders",), ("--web", "--allow-orders", "--read-only")):
        ended = eagletui("attach", *arguments)
        assert ended.code == 2
        assert "--web" in ended.err
    assert eagletui("attach", "--web", "no-such-run").code == 2


def test_a_missing_extra_is_named_with_its_cure(eagletui: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "eagletui.cli.web_view", raising=False)
    monkeypatch.setitem(sys.modules, "textual_serve", None)
    monkeypatch.setitem(sys.modules, "textual_serve.server", None)
    ended = eagletui("attach", "--web")
    assert ended.code == 2
    assert "pip install 'eagletui[web]'" in ended.err


def test_a_port_that_is_taken_is_named(eagletui: Command) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        ended = eagletui("attach", "--web", "--port", str(taken.getsockname()[1]))
    assert ended.code == 2
    assert "Choose another" in ended.err
