"""A receiver process: `python -m eagletui.engine.receiver RUN_DIR --slot N --pipe FD`; only an engine starts it.

It takes HTTP, parsing and rebuilding off the engine and touches neither money nor ledger. It ends when the pipe does,
however the engine died; what is whole by then is in its spool.
"""

import argparse
import asyncio
import contextlib
import dataclasses
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

import uvloop

from eagletui.config.run_config import load_config
from eagletui.core.drift import Verdict
from eagletui.core.errors import EagleError
from eagletui.engine import pipe
from eagletui.engine.connect import connect
from eagletui.engine.open_files import raise_limit
from eagletui.engine.opening import open_desk
from eagletui.engine.spool import Spool
from eagletui.engine.taking import NEVER_BEGUN, Order, Taken, Taker
from eagletui.ledger.locks import RoleLock
from eagletui.providers.base import ProviderFailure
from eagletui.runs.folder import RunFolder

log = logging.getLogger("eagletui.engine")

BEAT_S: Final = 0.5
LAG_LOOK_S: Final = 0.05
ORPHAN_S: Final = 15.0
"""A receiver whose engine is gone and whose loop does not notice is ended after so long."""
BROKEN_OFF: Final = ProviderFailure("aborted", "Aborted on request while the reply was on its way.")


class Receiver:
    """Takes the orders of one engine."""

    def __init__(self, taker: Taker, verdicts: dict[str, Verdict], writer: asyncio.StreamWriter) -> None:
        """Take over a pipe.

        Args:
            taker: does the work.
            verdicts: that `taker` reads; kept up to date here.
            writer: to the engine.
        """
        self._taker = taker
        self._verdicts = verdicts
        self._writer = writer
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._receiving: set[int] = set()
        self._may_read: dict[int, asyncio.Future[None]] = {}
        self._lag_s = 0.0

    async def run(self, reader: asyncio.StreamReader) -> None:
        """Work until the engine says `Close` or is gone, then wait until what is whole is on disk."""
        aside = [asyncio.create_task(self._beat()), asyncio.create_task(self._watch_loop())]
        while (message := await pipe.receive(reader)) is not None:
            match message:
                case Order():
                    self._begin(message)
                case pipe.Go(attempt_id):
                    if (waiting := self._may_read.pop(attempt_id, None)) is not None and not waiting.done():
                        waiting.set_result(None)
                case pipe.Abort(attempt_id):
                    self._abort(attempt_id)
                case pipe.Hello(key):
                    self._taker.provider.use_key(key)
                case pipe.Filed(attempt_ids):
                    self._taker.filed(attempt_ids)
                case _:
                    break
        for attempt_id in list(self._receiving):
            self._abort(attempt_id)
        for task in aside:
            task.cancel()
        await asyncio.gather(*self._tasks.values(), *aside, return_exceptions=True)

    def _begin(self, order: Order) -> None:
        self._verdicts[order.endpoint] = order.verdict
        self._receiving.add(order.attempt_id)
        task = self._tasks[order.attempt_id] = asyncio.create_task(self._take(order))
        task.add_done_callback(_die_of_fault)
        task.add_done_callback(lambda ended: self._report_never_begun(order.attempt_id, ended))

    def _report_never_begun(self, attempt_id: int, task: asyncio.Task[None]) -> None:
        """Report an order whose abort came with it: `_take`, which reports every other, never took a step."""
        if task.cancelled() and self._tasks.pop(attempt_id, None) is not None:
            pipe.send(self._writer, pipe.Ended(attempt_id, Taken(None, None, NEVER_BEGUN)))

    def _abort(self, attempt_id: int) -> None:
        if attempt_id in self._receiving:
            self._receiving.discard(attempt_id)
            self._tasks[attempt_id].cancel()

    async def _take(self, order: Order) -> None:
        attempt_id = order.attempt_id

        async def on_headers(generation_id: str | None, http_status: int) -> None:
            self._may_read[attempt_id] = asyncio.get_running_loop().create_future()
            pipe.send(self._writer, pipe.Headers(attempt_id, generation_id, http_status))
            await self._may_read[attempt_id]

        try:
            taken = await self._taker.take(order, on_headers, lambda: self._receiving.discard(attempt_id))
        except asyncio.CancelledError:
            taken = Taken(None, None, BROKEN_OFF)
        del self._tasks[attempt_id]
        self._may_read.pop(attempt_id, None)
        pipe.send(self._writer, pipe.Ended(attempt_id, _slim(taken)))

    async def _beat(self) -> None:
        while True:
            beat = pipe.Beat(time.process_time(), self._lag_s, len(self._tasks), self._taker.desk.waiting)
            self._lag_s = 0.0
            pipe.send(self._writer, beat)
            await asyncio.sleep(BEAT_S)

    async def _watch_loop(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            asked_at = clock()
            await asyncio.sleep(LAG_LOOK_S)
            self._lag_s = max(self._lag_s, clock() - asked_at - LAG_LOOK_S)


def _die_of_fault(task: asyncio.Task[None]) -> None:
    """End at once on a fault of this program: the engine takes over what is in the spool and asks for the rest."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        log.critical("a fault of the receiver", exc_info=error)
        os._exit(1)


def _slim(taken: Taken) -> Taken:
    """Leave out what only the judging needed: a stream's pieces are many times the answer."""
    if taken.judged is None:
        return taken
    reply = dataclasses.replace(taken.judged.reply, deltas=None, logprobs=None)
    return dataclasses.replace(taken, judged=dataclasses.replace(taken.judged, reply=reply))


async def serve(folder: RunFolder, slot: int, connection: socket.socket) -> None:
    """Work for the engine at the other end of a connection.

    Raises:
        EagleError: config, tokenizer or provider cannot be used.
    """
    reader, writer = await asyncio.open_connection(sock=connection, limit=pipe.LIMIT_BYTES)
    hello = await pipe.receive(reader)
    if not isinstance(hello, pipe.Hello):
        return
    config = load_config(folder.config_path)
    desk = open_desk(folder, config).desk
    provider = connect(config, folder, hello.key)
    spool = Spool(folder.spool_dir, f"receiver-{slot}")
    verdicts: dict[str, Verdict] = {}
    try:
        await provider.endpoints()  # direct servers are probed for how they give ids
        pipe.send(writer, pipe.Ready())
        await Receiver(Taker(provider, desk, spool, verdicts), verdicts, writer).run(reader)
    finally:
        await spool.close()
        with contextlib.suppress(ConnectionError):
            writer.close()
        await provider.aclose()
        desk.close()


def _end_without(engine: int) -> None:
    """End this process once its engine is gone; the loop ends it sooner unless it hangs."""
    while os.getppid() == engine:
        time.sleep(1.0)  # the kernel tells a thread nothing of its parent's end
    time.sleep(ORPHAN_S)  # the loop's chance to end by itself
    os._exit(1)


def main(argv: list[str] | None = None) -> int:
    """Receive until the engine ends this; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m eagletui.engine.receiver", description=__doc__)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--slot", type=int, required=True, help="which of several, from 1")
    parser.add_argument("--pipe", type=int, required=True, help="inherited descriptor of the socket to the engine")
    chosen = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    raise_limit()
    threading.Thread(target=_end_without, args=(os.getppid(),), daemon=True).start()
    folder = RunFolder(chosen.run_dir)
    work: Coroutine[Any, Any, None] = serve(folder, chosen.slot, socket.socket(fileno=chosen.pipe))
    try:
        with RoleLock(folder.path, "receiver", chosen.slot):
            uvloop.run(work)
    except EagleError as error:
        log.error("%s", error)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
