"""Receiver processes: they take replies, and whoever is killed, nothing that arrived is lost and the books agree."""

import asyncio
import signal
import socket
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from eagletui.core.drift import Verdict
from eagletui.engine import pipe
from eagletui.engine.answers import AnswerDesk, ReadySample
from eagletui.engine.receiver import Receiver
from eagletui.engine.spool import Spool, segments
from eagletui.engine.taking import Order, Taker
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.rows import HeartbeatRow
from eagletui.ledger.writer import LedgerWriter
from eagletui.providers.base import ChatRequest, Provider
from tests.engine.books import assert_books_agree, assert_every_sample_answered_once
from tests.engine.conftest import NewRun
from tests.engine.run_folder import EngineRun, until
from tests.provider_fixture import StartProvider


def receivers(reader: LedgerReader) -> list[HeartbeatRow]:
    return [beat for beat in reader.heartbeats() if beat.role == "receiver" and beat.ready_at is not None]


def pid_of_receiver(run: EngineRun) -> int:
    with run.reader() as reader:
        (beat,) = receivers(reader)
        return beat.pid


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def has_answers(answers: int, reader: LedgerReader) -> bool:
    snapshot = reader.snapshot()
    return len(receivers(reader)) == 1 and snapshot.answered >= answers and snapshot.attempts["sent"] >= 3


@pytest.mark.slow
def test_a_receiver_and_then_its_engine_are_killed_and_nothing_is_lost(
    new_run: NewRun, start_provider: StartProvider
) -> None:
    provider = start_provider(latency_s=0.2, tokens_per_s=50)
    run = new_run(provider.api_url, 60, max_in_flight=4, pace={"receivers": 1})
    process = run.start()
    run.until(partial(has_answers, 4), "answers through a receiver")
    first = pid_of_receiver(run)
    run.signal_pid(first, signal.SIGKILL)
    run.until(lambda reader: any(beat.pid != first for beat in receivers(reader)), "another receiver")
    second = pid_of_receiver(run)
    answered = run.snapshot().answered
    run.until(partial(has_answers, answered + 4), "answers through the other receiver")
    process.kill()
    process.join()
    until(lambda: is_gone(second), "the receiver ends with its engine", 10.0)
    with LedgerWriter(run.folder.ledger_path) as writer:
        writer.set_max_in_flight(40)
    assert run.finish() == 0, run.log()
    assert_every_sample_answered_once(run, 60)
    assert_books_agree(run, provider)
    assert segments(run.folder.spool_dir) == []
    with run.reader() as reader:
        (beat,) = [beat for beat in reader.heartbeats() if beat.role == "receiver"]
        assert beat.stopped_at is not None
        assert '"in_flight"' in beat.detail_json


@pytest.mark.slow
def test_a_receiver_that_hangs_is_killed_and_its_requests_stay_unsettled_until_their_cost_is_known(
    new_run: NewRun, start_provider: StartProvider
) -> None:
    provider = start_provider(latency_s=0.2, tokens_per_s=50)
    run = new_run(provider.api_url, 30, max_in_flight=4, pace={"receivers": 1})
    process = run.start(constants={"eagletui.engine.fleet": {"SILENT_S": 1.5}})
    run.until(partial(has_answers, 4), "answers through a receiver")
    hung = pid_of_receiver(run)
    run.signal_pid(hung, signal.SIGSTOP)
    held = run.snapshot().spend.books.open_pico
    run.until(lambda reader: "said nothing for" in reader.events()[-1].message, "it is noticed", 5.0)
    assert is_gone(hung)
    lost = [attempt for attempt in run.attempts() if "said nothing for" in (attempt.error_detail or "")]
    assert lost
    assert {attempt.error_kind for attempt in lost} == {"disconnect"}
    assert all(attempt.state in ("unsettled", "settled") for attempt in lost), "never void: they may have been billed"
    assert held > 0
    assert run.wait(process) == 0, run.log()
    assert_every_sample_answered_once(run, 30)
    assert_books_agree(run, provider)
    assert segments(run.folder.spool_dir) == []


async def test_an_order_whose_abort_arrives_with_it_is_reported_and_cost_nothing(tmp_path: Path) -> None:
    here, there = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=here)
    its_reader, its_writer = await asyncio.open_connection(sock=there)
    desk = cast(AnswerDesk, SimpleNamespace(waiting=0))
    taker = Taker(cast(Provider, None), desk, Spool(tmp_path, "receiver-1"))
    order = Order(7, cast(ChatRequest, None), cast(ReadySample, None), "a", Verdict())
    for message in (order, pipe.Abort(7), pipe.Close()):
        pipe.send(writer, message)
    await Receiver(taker, {}, its_writer).run(its_reader)
    its_writer.close()
    said = []
    while (message := await pipe.receive(reader)) is not None:
        said.append(message)
    writer.close()
    (ended,) = [message for message in said if isinstance(message, pipe.Ended)]
    assert ended.attempt_id == 7
    assert ended.taken.failure is not None
    assert ended.taken.failure.void
