"""The processes of a campaign: engines that can be told where to die, and providers that come back with their books."""

import http.client
import json
import multiprocessing
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

from eagletui.embedded.__main__ import main as provide
from eagletui.engine import market, pace, spool, start
from eagletui.engine.__main__ import main as run_engine
from eagletui.engine.answers import AnswerDesk
from eagletui.engine.dispatch import Dispatcher
from eagletui.ledger.writer import LedgerWriter
from eagletui.providers import receiving
from eagletui.runs.folder import RunFolder
from tests.engine.run_folder import until
from tests.soak.scenario import Crash

START_S: Final = 60.0
RECEIVED: Final = "received.ids"
"""In the run folder: one generation id a line, written by nobody but the campaign."""
KEPT: Final = "kept.ids"
"""The same of replies that are whole on disk."""

FORKS: Final = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.soak.workers", "tests.loaded"])

_PLACES: Final[dict[str, tuple[type, str]]] = {
    "admit": (LedgerWriter, "admit"),
    "mark_sent": (LedgerWriter, "mark_sent"),
    "launch": (Dispatcher, "launch"),
    "mark_headers": (LedgerWriter, "mark_headers"),
    "judge": (AnswerDesk, "_judge"),
    "finish": (LedgerWriter, "finish"),
    "keep_answer": (LedgerWriter, "_keep_answer"),
    "keep_failure": (LedgerWriter, "_keep_failure"),
    "settle": (LedgerWriter, "settle"),
    "adjust_unattributed": (LedgerWriter, "adjust_unattributed"),
    "recover": (LedgerWriter, "recover"),
    "set_run_state": (LedgerWriter, "set_run_state"),
    "apply_command": (LedgerWriter, "apply_command"),
}


def engine_process(folder: RunFolder, crash: Crash | None, *options: str) -> BaseProcess:
    """Start an engine whose waits are short, and which kills itself where it is told."""
    process = FORKS.Process(target=_engine, args=([str(folder.path), *options], folder.log_path("engine"), crash))
    process.start()
    return process


@dataclass
class Provider:
    """The embedded provider of one run, which may be killed and started again on the same port."""

    folder: Path
    """It keeps its books in `provider/` in there."""
    script: Path
    latency_s: float
    tokens_per_s: float
    port: int
    process: BaseProcess | None = None

    def start(self) -> None:
        """Start it and wait until it takes requests."""
        options = ["--backend", "replay", "--port", str(self.port), "--faults", str(self.script)]
        options += ["--latency-s", str(self.latency_s), "--tokens-per-s", str(self.tokens_per_s)]
        log = self.folder / "logs" / "provider.log"
        self.process = FORKS.Process(target=_provider, args=([str(self.folder), *options], log))
        self.process.start()
        until(lambda: self._answers(), "the provider", START_S)

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process.close()
            self.process = None

    @property
    def api_url(self) -> str:
        """What clients of OpenRouter use."""
        return f"http://127.0.0.1:{self.port}/api/v1"

    def get(self, path: str) -> Any:
        """Fetch a JSON document.

        Raises:
            OSError, HTTPException: it is not there now.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path, headers={"Authorization": "Bearer soak"})
            response = connection.getresponse()
            return json.loads(response.read(), parse_float=str)
        finally:
            connection.close()

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.is_alive(), "the provider died at its start"
        try:
            self.get("/api/v1/key")
        except (OSError, http.client.HTTPException):
            return False
        return True


def cpu_s() -> float:
    """Return the CPU seconds of this process and of every engine and provider that has ended."""
    own = os.times()
    server = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]  # it reaps them, so it knows
    if server is None:
        return own.user + own.system
    fields = Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()
    return own.user + own.system + sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    """Return a port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _engine(args: list[str], log: Path, crash: Crash | None) -> None:
    _into(log)
    vars(pace).update(BACKOFF_S=0.02, THROTTLE_S=0.05, UNREACHABLE_S=0.05)
    vars(market).update(REFRESH_S=0.5)
    vars(start).update(RETRIES_S=(0.05, 0.1, 0.2, 0.5, 1.0))
    _witness_ids(Path(args[0]) / RECEIVED)
    _witness_replies(Path(args[0]) / KEPT)
    if crash is not None:
        _arm(crash)
    raise SystemExit(run_engine(args))


def _witness_ids(file: Path) -> None:
    """Note every generation id whose body the engine begins to read: it has promised that those are on disk."""
    receive = receiving.Receiver.receive

    async def noted(self: receiving.Receiver, limit_bytes: int) -> None:
        if self.generation_id is not None:
            with file.open("a", encoding="utf-8") as received:
                received.write(f"{self.generation_id}\n")
        await receive(self, limit_bytes)

    receiving.Receiver.receive = noted  # type: ignore[method-assign]


def _witness_replies(file: Path) -> None:
    """Note every generation id whose reply the engine has put on disk: it has promised that those are not lost."""
    put = spool.Spool.put

    async def noted(self: spool.Spool, kept: spool.Kept) -> None:
        await put(self, kept)
        if kept.generation_id is not None and kept.cut_kind is None:
            with file.open("a", encoding="utf-8") as whole:
                whole.write(f"{kept.generation_id}\n")

    spool.Spool.put = noted  # type: ignore[method-assign]


def _arm(crash: Crash) -> None:
    owner, name = _PLACES[crash.point]
    step: Callable[..., Any] = getattr(owner, name)
    count = 0

    def deadly(*args: Any, **kwargs: Any) -> Any:
        nonlocal count
        count += 1
        if count == crash.nth and not crash.after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = step(*args, **kwargs)
        if count == crash.nth:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, deadly)


def _provider(args: list[str], log: Path) -> None:
    _into(log)
    raise SystemExit(provide(args))


def _into(log: Path) -> None:
    os.setsid()
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
