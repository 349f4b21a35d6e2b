"""Bring an engine up: config, tokenizer, endpoints, prices, books; ready is said only when all of it is in."""

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Final, Literal, TypeVar

from eagletui.config.run_config import RunConfig, load_config
from eagletui.core.errors import EagleError, LedgerError, ProviderError, RunError
from eagletui.engine import market
from eagletui.engine.answers import AnswerDesk
from eagletui.engine.connect import connect
from eagletui.engine.fleet import Fleet, await_old_receivers
from eagletui.engine.ledger_thread import LedgerThread
from eagletui.engine.market import Market
from eagletui.engine.opening import open_desk
from eagletui.engine.rekey import is_other_key, remember_key
from eagletui.engine.runner import Runner
from eagletui.engine.spool import Spool
from eagletui.engine.taking import Taker
from eagletui.engine.throttles import Throttles
from eagletui.engine.wiring import Parts
from eagletui.ledger.orders import Recovery
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.reader_throttles import ThrottlesReader
from eagletui.ledger.rows import RunRow
from eagletui.ledger.writer import LedgerWriter
from eagletui.providers.base import Provider, ProviderFailure
from eagletui.runs.folder import RunFolder
from eagletui.runs.merged import refuse_merged
from eagletui.runs.mirror import MirrorThread

log = logging.getLogger("eagletui.engine")

T = TypeVar("T")

RETRIES_S: Final = (0.5, 1.0, 2.0, 4.0)
"""Waits between attempts to reach the provider at start."""


async def serve(folder: RunFolder, *, exit_when_paused: bool) -> int:
    """Run the engine of a folder whose engine lock is held; return the exit code.

    Raises:
        EagleError: it cannot start.
    """
    refuse_merged(folder)
    config = load_config(folder.config_path)
    ledger = LedgerThread(folder.ledger_path)
    provider: Provider | None = None
    desk: AnswerDesk | None = None
    try:
        recovery = await ledger.do(_recover)
        log.info("recovered: %s", recovery)
        await await_old_receivers(folder)
        opened = open_desk(folder, config)
        desk = opened.desk
        key = config.secret().reveal()
        provider = connect(config, folder, key)
        offered = Market(config.pace.stream, config.pace.spread)
        with LedgerReader(folder.ledger_path) as reader:
            offered.know(reader.prices())
        offered.take(await _patiently(provider.endpoints))
        await ledger.do(lambda writer: market.record(writer, offered.to_record(asked=False)))
        run = await _take_stock(config, provider, ledger, opened.tokenizer_hash)
        rekeyed = await _patiently(provider.key) if is_other_key(folder, key) else None
        if rekeyed is None:
            remember_key(folder, key)
        fleet = Fleet(folder, Taker(provider, desk, Spool(folder.spool_dir, "engine")), key)
        parts = Parts(folder, config, provider, ledger, desk, fleet, offered, run, is_doubted=bool(opened.doubts))
        await asyncio.to_thread(_recall, parts.dispatcher.throttles, folder)
        runner = Runner(parts, opened.doubts, rekeyed=rekeyed, exit_when_paused=exit_when_paused)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, runner.signalled)
        async with _mirrored(folder, config, ledger):
            return await runner.run()
    except EagleError as error:
        ledger.give_up()
        with contextlib.suppress(LedgerError):
            await ledger.do(partial(_write_end, str(error)))
        raise
    finally:
        if provider is not None:
            await provider.aclose()
        if desk is not None:
            desk.close()
        ledger.close()


@contextlib.asynccontextmanager
async def _mirrored(folder: RunFolder, config: RunConfig, ledger: LedgerThread) -> AsyncIterator[None]:
    """Keep the copy that `[run] mirror` asks for, while the engine works."""
    if config.run.mirror is None:
        yield
        return
    loop = asyncio.get_running_loop()

    def report(level: Literal["info", "warn", "error"], kind: str, message: str) -> None:
        noted = ledger.do(lambda writer: writer.event(level, "engine", kind, message))
        asyncio.run_coroutine_threadsafe(noted, loop)

    mirror = MirrorThread(folder, config.run.mirror, report)
    try:
        yield
    finally:
        await asyncio.to_thread(mirror.close)


def _recall(throttles: Throttles, folder: RunFolder) -> None:
    """Let an engine know what endpoints said to samples that still wait; reads what a long run has of attempts."""
    with ThrottlesReader(folder.ledger_path) as reader, reader.throttled() as known:
        throttles.restore(known, time.time() - time.monotonic())


def _write_end(message: str, writer: LedgerWriter) -> None:
    writer.event("error", "engine", "ended", message)
    writer.stop_beat("engine")


def _recover(writer: LedgerWriter) -> Recovery:
    writer.beat("engine")
    recovery = writer.recover()
    if recovery.unsettled or recovery.voided:
        writer.event(
            "warn",
            "engine",
            "recovered",
            f"The engine had ended in mid-run: {recovery.requeued} samples are queued again, the cost of "
            f"{recovery.unsettled} requests is asked for, {recovery.voided} were never sent.",
        )
    return recovery


async def _patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask the provider something, with patience for one that is just starting.

    Raises:
        ProviderError: it refuses, or does not answer.
    """
    for wait_s in RETRIES_S:
        try:
            return await ask()
        except ProviderFailure as failure:
            if not failure.retryable:
                raise ProviderError(f"The provider refuses the run: {failure.detail}") from failure
            log.warning("%s", failure.detail)
        await asyncio.sleep(wait_s)
    return await ask()


async def _take_stock(config: RunConfig, provider: Provider, ledger: LedgerThread, tokenizer_hash: str) -> RunRow:
    """Record what the run works with, and what the key had spent before it."""
    run = await ledger.do(lambda writer: writer.run())
    if run.tokenizer_hash not in (None, tokenizer_hash):
        raise RunError(
            "The tokenizer in the run folder is not the one this run began with, so ids would not agree. "
            "Put the old files back or start a new run."
        )
    if run.tokenizer_hash is None:
        await ledger.do(lambda writer: writer.set_hashes(tokenizer_hash, run.template_hash))
    if run.key_usage_at_start_pico is None:
        key = await _patiently(provider.key)
        if key is not None:
            # A run that was merged has spent before it ever looked at this key.
            spent_pico = (await ledger.do(lambda writer: writer.books())).spent_pico
            usage_pico = key.usage_pico_usd - spent_pico
            await ledger.do(lambda writer: writer.set_key_usage_at_start(usage_pico))
    return await ledger.do(lambda writer: writer.run())
