"""Fixtures that run the embedded provider for real, on loopback, from recorded answers."""

import asyncio
import json
import threading
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from eagletui.embedded.market import MODEL_SLUG
from eagletui.embedded.server import RunningServer, ServeOptions, start_server

_START_TIMEOUT_S = 30.0


@dataclass(slots=True)
class ProviderHandle:
    """A provider that serves from a thread of its own."""

    base_url: str
    """`http://127.0.0.1:PORT`; the API lies under `/api/v1`."""
    books_path: Path
    stop: Callable[[], None]
    """Close it; may be called twice."""
    model: str = MODEL_SLUG

    @property
    def api_url(self) -> str:
        """The base url that clients of OpenRouter use."""
        return f"{self.base_url}/api/v1"

    def get(self, path: str) -> Any:
        """Fetch a JSON document by GET."""
        request = urllib.request.Request(self.base_url + path, headers={"Authorization": "Bearer test"})
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.load(response)

    def books(self) -> Any:
        """Fetch `/embedded/books`."""
        return self.get("/embedded/books")


StartProvider = Callable[..., ProviderHandle]
"""`start_provider(faults="", **options)`: a fault script's text and fields of `ServeOptions`."""


def serve_in_thread(options: ServeOptions) -> ProviderHandle:
    """Start a provider in a thread and wait until it takes requests."""
    started = threading.Event()
    running: list[RunningServer] = []
    failures: list[BaseException] = []
    loop = asyncio.new_event_loop()

    def serve() -> None:
        asyncio.set_event_loop(loop)
        try:
            running.append(loop.run_until_complete(start_server(options)))
        except BaseException as error:
            failures.append(error)
            started.set()
            loop.close()
            return
        started.set()
        loop.run_forever()
        loop.run_until_complete(running[0].close())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()

    thread = threading.Thread(target=serve, name="replay-provider", daemon=True)
    thread.start()
    assert started.wait(_START_TIMEOUT_S), "the provider did not start"
    if failures:
        raise failures[0]

    def stop() -> None:
        if thread.is_alive():
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_START_TIMEOUT_S)

    assert options.books is not None
    return ProviderHandle(running[0].base_url, options.books, stop)


@pytest.fixture
def start_provider(tmp_path: Path) -> Iterator[StartProvider]:
    """Start providers with chosen options; all are stopped at the end of the test."""
    started: list[ProviderHandle] = []

    def start(faults: str = "", **options: Any) -> ProviderHandle:
        number = len(started)
        script = None
        if faults:
            script = tmp_path / f"faults-{number}.toml"
            script.write_text(faults, encoding="utf-8")
        chosen: dict[str, Any] = {
            "backend": "replay",
            "books": tmp_path / f"provider-{number}" / "books.jsonl",
            "latency_s": 0.0,
            "faults": script,
        }
        handle = serve_in_thread(ServeOptions(**(chosen | options)))
        started.append(handle)
        return handle

    yield start
    for handle in started:
        handle.stop()


@pytest.fixture
def replay_provider(start_provider: StartProvider) -> ProviderHandle:
    """A provider of recorded answers, without faults and without latency."""
    return start_provider()
