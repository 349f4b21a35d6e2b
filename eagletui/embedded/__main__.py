"""The provider process of a run: `python -m eagletui.embedded RUN_DIR --backend model|replay`."""

import argparse
import fcntl
import json
import logging
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import uvloop

from eagletui.core.errors import EagleError, LockedError, RunError
from eagletui.core.money import usd_to_pico
from eagletui.embedded.companion import end_without_engine
from eagletui.embedded.market import Window
from eagletui.embedded.server import RunningServer, ServeOptions, serve_until_signalled, write_address


def main(argv: list[str] | None = None) -> int:
    """Serve a run's provider until it is signalled; return the exit code."""
    usual = ServeOptions()
    parser = argparse.ArgumentParser(prog="python -m eagletui.embedded", description=__doc__)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--backend", choices=("model", "replay"), default="model")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--faults", type=Path, default=None)
    parser.add_argument("--slots", type=int, default=usual.slots)
    parser.add_argument("--threads", type=int, default=usual.threads)
    parser.add_argument("--latency-s", type=float, default=usual.latency_s)
    parser.add_argument("--tokens-per-s", type=float, default=None)
    parser.add_argument("--recordings", type=Path, default=None)
    parser.add_argument("--context-tokens", type=int, default=usual.window.context_tokens)
    parser.add_argument("--completion-tokens", type=int, default=usual.window.completion_tokens)
    parser.add_argument("--key-limit-usd", type=str, default=None)
    parser.add_argument("--end-without-engine", type=float, default=None, metavar="SECONDS")
    chosen = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(message)s")
    folder: Path = chosen.run_dir / "provider"
    options = ServeOptions(
        backend=chosen.backend,
        port=chosen.port,
        books=folder / "books.jsonl",
        faults=chosen.faults,
        key_limit_pico=None if chosen.key_limit_usd is None else usd_to_pico(chosen.key_limit_usd),
        latency_s=chosen.latency_s,
        tokens_per_s=chosen.tokens_per_s,
        recordings=chosen.recordings,
        window=Window(chosen.context_tokens, chosen.completion_tokens),
        slots=chosen.slots,
        threads=chosen.threads,
    )
    address = folder / "address.json"
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))  # every request in flight is a socket
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def on_ready(server: RunningServer) -> None:
        write_address(address, server)
        if chosen.end_without_engine is not None:
            end_without_engine(chosen.run_dir / "locks" / "engine.lock", chosen.end_without_engine)
        logging.getLogger("eagletui.embedded").info("serving %s at %s", options.backend, server.base_url)

    try:
        with provider_lock(chosen.run_dir / "locks" / "provider.lock"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            address.unlink(missing_ok=True)
            try:
                uvloop.run(serve_until_signalled(options, on_ready, (signal.SIGTERM, signal.SIGINT)))
            finally:
                address.unlink(missing_ok=True)
    except EagleError as error:
        print(error, file=sys.stderr)  # noqa: T201  (stderr is the role's log file)
        return error.exit_code
    return 0


@contextmanager
def provider_lock(path: Path) -> Iterator[None]:
    """Hold the provider role of a run; the kernel releases it when the process dies.

    Raises:
        LockedError: another live process holds it.
        RunError: the run folder is not there or cannot be written.
    """
    while True:
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise RunError(f"{path} cannot be written: {error.strerror}.") from error
        with open(descriptor, "r+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                holder = file.read() or "unknown"
                raise LockedError(f"Another provider serves this run: {holder}. Stop it first.") from error
            if not _lies_at(descriptor, path):
                continue  # the run was replaced between the two calls
            file.truncate(0)
            json.dump({"pid": os.getpid(), "host": socket.gethostname(), "started_at": time.time()}, file)
            file.flush()
            yield
            return


def _lies_at(descriptor: int, path: Path) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False


if __name__ == "__main__":
    sys.exit(main())
