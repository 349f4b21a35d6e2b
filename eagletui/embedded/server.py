"""Start the embedded provider: its parts from options, its socket, its address file, its end by signals."""

import asyncio
import json
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from aiohttp import web

from eagletui.core.errors import RunError
from eagletui.core.money import format_usd
from eagletui.core.vocabulary import Vocabulary
from eagletui.embedded.backend import Backend, load_prompt_counter
from eagletui.embedded.books import open_books
from eagletui.embedded.data import replay_path, tokenizer_dir
from eagletui.embedded.deltas import load_vocabulary
from eagletui.embedded.faults import FaultScript, load_faults
from eagletui.embedded.front import Front
from eagletui.embedded.market import DEMO_WINDOW, ENDPOINTS, MODEL_SLUG, Window
from eagletui.embedded.replay import ReplayBackend, load_recordings
from eagletui.files.replacement import replace_text

HOST = "127.0.0.1"
log = logging.getLogger("eagletui.embedded")


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What a person can choose about the embedded provider."""

    backend: Literal["model", "replay"] = "model"
    port: int = 0
    """0 picks a free one."""
    books: Path | None = None
    """None keeps the books in memory."""
    faults: Path | None = None
    """A TOML fault script."""
    key_limit_pico: int | None = None
    bought_pico: int | None = None
    """Credits of the account; None: enough."""
    latency_s: float = 0.05
    """Replay: wait before the first token."""
    tokens_per_s: float | None = None
    """Replay: pace of a stream; None sends it at once."""
    recordings: Path | None = None
    """Replay: a file of answers; None takes the recorded ones of SmolLM2."""
    window: Window = DEMO_WINDOW
    """How long conversations and answers may be; the model's own is the default."""
    slots: int = 8
    """Model: answers computed at a time."""
    threads: int = 1
    """Model: CPU threads; the default leaves the other cores to the extractor."""


@dataclass(slots=True)
class RunningServer:
    """A provider that takes requests."""

    front: Front
    base_url: str
    """Without the `/api/v1` path."""
    _runner: web.AppRunner

    async def drain(self) -> None:
        """Refuse new chat requests and wait until those in flight are answered."""
        self.front.draining = True
        await self.front.idle.wait()

    async def close(self) -> None:
        """Close the sockets, the backend and the books."""
        await self._runner.cleanup()
        await self.front.backend.close()
        await self.front.books.close()


async def start_server(options: ServeOptions) -> RunningServer:
    """Build and bind a provider.

    Raises:
        InputError: the fault script is wrong.
        ModelError: the model cannot be loaded.
        RunError: the books cannot be read, or the port is taken.
    """
    faults = FaultScript() if options.faults is None else load_faults(options.faults)
    books = open_books(options.books)
    vocabulary = load_vocabulary(tokenizer_dir())
    front = Front(
        backend=await _start_backend(options, vocabulary),
        books=books,
        vocabulary=vocabulary,
        counter=load_prompt_counter(tokenizer_dir()),
        faults=faults,
        key_limit_pico=options.key_limit_pico,
        bought_pico=options.bought_pico,
        window=options.window,
    )
    runner = web.AppRunner(front.application(), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        bound = socket.create_server((HOST, options.port), backlog=1024)
    except OSError as error:
        await runner.cleanup()
        raise RunError(
            f"Port {options.port} cannot be used ({error.strerror}). Choose another or leave it out."
        ) from error
    bound.setblocking(False)
    await web.SockSite(runner, bound, backlog=1024).start()
    return RunningServer(front, f"http://{HOST}:{bound.getsockname()[1]}", runner)


async def _start_backend(options: ServeOptions, vocabulary: Vocabulary) -> Backend:
    if options.backend == "replay":
        recordings = load_recordings(options.recordings or replay_path())
        return ReplayBackend(recordings, options.latency_s, options.tokens_per_s)
    from eagletui.embedded.llama import start_model

    return await start_model(vocabulary, slots=options.slots, threads=options.threads)


async def serve_until_signalled(
    options: ServeOptions, on_ready: Callable[[RunningServer], None], signals: Sequence[signal.Signals]
) -> None:
    """Serve until signalled: the first signal drains, the second stops now.

    Args:
        options: what to serve.
        on_ready: called once requests are taken.
        signals: which ones end it.
    """
    server = await start_server(options)
    drain, stop = asyncio.Event(), asyncio.Event()

    def on_signal() -> None:
        if drain.is_set():
            log.info("stopping now")
            stop.set()
        else:
            log.info("draining, %d in flight", server.front.in_flight)
            drain.set()

    loop = asyncio.get_running_loop()
    for number in signals:
        loop.add_signal_handler(number, on_signal)
    try:
        on_ready(server)
        await drain.wait()
        ends = [asyncio.create_task(server.drain()), asyncio.create_task(stop.wait())]
        _, left = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for task in left:
            task.cancel()
    finally:
        await server.close()


def banner(options: ServeOptions, server: RunningServer) -> str:
    """Describe a running provider for the person who started it."""
    what = "a real model (SmolLM2-135M-Instruct)" if options.backend == "model" else "recorded answers"
    limit = "no limit" if options.key_limit_pico is None else f"limit {format_usd(options.key_limit_pico)}"
    kept = "in memory" if options.books is None else str(options.books)
    lines = [
        f"Embedded provider: {what} behind an OpenRouter-shaped API",
        f"  base url   {server.base_url}/api/v1",
        f"  model      {MODEL_SLUG}",
        f"  key        any bearer token, {limit}",
        f"  books      {kept}, {len(server.front.books.rows)} rows; {server.base_url}/embedded/books",
    ]
    if options.faults is not None:
        lines.append(f"  faults     {len(server.front.faults.faults)} from {options.faults}")
    for endpoint in ENDPOINTS:
        prices = [format_usd(pico * 10**6) for pico in (endpoint.prompt_pico, endpoint.completion_pico)]
        shape = "streams" if endpoint.streams else "no streams"
        shape += ", logprobs" if endpoint.logprobs else ""
        lines.append(f"  {endpoint.tag:<18} {prices[0]} in, {prices[1]} out per million tokens; {shape}")
    lines.append("Ctrl-C finishes what is in flight; a second one stops now.")
    return "\n".join(lines)


def write_address(path: Path, server: RunningServer) -> None:
    """Tell others where the provider listens: a 0600 file, replaced in one step."""
    content = {
        "pid": os.getpid(),
        "base_url": server.base_url,
        "started_at": time.time(),
        "backend": server.front.backend.name,
        "model_id": MODEL_SLUG,
    }
    replace_text(path, json.dumps(content))
